"""WriteTxnMarkers 1–2: end transactions in partitions of this broker, for other coordinators and for administrators.

Kafka's tool sends it to end a transaction that hangs in a partition. 2: the transaction version (KIP-1228).
"""

from typing import Any

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.broker.coordinators.markers import Marker
from moldau.broker.promise import Promise, joined
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def write_txn_markers(ctx: Context, request: WriteTxnMarkersRequest, call: Call) -> Any:
    return joined(
        [_end(ctx, asked) for asked in request.markers],
        lambda results: WriteTxnMarkersResponse(markers=tuple(results)),
    )


def _end(ctx: Context, asked: WritableTxnMarker) -> Any:
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    return joined(
        [_write(ctx, marker, topic) for topic in asked.topics],
        lambda results: WritableTxnMarkerResult(producer_id=asked.producer_id, topics=tuple(results)),
    )


def _write(ctx: Context, marker: Marker, topic: WritableTxnMarkerTopic) -> Any:
    promises = []
    for index in topic.partition_indexes:
        promise = Promise()
        ctx.transactions.markers.write(topic.name, index, marker, promise.resolve)
        promises.append(promise)
    return joined(promises, lambda errors: _result(topic, errors))


def _result(topic: WritableTxnMarkerTopic, errors: list[WireError]) -> WritableTxnMarkerTopicResult:
    return WritableTxnMarkerTopicResult(
        name=topic.name,
        partitions=tuple(
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
            for index, error in zip(topic.partition_indexes, errors, strict=True)
        ),
    )
