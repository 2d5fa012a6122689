"""WriteTxnMarkers 1–2: write the markers of transactions to partitions of this broker, for transaction coordinators.

Kafka's tool sends it to abort a hanging transaction. 2: the transaction version (KIP-1228).
"""

import asyncio

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.base.later import Later, NowOrLater, chain, gather
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.broker.coordinators.marker_writer import Marker
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TIMEOUT_MS = 5_000  # half of the timeout of coordinators


def write_txn_markers(
    ctx: CoordinatorContext, request: WriteTxnMarkersRequest, call: Call
) -> NowOrLater[WriteTxnMarkersResponse]:
    """Answered when all markers are committed, or at the timeout."""
    begun: list[Later[WireError]] = []
    answer = gather(
        [_end(ctx, asked, begun) for asked in request.markers],
        lambda results: WriteTxnMarkersResponse(markers=tuple(results)),
    )
    if not isinstance(answer, Later):
        return answer
    timer = asyncio.get_running_loop().call_later(TIMEOUT_MS / 1000, _give_up, begun)

    def answered(response: WriteTxnMarkersResponse) -> WriteTxnMarkersResponse:
        timer.cancel()
        return response

    return chain(answer, answered)


def _give_up(begun: list[Later[WireError]]) -> None:
    for written in begun:
        written.resolve(WireError.REQUEST_TIMED_OUT)


def _end(
    ctx: CoordinatorContext, asked: WritableTxnMarker, begun: list[Later[WireError]]
) -> NowOrLater[WritableTxnMarkerResult]:
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    return gather(
        [_write(ctx, marker, topic, begun) for topic in asked.topics],
        lambda results: WritableTxnMarkerResult(producer_id=asked.producer_id, topics=tuple(results)),
    )


def _write(
    ctx: CoordinatorContext, marker: Marker, topic: WritableTxnMarkerTopic, begun: list[Later[WireError]]
) -> NowOrLater[WritableTxnMarkerTopicResult]:
    markers: list[NowOrLater[WireError]] = []
    for index in topic.partition_indexes:
        written: Later[WireError] = Later()
        ctx.transactions.markers.write(TopicPartition(topic.name, index), marker, written.resolve)
        markers.append(written)
        begun.append(written)
    return gather(markers, lambda errors: _result(topic, errors))


def _result(topic: WritableTxnMarkerTopic, errors: list[WireError]) -> WritableTxnMarkerTopicResult:
    return WritableTxnMarkerTopicResult(
        name=topic.name,
        partitions=tuple(
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
            for index, error in zip(topic.partition_indexes, errors, strict=True)
        ),
    )
