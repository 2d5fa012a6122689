"""A transactional producer through coordinators that come and go: each transaction ends as its producer was told.

The coordinator is real, its log is in memory, and the partitions of the transaction are another broker's. Markers and
their answers get lost, leadership is lost with what was not committed, and the next leader continues from the log.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import TopicPartition
from moldau.base.later import Later
from moldau.broker.coordinators import transaction_coordinator as module
from moldau.broker.coordinators.marker_writer import Marker, MarkerWriter
from moldau.broker.coordinators.transaction_coordinator import TransactionCoordinator
from moldau.broker.settings import load
from moldau.log.producers import Producers
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.brokers.calls import a_call
from support.net.loops import until
from support.replication.replicas import ReplicatedPartition

STATE, DATA = "__transaction_state", "data"
PARTITIONS = 3
NOW = 1_700_000_000_000
CONFIG, _ = load({})
CALL = a_call(5)
AGAIN = {
    WireError.CONCURRENT_TRANSACTIONS,
    WireError.COORDINATOR_LOAD_IN_PROGRESS,
    WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.NOT_COORDINATOR,
}


class Broker:
    """The other broker: it has the partitions, and knows how each transaction has to end."""

    def __init__(self) -> None:
        self.partitions = [Producers() for _ in range(PARTITIONS)]
        # Of each transaction, by its producer id and epoch: what was asked for, what was answered, what came of it.
        self.asked: dict[tuple[int, int], bool] = {}
        self.answered: dict[tuple[int, int], bool] = {}
        self.ended: dict[tuple[int, int], bool] = {}
        self.markers: list[tuple[int, Marker, Callable[[WireError], None]]] = []

    def send_marker(
        self, broker_id: int, partition: TopicPartition, marker: Marker, done: Callable[[WireError], None]
    ) -> None:
        self.markers.append((partition.partition, marker, done))

    def write(self, index: int, producer_id: int, epoch: int) -> None:
        state = self.partitions[index].get(producer_id)
        assert state is None or state.epoch <= epoch, "the producer was let in with an epoch that is over"
        assert state is None or state.txn_start_offset < 0 or state.epoch == epoch, "the last one is still open"
        self.partitions[index].update(producer_id, epoch, 0, 0, 100, NOW, True)

    def take(self, *, arrives: bool = True, answered: bool = True) -> None:
        """The marker that was sent first."""
        if not self.markers:
            return
        index, marker, told = self.markers.pop(0)
        error = self._end(index, marker) if arrives else WireError.NETWORK_EXCEPTION
        told(error if answered else WireError.NETWORK_EXCEPTION)

    def _end(self, index: int, marker: Marker) -> WireError:
        producers = self.partitions[index]
        producer_id, epoch, commit, coordinator_epoch, version = marker
        refusal = producers.check_marker(producer_id, epoch, coordinator_epoch, version)
        if refusal is not None:
            return refusal.error
        state = producers.get(producer_id)
        if state is not None and state.txn_start_offset >= 0:
            which = producer_id, state.epoch
            assert self.answered.get(which, commit) is commit, "its producer was told otherwise"
            assert self.ended.setdefault(which, commit) is commit, "it ended otherwise elsewhere"
            assert self.asked.get(which, False) or not commit, "no commit was requested"
        producers.end_transaction(producer_id, epoch, coordinator_epoch, NOW)
        return WireError.NONE

    @property
    def open(self) -> list[int]:
        return [each.producer_id for producers in self.partitions for each in producers if each.txn_start_offset >= 0]


class World:
    def __init__(self) -> None:
        self.log = ReplicatedPartition()
        self.broker = Broker()
        self.ids = iter(range(4000, 5000))
        counts = {STATE: (1, 1), DATA: (PARTITIONS, 2)}
        topics = {
            name: Topic(
                name, UUID(int=leader), tuple(PartitionState(n, (1, 2), (1, 2), leader) for n in range(count)), {}
            )
            for name, (count, leader) in counts.items()
        }
        self.image = ClusterImage(topics=topics, features={"transaction.version": 2})
        markers = MarkerWriter(self, SimpleNamespace(), self.now_image, lambda: NOW, 1, self.broker)  # type: ignore[arg-type]
        self.coordinator = TransactionCoordinator(
            self,  # type: ignore[arg-type]
            markers,
            self,  # type: ignore[arg-type]
            lambda: CONFIG,
            self.now_image,
            lambda: NOW,
            SimpleNamespace(),  # type: ignore[arg-type]
        )
        self.coordinator.start()

    def now_image(self) -> ClusterImage:
        return self.image

    @property
    def by_name(self) -> dict[bytes, list[ReplicatedPartition]]:
        return {STATE.encode(): [self.log]}

    def find(self, topics: object, token: bytes, index: int) -> ReplicatedPartition:
        return self.log

    async def next(self) -> int | Refusal:
        return next(self.ids)

    def fail(self, kept: int) -> None:
        """Another broker leads for a moment, with so much of what was not committed."""
        self.log.lose(kept)
        self.coordinator.read("tx", lambda _: None, lambda _: None)
        self.log.win()
        self.coordinator.read("tx", lambda _: None, lambda _: None)


class Client:
    """One question at a time, asked again where it has to be."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.producer = -1, -1
        self.open = False
        self.transactions = 0
        self.asked: tuple[str, Any, Any] | None = None  # what, about what, and the answer or a promise of it

    def step(self, commit: bool, partitions: frozenset[int]) -> None:
        """Take the answer that is there, then ask what comes next."""
        if self.asked is not None:
            what, about, answer = self.asked
            if isinstance(answer, Later) and not answer.done:
                return
            self.asked = None
            answer = answer.result if isinstance(answer, Later) else answer
            if not getattr(self, f"_{what}_answered")(about, answer):
                self._ask(what, about)
                return
        if self.producer == (-1, -1):
            self._ask("init", None)
        elif not self.open:
            self._ask("add", partitions or frozenset({0}))
        else:
            self.world.broker.asked[self.producer] = commit
            self._ask("end", commit)

    def _ask(self, what: str, about: Any) -> None:
        self.asked = what, about, getattr(self, f"_{what}")(about)

    def _init(self, _: None) -> Any:
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        return self.world.coordinator.init_producer_id(
            "tx", request, CALL, lambda error: InitProducerIdResponse(error_code=error, producer_epoch=-1)
        )

    def _init_answered(self, _: None, response: InitProducerIdResponse) -> bool:
        if response.error_code in AGAIN:
            return False
        assert response.error_code == WireError.NONE
        self.producer = response.producer_id, response.producer_epoch
        return True

    def _add(self, partitions: frozenset[int]) -> Any:
        added = [TopicPartition(DATA, index) for index in sorted(partitions)]
        return self.world.coordinator.add_or_verify("tx", *self.producer, added, True)

    def _add_answered(self, partitions: frozenset[int], errors: dict[tuple[str, int], WireError]) -> bool:
        if AGAIN.intersection(errors.values()):
            return False
        assert set(errors.values()) == {WireError.NONE}
        for index in partitions:
            self.world.broker.write(index, *self.producer)
        self.open = True
        return True

    def _end(self, commit: bool) -> Any:
        producer_id, epoch = self.producer
        request = EndTxnRequest(transactional_id="tx", producer_id=producer_id, producer_epoch=epoch, committed=commit)
        return self.world.coordinator.ask("tx", request, CALL, lambda error: EndTxnResponse(error_code=error))

    def _end_answered(self, commit: bool, response: EndTxnResponse) -> bool:
        if response.error_code in AGAIN:
            return False
        assert response.error_code == WireError.NONE
        self.world.broker.answered[self.producer] = commit
        self.producer = response.producer_id, response.producer_epoch
        self.open = False
        self.transactions += 1
        return True


Step = tuple[str, int, bool, frozenset[int]]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["client"] * 6 + ["restart", "replicate", "replicate", "fail", "marker", "marker", "lost", "unheard"]
        ),
        st.integers(0, 3),
        st.booleans(),
        st.frozensets(st.integers(0, PARTITIONS - 1)),
    ),
    min_size=20,
    max_size=80,
)


async def told(steps: Sequence[Step]) -> None:
    world = World()
    client = Client(world)
    for what, number, flag, partitions in steps:
        match what:
            case "client":
                client.step(flag, partitions)
            case "restart":  # another instance: what the last one left open is aborted
                client = Client(world)
            case "replicate":
                world.log.commit(number)
            case "fail":
                world.fail(number)
            case _:
                world.broker.take(arrives=what != "lost", answered=what == "marker")
        await asyncio.sleep(0.002 if what == "fail" else 0)
    before = client.transactions

    def all_ended() -> bool:
        """Nothing stands in the way any more."""
        world.log.commit()
        while world.broker.markers:
            world.broker.take()
        if client.transactions <= before + 1:
            client.step(True, frozenset({0}))
            return False
        return not world.broker.open

    await asyncio.wait_for(until(all_ended), 30)
    await world.coordinator.stop()


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_each_transaction_ends_as_its_producer_was_told(steps: list[Step]) -> None:
    before, module.RETRY_MS = module.RETRY_MS, 1
    try:
        asyncio.run(told(steps))
    finally:
        module.RETRY_MS = before
