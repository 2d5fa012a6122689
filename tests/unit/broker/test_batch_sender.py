"""Requests of transactions to other brokers: sent in batches, and every item gets one outcome."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.broker.coordinators import add_partitions_sender, marker_sender
from moldau.broker.coordinators import batch_sender as module
from moldau.broker.coordinators.add_partitions_sender import AddOrVerify, AddPartitionsSender
from moldau.broker.coordinators.marker_sender import MarkerSender
from moldau.broker.coordinators.marker_writer import Marker
from moldau.broker.waiting import awaited
from moldau.metadata.image import Broker, ClusterImage
from moldau.net.peer import PeerLost
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from support.net.loops import on_both_loops, run, until

COMMIT, ABORT = Marker(1, 0, True, 5, 2), Marker(2, 3, False, 5, 2)


class Peer:
    """Another broker: it keeps its answers back until the test wants them."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, asyncio.Future[Any]]] = []
        self.left = False

    async def ask(self, message: Any, version: int, timeout_ms: int) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append((message, answer))
        return await answer

    def disconnect(self, reason: str) -> None:
        self.left = True
        self.fail()

    def answer(self, error: Callable[[str, int], WireError]) -> None:
        message, answer = self.asked.pop(0)
        answer.set_result(answers(message, error))

    def fail(self) -> None:
        for _, answer in self.asked:
            answer.set_exception(PeerLost("it went away"))
        self.asked.clear()


def answers(message: Any, error: Callable[[str, int], WireError]) -> Any:
    if isinstance(message, WriteTxnMarkersRequest):
        return WriteTxnMarkersResponse(
            markers=tuple(
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=tuple(
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=tuple(
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=error(topic.name, index)
                                )
                                for index in topic.partition_indexes
                            ),
                        )
                        for topic in marker.topics
                    ),
                )
                for marker in message.markers
            )
        )
    assert isinstance(message, AddPartitionsToTxnRequest)
    return AddPartitionsToTxnResponse(
        results_by_transaction=tuple(
            AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id,
                topic_results=tuple(
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=tuple(
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=error(topic.name, index)
                            )
                            for index in topic.partitions
                        ),
                    )
                    for topic in asked.topics
                ),
            )
            for asked in message.transactions
        )
    )


class Peers:
    def __init__(self) -> None:
        self.known: dict[tuple[int, str], Peer] = {}

    def to(self, broker_id: int, purpose: str) -> Peer:
        return self.known.setdefault((broker_id, purpose), Peer())

    def markers(self, broker_id: int) -> Peer:
        return self.to(broker_id, marker_sender.PURPOSE)

    def coordinator(self, broker_id: int) -> Peer:
        return self.to(broker_id, add_partitions_sender.PURPOSE)


def fine(topic: str, index: int) -> WireError:
    return WireError.NONE


async def asked(peer: Peer) -> Any:
    await until(lambda: bool(peer.asked))
    return peer.asked[0][0]


class Senders:
    """Both senders on the same peers."""

    def __init__(self, peers: Peers) -> None:
        self.markers = MarkerSender(peers)  # type: ignore[arg-type]
        self.add_partitions = AddPartitionsSender(peers)  # type: ignore[arg-type]

    def add_or_verify(self, broker_id: int, name: str, producer_id: int, epoch: int, topics: str, adds: bool) -> Any:
        partitions = [TopicPartition(each[:-2], int(each[-1])) for each in topics.split()]
        request = AddOrVerify(name, producer_id, epoch, partitions, adds)
        return self.add_partitions.add_or_verify(broker_id, request)

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self.markers.follow(old, new)
        self.add_partitions.follow(old, new)

    async def stop(self) -> None:
        await self.markers.stop()
        await self.add_partitions.stop()


def told(loop_kind: str, story: Any) -> None:
    async def main() -> None:
        peers = Peers()
        senders = Senders(peers)
        await story(senders, peers)
        await senders.stop()

    run(loop_kind, main())


class Heard:
    """Outcomes of markers, by topic and partition."""

    def __init__(self, senders: Senders) -> None:
        self._senders = senders
        self.outcomes: list[tuple[str, int, WireError]] = []

    def send(self, broker: int, topic: str, index: int, marker: Marker = COMMIT) -> None:
        partition = TopicPartition(topic, index)
        self._senders.markers.send_marker(
            broker, partition, marker, lambda error: self.outcomes.append((topic, index, error))
        )


@on_both_loops
def test_while_one_request_is_in_flight_the_next_batch_gathers(loop_kind: str) -> None:
    async def story(senders: Senders, peers: Peers) -> None:
        heard = Heard(senders)
        heard.send(2, "orders", 0)
        first = await asked(peers.markers(2))
        assert [topic.name for topic in first.markers[0].topics] == ["orders"]
        heard.send(2, "payments", 1)
        heard.send(2, "orders", 3, ABORT)
        heard.send(2, "payments", 0)
        heard.send(3, "orders", 1)
        await asked(peers.markers(3))
        assert len(peers.markers(2).asked) == 1, "one at a time, to each broker"
        peers.markers(2).answer(fine)
        await until(lambda: heard.outcomes == [("orders", 0, WireError.NONE)])
        commit, abort = (await asked(peers.markers(2))).markers
        assert (commit.producer_id, commit.transaction_result, commit.coordinator_epoch) == (1, True, 5)
        assert [(topic.name, topic.partition_indexes) for topic in commit.topics] == [("payments", (0, 1))]
        assert (abort.producer_id, abort.producer_epoch, abort.transaction_version) == (2, 3, 2)
        peers.markers(2).answer(lambda topic, index: WireError.NOT_LEADER_OR_FOLLOWER if index == 3 else WireError.NONE)
        await until(lambda: len(heard.outcomes) == 4)
        assert ("orders", 3, WireError.NOT_LEADER_OR_FOLLOWER) in heard.outcomes
        assert ("payments", 1, WireError.NONE) in heard.outcomes

    told(loop_kind, story)


@on_both_loops
def test_a_broker_that_does_not_know_a_topic_yet_is_asked_again(loop_kind: str) -> None:
    async def story(senders: Senders, peers: Peers) -> None:
        heard = Heard(senders)
        heard.send(2, "orders", 0)
        await asked(peers.markers(2))
        peers.markers(2).answer(lambda *_: WireError.UNKNOWN_TOPIC_OR_PARTITION)
        await until(lambda: heard.outcomes == [("orders", 0, WireError.NOT_LEADER_OR_FOLLOWER)])
        assert heard.outcomes[0][2].retriable

    told(loop_kind, story)


@on_both_loops
def test_requests_to_a_broker_that_left_fail_at_once(loop_kind: str) -> None:
    async def story(senders: Senders, peers: Peers) -> None:
        heard = Heard(senders)
        heard.send(2, "orders", 0)
        answer = senders.add_or_verify(2, "tx", 7, 0, "orders-0", True)
        await asked(peers.markers(2))
        await asked(peers.coordinator(2))
        there = ClusterImage(brokers={2: Broker(2, {}), 3: Broker(3, {})})
        senders.follow(there, ClusterImage(brokers={3: Broker(3, {})}))
        assert await awaited(answer) == {("orders", 0): WireError.NETWORK_EXCEPTION}
        await until(lambda: heard.outcomes == [("orders", 0, WireError.NETWORK_EXCEPTION)])
        heard.send(2, "orders", 1)
        await asked(peers.markers(2))
        peers.markers(2).answer(fine)
        await until(lambda: heard.outcomes[1:] == [("orders", 1, WireError.NONE)])

    told(loop_kind, story)


@on_both_loops
@pytest.mark.parametrize("adds", [True, False])
def test_requests_of_many_producers_go_together(loop_kind: str, adds: bool) -> None:
    async def story(senders: Senders, peers: Peers) -> None:
        first = senders.add_or_verify(2, "first", 1, 0, "orders-0", adds)
        await asked(peers.coordinator(2))
        others = [senders.add_or_verify(2, name, 7, 1, "payments-1 orders-1", adds) for name in ("a", "b", "a")]
        peers.coordinator(2).answer(fine)
        assert await awaited(first) == {("orders", 0): WireError.NONE}
        request = await asked(peers.coordinator(2))
        assert [each.transactional_id for each in request.transactions] == ["a", "b", "a"]
        assert all(each.verify_only is not adds for each in request.transactions)
        no = WireError.TRANSACTION_ABORTABLE
        peers.coordinator(2).answer(lambda topic, _: no if topic == "orders" else WireError.NONE)
        for each in others:
            assert await awaited(each) == {("payments", 1): WireError.NONE, ("orders", 1): no}

    told(loop_kind, story)


@on_both_loops
def test_the_queue_of_a_broker_is_bounded(loop_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED_ITEMS", 2)
    monkeypatch.setattr(module, "MAX_BATCH_ITEMS", 1)

    async def story(senders: Senders, peers: Peers) -> None:
        heard = Heard(senders)
        for index in range(3):
            heard.send(2, "orders", index)
        assert heard.outcomes == [("orders", 2, WireError.NETWORK_EXCEPTION)]
        for _ in range(2):
            request = await asked(peers.markers(2))
            assert len(request.markers[0].topics[0].partition_indexes) == 1
            peers.markers(2).answer(fine)
            await until(lambda: not peers.markers(2).asked)
        await until(lambda: len(heard.outcomes) == 3)

    told(loop_kind, story)
