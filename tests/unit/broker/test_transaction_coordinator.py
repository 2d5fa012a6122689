"""The transaction coordinator on real partitions: markers that are written at once, later, again, or not at all."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import TopicPartition
from moldau.base.later import Later, NowOrLater
from moldau.broker.coordinators.add_partitions_sender import AddOrVerify
from moldau.broker.coordinators.marker_writer import Marker, MarkerWriter
from moldau.broker.coordinators.transaction_coordinator import TransactionCoordinator
from moldau.broker.settings import load
from moldau.broker.waiting import awaited
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication.appender import Appended, Appender, Outcome
from moldau.replication.partition import Partition
from moldau.transactions.state import Transaction, TransactionState
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.brokers.calls import a_call
from support.log.logs import NOW, open_log
from support.net.loops import on_both_loops, run, until

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
CONFIG, _ = load({})
CALL = a_call(5)
STORAGE = Refusal.of(WireError.KAFKA_STORAGE_ERROR)


class Disk(Partition):
    """A partition with appends that fail or wait on demand."""

    __slots__ = ("fails", "held", "waits")

    def __init__(self, name: str, directory: Path) -> None:
        config = LogConfig()
        super().__init__(name, 0, open_log(directory / f"{name}-0", config), 4)
        self.appender = DiskAppender(self)
        self.fails: Refusal | None = None
        self.waits = False
        self.held: list[tuple[Later, Outcome]] = []

    def go_on(self) -> None:
        self.waits = False
        for later, outcome in self.held:
            later.resolve(outcome)
        self.held.clear()


class DiskAppender(Appender):
    __slots__ = ()

    def append_batch(self, batch: bytes, now: int) -> NowOrLater[Outcome]:
        disk = self._partition
        assert isinstance(disk, Disk)
        if disk.fails is not None:
            return disk.fails
        outcome = super().append_batch(batch, now)
        if not disk.waits or isinstance(outcome, Later):
            return outcome
        later: Later[Outcome] = Later()
        disk.held.append((later, outcome))
        return later


class Others:
    """Stands where other brokers are asked: remembers what, and has the test answer."""

    def __init__(self) -> None:
        self.markers: list[tuple[int, str, Marker, Callable[[WireError], None]]] = []
        self.asked: list[tuple[int, bool]] = []
        self.says = WireError.NONE

    def send_marker(
        self, broker_id: int, partition: TopicPartition, marker: Marker, done: Callable[[WireError], None]
    ) -> None:
        self.markers.append((broker_id, partition.topic, marker, done))

    def answer(self, error: WireError) -> None:
        markers, self.markers = self.markers, []
        for *_, told in markers:
            told(error)

    def add_or_verify(self, broker_id: int, request: AddOrVerify) -> Later[Any]:
        self.asked.append((broker_id, request.adds))
        reply: Later[Any] = Later()
        reply.resolve(dict.fromkeys(request.partitions, self.says))
        return reply


class Stores:
    """Stands where the broker finds partitions, group shards and producer ids."""

    def __init__(self, directory: Path) -> None:
        self.disks = {name: Disk(name, directory) for name in (STATE, OFFSETS, "orders", "payments")}
        self.groups_loaded = True
        self.told_groups: list[tuple[int, int, bool]] = []
        self.producer_id: int | Refusal = 4000
        self.leaders: dict[str, int] = {}  # of topics that this broker does not lead
        self.others = Others()

    @property
    def by_name(self) -> dict[bytes, list[Disk | None]]:
        return {name.encode(): [disk] for name, disk in self.disks.items()}

    def find(self, topics: dict[bytes, list[Disk | None]], token: bytes, index: int) -> Disk | None:
        return self.get(token.decode(), index)

    def get(self, topic: str, index: int) -> Disk | None:
        return self.disks.get(topic) if index == 0 else None

    def image(self) -> ClusterImage:
        topics = {
            name: Topic(name, UUID(int=1), (PartitionState(0, (1, 2), (1, 2), self.leaders.get(name, 1)),), {})
            for name in self.disks
        }
        return ClusterImage(topics=topics, features={"transaction.version": 2})

    def takes_markers(self, index: int) -> bool:
        return self.groups_loaded

    def marker_written(
        self,
        index: int,
        producer_id: int,
        commit: bool,
        outcome: NowOrLater[Outcome],
        told: Callable[[WireError], None],
    ) -> None:
        self.told_groups.append((index, producer_id, commit))
        if isinstance(outcome, Later):
            outcome.then(lambda settled: told(settled.error if isinstance(settled, Refusal) else WireError.NONE))
        else:
            told(WireError.NONE)

    async def next(self) -> int | Refusal:
        await asyncio.sleep(0)
        return self.producer_id


class Client:
    """A producer that talks to the coordinator."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        here = CONFIG.node_id
        markers = MarkerWriter(stores, stores, stores.image, lambda: NOW, here, stores.others)  # type: ignore[arg-type]
        self.coordinator = TransactionCoordinator(
            stores,  # type: ignore[arg-type]
            markers,
            stores,  # type: ignore[arg-type]
            lambda: CONFIG,
            stores.image,
            lambda: NOW,
            stores.others,
        )
        self.producer = -1, -1

    async def init(self, timeout_ms: int = 60_000) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=timeout_ms)
        answer = self.coordinator.init_producer_id(
            "tx", request, CALL, lambda error: InitProducerIdResponse(error_code=error, producer_epoch=-1)
        )
        response: InitProducerIdResponse = await awaited(answer)
        if response.error_code == WireError.NONE:
            self.producer = response.producer_id, response.producer_epoch
        return response

    def add_or_verify(self, *topics: str, adds: bool = True) -> list[WireError]:
        partitions = [TopicPartition(topic, 0) for topic in topics]
        found = self.coordinator.add_or_verify("tx", *self.producer, partitions, adds)
        assert not isinstance(found, Later)
        return list(found.values())

    def end(self, commit: bool = True) -> EndTxnResponse | Later[EndTxnResponse]:
        request = EndTxnRequest(
            transactional_id="tx", producer_id=self.producer[0], producer_epoch=self.producer[1], committed=commit
        )
        answer: EndTxnResponse | Later[EndTxnResponse] = self.coordinator.ask(
            "tx", request, CALL, lambda error: EndTxnResponse(error_code=error)
        )
        if isinstance(answer, EndTxnResponse) and answer.error_code == WireError.NONE:
            self.producer = answer.producer_id, answer.producer_epoch
        return answer

    @property
    def loading(self) -> bool:
        return self.coordinator.read("tx", lambda _: False, lambda error: error) is not False

    @property
    def transaction(self) -> Transaction:
        (found,) = [shard.machine for shard in self.coordinator._runtime.loaded_shards()]
        return found.transactions["tx"]

    def is_in(self, state: TransactionState) -> bool:
        return self.transaction.state is state

    def end_of(self, topic: str) -> int:
        return self.stores.disks[topic].log.end_offset


Story = Callable[[Client, Stores], Coroutine[Any, Any, None]]


def told(loop_kind: str, directory: Path, story: Story) -> None:
    async def main() -> None:
        stores = Stores(directory)
        client = Client(stores)
        await story(client, stores)
        await client.coordinator.stop()

    run(loop_kind, main())


@on_both_loops
def test_markers_are_there_before_the_answer(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        assert (await client.init()).producer_id == 4000
        assert client.add_or_verify("orders", OFFSETS) == [WireError.NONE, WireError.NONE]
        assert client.add_or_verify("orders", "payments", adds=False) == [
            WireError.NONE,
            WireError.TRANSACTION_ABORTABLE,
        ]
        client.end()
        assert (client.end_of("orders"), client.end_of("payments"), client.end_of(OFFSETS)) == (1, 0, 1)
        assert stores.told_groups == [(0, 4000, True)]
        assert client.is_in(TransactionState.COMPLETE_COMMIT)
        assert client.add_or_verify("orders") == [WireError.NONE]

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_another_instance_need_not_come_twice(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("orders")
        response = await client.init()
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 4000, 2)
        assert client.end_of("orders") == 1

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_marker_that_failed_is_written_again_and_the_others_are_not(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("orders", "payments")
        stores.disks["payments"].fails = STORAGE
        answer = client.end()
        assert isinstance(answer, EndTxnResponse)
        assert answer.error_code == WireError.NONE  # the decision is safe
        assert client.is_in(TransactionState.PREPARE_COMMIT)
        adding = client.coordinator.add_or_verify("tx", *client.producer, [TopicPartition("orders", 0)], True)
        assert isinstance(adding, Later), "it waits for the last one to end, but not for long"
        assert await awaited(adding) == {("orders", 0): WireError.CONCURRENT_TRANSACTIONS}
        assert (await client.init()).error_code == WireError.CONCURRENT_TRANSACTIONS
        stores.disks["payments"].fails = None
        await until(lambda: client.is_in(TransactionState.COMPLETE_COMMIT))
        assert (client.end_of("orders"), client.end_of("payments")) == (1, 1)

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_partitions_that_are_gone_need_no_marker(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("orders", "payments")
        del stores.disks["payments"]
        client.end(commit=False)
        assert client.is_in(TransactionState.COMPLETE_ABORT)

    told(loop_kind, tmp_path, story)


@on_both_loops
@pytest.mark.parametrize("error", [WireError.INVALID_PRODUCER_EPOCH, WireError.TRANSACTION_COORDINATOR_FENCED])
def test_a_marker_that_can_never_be_written_does_not_hold_the_producer_up(
    loop_kind: str, tmp_path: Path, error: WireError, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("orders")
        stores.disks["orders"].fails = Refusal.of(error)
        client.end()
        assert client.is_in(TransactionState.COMPLETE_COMMIT)
        assert f"tx for orders-0 failed: {error.name}" in caplog.text

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_groups_that_still_load_are_waited_for(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify(OFFSETS)
        stores.groups_loaded = False
        client.end()
        assert client.is_in(TransactionState.PREPARE_COMMIT)
        assert client.end_of(OFFSETS) == 0
        stores.groups_loaded = True
        await until(lambda: client.is_in(TransactionState.COMPLETE_COMMIT))
        assert stores.told_groups == [(0, 4000, True)]

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_where_a_disk_is_waited_for_the_answer_is_not_late(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("orders", "payments")
        stores.disks["orders"].waits = True
        assert isinstance(client.end(), EndTxnResponse)
        assert client.is_in(TransactionState.PREPARE_COMMIT)
        stores.disks["orders"].go_on()
        assert client.is_in(TransactionState.COMPLETE_COMMIT)
        assert client.end_of("orders") == 1

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_no_marker_before_the_decision_is_safe(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("orders")
        stores.disks[STATE].waits = True
        promise = client.end()
        assert isinstance(promise, Later)
        assert client.end_of("orders") == 0
        stores.disks[STATE].go_on()
        assert (await awaited(promise)).error_code == WireError.NONE
        assert client.end_of("orders") == 1

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_records_are_let_in_when_the_transaction_is_safe(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        stores.disks[STATE].waits = True
        adding = client.coordinator.add_or_verify("tx", *client.producer, [TopicPartition("orders", 0)], True)
        looking = client.coordinator.add_or_verify("tx", *client.producer, [TopicPartition("orders", 0)], False)
        assert isinstance(adding, Later)
        assert isinstance(looking, Later), "what is not committed is not told"
        assert not adding.done
        assert not looking.done
        stores.disks[STATE].go_on()
        assert await awaited(adding) == await awaited(looking) == {("orders", 0): WireError.NONE}
        assert client.add_or_verify("orders") == [WireError.NONE]

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_the_next_transaction_begins_as_soon_as_the_last_has_ended(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("orders", "payments")
        stores.leaders["payments"] = 2
        client.end()
        adding = client.coordinator.add_or_verify("tx", *client.producer, [TopicPartition("orders", 0)], True)
        at_once = client.coordinator.add("tx", *client.producer, [TopicPartition("orders", 0)], 2, retry=False)
        assert at_once is WireError.CONCURRENT_TRANSACTIONS, "brokers are not kept waiting"
        assert isinstance(adding, Later)
        assert not adding.done
        stores.others.answer(WireError.NONE)
        assert adding.result == {("orders", 0): WireError.NONE}
        assert client.is_in(TransactionState.ONGOING)

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_coordinator_elsewhere_that_is_busy_is_asked_again(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        stores.leaders[STATE] = 2
        stores.others.says = WireError.CONCURRENT_TRANSACTIONS
        answer = client.coordinator.add_or_verify("tx", 4000, 0, [TopicPartition("orders", 0)], True)
        assert isinstance(answer, Later)
        await until(lambda: len(stores.others.asked) == 2)
        stores.others.says = WireError.NONE
        assert await awaited(answer) == {("orders", 0): WireError.NONE}
        stores.others.says = WireError.CONCURRENT_TRANSACTIONS
        answer = client.coordinator.add_or_verify("tx", 4000, 0, [TopicPartition("orders", 0)], True)
        assert isinstance(answer, Later)
        assert await awaited(answer) == {("orders", 0): WireError.CONCURRENT_TRANSACTIONS}, "the rest is the producer's"

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_markers_go_to_the_leaders_of_their_partitions(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("orders", "payments")
        stores.leaders["payments"] = 2
        client.end()
        assert client.end_of("orders") == 1
        ((broker, topic, marker, _),) = stores.others.markers
        assert (broker, topic) == (2, "payments")
        assert marker == Marker(4000, 1, True, coordinator_epoch=4, transaction_version=2)
        assert client.is_in(TransactionState.PREPARE_COMMIT)
        stores.others.answer(WireError.NONE)
        assert client.is_in(TransactionState.COMPLETE_COMMIT)

    told(loop_kind, tmp_path, story)


@on_both_loops
@pytest.mark.parametrize("error", [WireError.NETWORK_EXCEPTION, WireError.NOT_LEADER_OR_FOLLOWER])
def test_a_marker_follows_its_partition_to_the_next_leader(loop_kind: str, tmp_path: Path, error: WireError) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("orders", "payments")
        stores.leaders["payments"] = 2
        client.end()
        stores.others.answer(error)
        stores.leaders["payments"] = -1  # without a leader for a while
        await asyncio.sleep(0.15)
        assert not stores.others.markers
        stores.leaders["payments"] = 3
        await until(lambda: bool(stores.others.markers))
        assert [broker for broker, *_ in stores.others.markers] == [3]
        stores.leaders["payments"] = 1
        stores.others.answer(error)
        await until(lambda: client.is_in(TransactionState.COMPLETE_COMMIT))
        assert (client.end_of("orders"), client.end_of("payments")) == (1, 1)

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_topic_that_is_deleted_is_not_waited_for(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("payments")
        stores.leaders["payments"] = 2
        client.end()
        del stores.disks["payments"]
        stores.others.answer(WireError.NOT_LEADER_OR_FOLLOWER)
        await until(lambda: client.is_in(TransactionState.COMPLETE_COMMIT))

    told(loop_kind, tmp_path, story)


@on_both_loops
@pytest.mark.parametrize("adds", [True, False])
def test_the_coordinator_may_be_another_broker(loop_kind: str, tmp_path: Path, adds: bool) -> None:
    async def story(client: Client, stores: Stores) -> None:
        stores.leaders[STATE] = 2
        answer = client.coordinator.add_or_verify("tx", 4000, 0, [TopicPartition("orders", 0)], adds)
        assert isinstance(answer, Later)
        assert await awaited(answer) == {("orders", 0): WireError.NONE}
        assert stores.others.asked == [(2, adds)]
        stores.leaders[STATE] = -1
        assert client.add_or_verify("orders", adds=adds) == [WireError.COORDINATOR_NOT_AVAILABLE]

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_the_next_leader_completes_prepared_transactions(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("payments")
        stores.leaders["payments"] = 2
        client.end()
        assert len(stores.others.markers) == 1
        stores.disks[STATE].leader_epoch = 5  # it was another's for a while
        assert client.loading
        await until(lambda: len(stores.others.markers) == 2)
        assert [marker.coordinator_epoch for _, _, marker, _ in stores.others.markers] == [4, 5]
        stores.others.answer(WireError.NONE)
        assert client.is_in(TransactionState.COMPLETE_COMMIT)
        assert not client.coordinator._ending

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_what_cannot_be_written_is_refused_and_has_not_happened(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        stores.disks[STATE].fails = STORAGE
        assert (await client.init()).error_code == WireError.NOT_COORDINATOR
        stores.disks[STATE].fails = None
        await client.init()
        client.add_or_verify("orders")
        stores.disks[STATE].fails = STORAGE
        answer = client.end()
        assert isinstance(answer, EndTxnResponse)
        assert answer.error_code == WireError.NOT_COORDINATOR
        assert client.is_in(TransactionState.ONGOING)
        assert client.end_of("orders") == 0

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_the_last_record_of_a_transaction_is_tried_again(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("orders")
        stores.disks["orders"].waits = True
        client.end()
        stores.disks[STATE].fails = STORAGE
        stores.disks["orders"].go_on()
        assert client.is_in(TransactionState.PREPARE_COMMIT)
        stores.disks[STATE].fails = None
        await until(lambda: client.is_in(TransactionState.COMPLETE_COMMIT))
        assert client.end_of("orders") == 1  # the marker was there, and is not written twice

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_without_producer_ids_init_fails(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        stores.producer_id = Refusal.of(WireError.COORDINATOR_LOAD_IN_PROGRESS)
        assert (await client.init()).error_code == WireError.COORDINATOR_LOAD_IN_PROGRESS

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_time_runs_out(loop_kind: str, tmp_path: Path) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init(timeout_ms=5)
        client.add_or_verify("orders")
        await until(lambda: client.is_in(TransactionState.COMPLETE_ABORT))
        assert client.end_of("orders") == 1
        assert client.add_or_verify("orders") == [WireError.PRODUCER_FENCED]

    told(loop_kind, tmp_path, story)


@on_both_loops
@pytest.mark.parametrize("commit", [True, False])
def test_a_start_completes_what_was_decided(loop_kind: str, tmp_path: Path, commit: bool) -> None:
    async def story(client: Client, stores: Stores) -> None:
        await client.init()
        client.add_or_verify("orders")
        stores.disks["orders"].fails = STORAGE
        client.end(commit)
        stores.disks["orders"].fails = None
        await client.coordinator.stop()  # no timer of the first run fires any more
        again = Client(stores)
        again.coordinator.start()
        assert again.loading
        await until(lambda: not again.loading)
        done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        await until(lambda: again.is_in(done))
        assert again.end_of("orders") == 1
        await again.coordinator.stop()

    told(loop_kind, tmp_path, story)


def test_an_outcome_is_an_outcome(tmp_path: Path) -> None:
    """The disks of these tests write as others do."""
    assert isinstance(Disk("orders", tmp_path).appender.write_marker(1, 0, True, 0, 2, NOW), Appended)
