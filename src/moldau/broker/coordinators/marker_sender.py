"""MarkerSender: transaction markers for partitions led by other brokers, sent with WriteTxnMarkers."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.broker.coordinators.batch_sender import REQUEST_TIMEOUT_MS, BatchSender, Errors
from moldau.broker.coordinators.marker_writer import Marker
from moldau.broker.peers import Peers
from moldau.metadata.image import ClusterImage
from moldau.net.peer import Peer
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

PURPOSE = "markers"
VERSION = 2


class MarkerItem(NamedTuple):
    partition: TopicPartition
    marker: Marker
    done: Callable[[WireError], None]


class MarkerSender:
    def __init__(self, peers: Peers) -> None:
        self._sender = BatchSender(peers, PURPOSE, _send, _complete)

    def send_marker(
        self, broker_id: int, partition: TopicPartition, marker: Marker, done: Callable[[WireError], None]
    ) -> None:
        """Call `done` once with the outcome; NETWORK_EXCEPTION: unknown."""
        self._sender.send(broker_id, MarkerItem(partition, marker, done))

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self._sender.follow(old, new)

    async def stop(self) -> None:
        await self._sender.stop()


async def _send(peer: Peer, items: list[MarkerItem]) -> Errors:
    by_marker: dict[Marker, list[TopicPartition]] = {}
    for item in items:
        by_marker.setdefault(item.marker, []).append(item.partition)
    request = WriteTxnMarkersRequest(markers=tuple(_writable(*each) for each in by_marker.items()))
    response: WriteTxnMarkersResponse = await peer.ask(request, VERSION, REQUEST_TIMEOUT_MS)
    return {
        (marker, topic.name, result.partition_index): WireError(result.error_code)
        for marker, answer in zip(by_marker, response.markers, strict=True)  # results come in the order of the markers
        for topic in answer.topics
        for result in topic.partitions
    }


def _complete(item: MarkerItem, errors: Errors) -> None:
    error = errors.get((item.marker, *item.partition), WireError.NETWORK_EXCEPTION)
    # The broker may not know a new topic yet. Whether the topic exists is decided by this broker's image.
    item.done(WireError.NOT_LEADER_OR_FOLLOWER if error is WireError.UNKNOWN_TOPIC_OR_PARTITION else error)


def _writable(marker: Marker, partitions: Sequence[TopicPartition]) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        topics=tuple(
            WritableTxnMarkerTopic(name=name, partition_indexes=tuple(index for _, index in found))
            for name, found in groupby(sorted(partitions), key=lambda each: each.topic)
        ),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
