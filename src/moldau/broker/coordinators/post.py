"""What transactions ask of other brokers: markers to write, and whether a partition is part of a transaction.

To each broker goes one request at a time, with all that came up meanwhile. Nothing is tried again here: whoever sent
something hears what became of it, and knows the cluster's next image better than a queue does.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

from moldau.base.errors import WireError
from moldau.base.later import Later
from moldau.broker.coordinators.markers import Marker, Told
from moldau.broker.peers import Peers
from moldau.metadata.image import ClusterImage
from moldau.net.peer import Peer, PeerLost
from moldau.transactions.state import TopicPartition
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger("moldau.broker")

MARKERS, ADMISSION = "markers", "admission"  # connections of their own: replies come in order, and markers may wait
MARKERS_VERSION, ADMISSION_VERSION = 2, 5
ITEMS_AT_MOST = 1_000  # in one request
QUEUED_AT_MOST = 100_000  # for one broker
TIMEOUT_MS = 10_000  # a broker that does not answer for so long is asked anew, or another one is

Item = TypeVar("Item")
Errors = Mapping[tuple[object, str, int], WireError]  # by what was asked, topic and partition


class MarkerItem(NamedTuple):
    topic: str
    partition: int
    marker: Marker
    told: Told


class AdmissionItem(NamedTuple):
    transaction: AddPartitionsToTxnTransaction
    partitions: Sequence[TopicPartition]
    answer: Later[Mapping[TopicPartition, WireError]]


class Rounds(Generic[Item]):
    """Items for other brokers, each broker's in rounds: while one is out, the next one gathers."""

    def __init__(
        self,
        peers: Peers,
        purpose: str,
        deliver: Callable[[Peer, list[Item]], Awaitable[Errors]],
        tell: Callable[[Item, Errors], None],
    ) -> None:
        self._peers = peers
        self._purpose = purpose
        self._deliver = deliver
        self._tell = tell  # an item what became of it; where the errors have no word on it nobody knows
        self._queues: dict[int, deque[Item]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def send(self, broker_id: int, item: Item) -> None:
        queue = self._queues.setdefault(broker_id, deque())
        if len(queue) >= QUEUED_AT_MOST:
            self._tell(item, {})
            return
        queue.append(item)
        if broker_id not in self._tasks:
            self._tasks[broker_id] = asyncio.get_running_loop().create_task(self._go(broker_id, queue))

    async def _go(self, broker_id: int, queue: deque[Item]) -> None:
        try:
            while queue:
                items = [queue.popleft() for _ in range(min(len(queue), ITEMS_AT_MOST))]
                errors = await self._round(broker_id, items)
                for item in items:
                    self._tell_safely(item, errors)
        finally:
            del self._tasks[broker_id]

    async def _round(self, broker_id: int, items: list[Item]) -> Errors:
        try:
            return await self._deliver(self._peers.to(broker_id, self._purpose), items)
        except PeerLost as lost:
            log.info("broker %d could not be asked (%s): %s", broker_id, self._purpose, lost.reason)
        except Exception:
            log.exception("asking broker %d failed (%s)", broker_id, self._purpose)
        return {}

    def _tell_safely(self, item: Item, errors: Errors) -> None:
        try:
            self._tell(item, errors)
        except Exception:  # a bug of ours; the others' answers do not wait for its end
            log.exception("an answer of another broker could not be used (%s)", self._purpose)

    def give_up(self, broker_id: int) -> None:
        """The broker is gone: nobody waits for its answer."""
        if broker_id in self._tasks:
            self._peers.to(broker_id, self._purpose).disconnect("the broker has left the cluster")

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for queue in self._queues.values():
            queue.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Post:
    def __init__(self, peers: Peers) -> None:
        self._markers = Rounds(peers, MARKERS, _deliver_markers, _tell_of_marker)
        self._admission = Rounds(peers, ADMISSION, _ask_admission, _tell_of_admission)

    def send_marker(self, broker_id: int, topic: str, index: int, marker: Marker, told: Told) -> None:
        """`told` hears once what became of the marker; NETWORK_EXCEPTION: nobody knows."""
        self._markers.send(broker_id, MarkerItem(topic, index, marker, told))

    def ask_admission(
        self,
        broker_id: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Later[Mapping[TopicPartition, WireError]]:
        """The coordinator's word on each partition: whether it is in the open transaction, or with `adds`, is now."""
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not adds,
            topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=tuple(index for _, index in found))
                for name, found in _by_topic(partitions)
            ),
        )
        item = AdmissionItem(transaction, partitions, Later())
        self._admission.send(broker_id, item)
        return item.answer

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        if old.brokers is not new.brokers:
            for broker_id in old.brokers.keys() - new.brokers.keys():
                self._markers.give_up(broker_id)
                self._admission.give_up(broker_id)

    async def stop(self) -> None:
        await self._markers.stop()
        await self._admission.stop()


# ── markers ──


async def _deliver_markers(peer: Peer, items: list[MarkerItem]) -> Errors:
    by_marker: dict[Marker, list[TopicPartition]] = {}
    for item in items:
        by_marker.setdefault(item.marker, []).append((item.topic, item.partition))
    request = WriteTxnMarkersRequest(markers=tuple(_writable(*each) for each in by_marker.items()))
    response: WriteTxnMarkersResponse = await peer.ask(request, MARKERS_VERSION, TIMEOUT_MS)
    return {
        (marker, topic.name, result.partition_index): WireError(result.error_code)
        for marker, answer in zip(by_marker, response.markers, strict=True)  # results come in the order of the markers
        for topic in answer.topics
        for result in topic.partitions
    }


def _tell_of_marker(item: MarkerItem, errors: Errors) -> None:
    """A broker may not have heard of a topic yet. Whether there is one is for our own image to say."""
    error = errors.get((item.marker, item.topic, item.partition), WireError.NETWORK_EXCEPTION)
    item.told(WireError.NOT_LEADER_OR_FOLLOWER if error is WireError.UNKNOWN_TOPIC_OR_PARTITION else error)


def _writable(marker: Marker, partitions: list[TopicPartition]) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        topics=tuple(
            WritableTxnMarkerTopic(name=name, partition_indexes=tuple(index for _, index in found))
            for name, found in _by_topic(partitions)
        ),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


# ── admission ──


async def _ask_admission(peer: Peer, items: list[AdmissionItem]) -> Errors:
    request = AddPartitionsToTxnRequest(transactions=tuple(item.transaction for item in items))
    response: AddPartitionsToTxnResponse = await peer.ask(request, ADMISSION_VERSION, TIMEOUT_MS)
    return {
        (item.answer, topic.name, result.partition_index): WireError(result.partition_error_code)
        for item, answer in zip(items, response.results_by_transaction, strict=True)  # in the order of the questions
        for topic in answer.topic_results
        for result in topic.results_by_partition
    }


def _tell_of_admission(item: AdmissionItem, errors: Errors) -> None:
    unknown = WireError.NETWORK_EXCEPTION
    item.answer.resolve({each: errors.get((item.answer, *each), unknown) for each in item.partitions})


def _by_topic(partitions: Sequence[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    return [(name, list(found)) for name, found in groupby(sorted(partitions), key=lambda each: each[0])]
