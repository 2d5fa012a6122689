"""WriteTxnMarkers 1–2: end transactions in partitions of this broker, for other coordinators and for administrators.

Kafka's tool sends it to end a transaction that hangs in a partition. 2: the transaction version (KIP-1228).
"""

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.broker.coordinators.markers import Marker
from moldau.broker.promise import Promise
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


async def write_txn_markers(ctx: Context, request: WriteTxnMarkersRequest, call: Call) -> WriteTxnMarkersResponse:
    begun = [[_begin(ctx, asked, topic) for topic in asked.topics] for asked in request.markers]
    return WriteTxnMarkersResponse(
        markers=tuple(
            [
                WritableTxnMarkerResult(
                    producer_id=asked.producer_id,
                    topics=tuple([await _result(*pair) for pair in zip(asked.topics, promises, strict=True)]),
                )
                for asked, promises in zip(request.markers, begun, strict=True)
            ]
        )
    )


def _begin(ctx: Context, asked: WritableTxnMarker, topic: WritableTxnMarkerTopic) -> list[Promise]:
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    promises = []
    for index in topic.partition_indexes:
        promise = Promise()
        ctx.transactions.markers.write(topic.name, index, marker, promise.resolve)
        promises.append(promise)
    return promises


async def _result(topic: WritableTxnMarkerTopic, promises: list[Promise]) -> WritableTxnMarkerTopicResult:
    errors: list[WireError] = [await promise for promise in promises]
    return WritableTxnMarkerTopicResult(
        name=topic.name,
        partitions=tuple(
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
            for index, error in zip(topic.partition_indexes, errors, strict=True)
        ),
    )
