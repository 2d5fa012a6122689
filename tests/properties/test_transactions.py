"""Transactions under any sequence of requests, repetitions, restarts and time: what no sequence may bring about."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moldau.transactions.environment import TransactionConfig
from moldau.transactions.state import IDLE, MAX_EPOCH, ONGOING, PREPARED, record_of
from support.transactions.machine import TransactionMachine

NAMES = ("a", "b")
PARTITIONS = (("t", 0), ("t", 1), ("u", 0))


@dataclass
class Instance:
    """A running producer, with its own idea of its id and epoch."""

    name: str
    producer: tuple[int, int]
    version: int  # of EndTxn: below 5 by the older protocol
    replaced: bool = False  # another instance has started with its transactional id
    ended: list[tuple[int, tuple[int, int], bool]] = field(
        default_factory=list
    )  # number of the transaction, producer id and epoch, commit


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = TransactionMachine(TransactionConfig(id_expiration_ms=10_000_000), hold_markers=True)
        self.instances: list[Instance] = []
        self.serials: dict[str, int] = {}  # how many transactions each id has begun

    def _open(self, name: str) -> bool:
        found = self.machine.shard.transactions.get(name)
        return found is not None and found.state is ONGOING

    @rule(name=st.sampled_from(NAMES), new_protocol=st.booleans(), timeout_ms=st.sampled_from([10, 1000]))
    def another_instance_starts(self, name: str, new_protocol: bool, timeout_ms: int) -> None:
        response = self.machine.init(name, timeout_ms=timeout_ms)
        if response.error_code == 0:
            for each in self.instances:
                each.replaced = each.replaced or each.name == name
            producer = response.producer_id, response.producer_epoch
            self.instances.append(Instance(name, producer, 5 if new_protocol else 4))

    @precondition(lambda self: self.instances)
    @rule(data=st.data())
    def one_goes_on_after_an_error(self, data: st.DataObject) -> None:
        instance = self._one(data)
        response = self.machine.init(instance.name, instance.producer)
        if response.error_code == 0:
            assert not instance.replaced
            instance.producer = response.producer_id, response.producer_epoch

    @precondition(lambda self: self.instances)
    @rule(data=st.data(), partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def one_adds(self, data: st.DataObject, partitions: set[tuple[str, int]]) -> None:
        self._add(self._one(data), partitions)

    def _add(self, instance: Instance, partitions: set[tuple[str, int]]) -> None:
        begins = not self._open(instance.name)
        client_version = 2 if instance.version >= 5 else 0
        error = self.machine.add(instance.name, instance.producer, *partitions, client_version=client_version)
        if error == 0:
            assert not instance.replaced
            self.serials[instance.name] = self.serials.get(instance.name, 0) + begins

    @precondition(lambda self: self.instances)
    @rule(data=st.data(), commit=st.booleans())
    def one_ends(self, data: st.DataObject, commit: bool) -> None:
        self._end(self._one(data), commit)

    def _end(self, instance: Instance, commit: bool) -> None:
        before = self.machine[instance.name]
        response = self.machine.end(instance.name, instance.producer, commit, instance.version)
        if response.error_code != 0:
            assert self.machine[instance.name] == before
            return
        assert not instance.replaced
        instance.ended.append((self.serials.get(instance.name, 0), instance.producer, commit))
        if instance.version >= 5:
            instance.producer = response.producer_id, response.producer_epoch

    @precondition(lambda self: self.instances)
    @rule(data=st.data(), commit=st.booleans(), and_begins=st.booleans())
    def one_has_a_transaction(self, data: st.DataObject, commit: bool, and_begins: bool) -> None:
        """What usually happens, in one step: so that what follows meets more than beginnings."""
        instance = self._one(data)
        self.machine.write_markers()
        self._add(instance, {PARTITIONS[0]})
        self._end(instance, commit)
        self.machine.write_markers()
        if and_begins:
            self._add(instance, {PARTITIONS[1]})

    @precondition(lambda self: any(each.ended for each in self.instances))
    @rule(data=st.data())
    def an_end_comes_again_late(self, data: st.DataObject) -> None:
        """KIP-890: only what it was sent for, and nothing that began since."""
        instance = data.draw(st.sampled_from([each for each in self.instances if each.ended]))
        serial, producer, commit = data.draw(st.sampled_from(instance.ended[-3:]))
        before = self.machine[instance.name]
        self.machine.end(instance.name, producer, commit, instance.version)
        later = serial < self.serials.get(instance.name, 0)
        if (later and instance.version >= 5) or instance.replaced:
            assert self.machine[instance.name] == before

    @rule()
    def markers_are_written(self) -> None:
        self.machine.write_markers()

    @rule(ms=st.sampled_from([1, 10, 1000]))
    def time_passes(self, ms: int) -> None:
        self.machine.wait(ms)

    @rule()
    def the_process_dies(self) -> None:
        self.machine.restart()

    @precondition(lambda self: any(self._rests(name) for name in NAMES))
    @rule(data=st.data())
    def epochs_run_low(self, data: st.DataObject) -> None:
        """As if its producers had begun thousands of transactions; those that run know of it."""
        name = data.draw(st.sampled_from([name for name in NAMES if self._rests(name)]))
        found = self.machine[name]
        if found.producer_epoch < MAX_EPOCH - 3:
            record = record_of(found._replace(producer_epoch=MAX_EPOCH - 3))
            self.machine.log.append(self.machine.shard.encode(record))
            self.machine.shard.apply(record)
            for each in self.instances:
                if each.name == name and each.producer == (found.producer_id, found.producer_epoch):
                    each.producer = found.producer_id, MAX_EPOCH - 3

    def _rests(self, name: str) -> bool:
        found = self.machine.shard.transactions.get(name)
        return found is not None and found.state in IDLE

    def _one(self, data: st.DataObject) -> Instance:
        """Mostly one of those that still work."""
        working = [each for each in self.instances if not each.replaced]
        return data.draw(st.sampled_from(working * 3 + self.instances))

    @invariant()
    def the_log_says_the_same(self) -> None:
        assert self.machine.replayed().transactions == self.machine.durable()

    @invariant()
    def markers_never_contradict_each_other(self) -> None:
        outcomes: dict[tuple[int, int], bool] = {}
        for marker in (*self.machine.written, *self.machine.markers):
            if marker.transaction_version >= 2:
                commit = outcomes.setdefault((marker.producer_id, marker.producer_epoch), marker.commit)
                assert commit is marker.commit

    @invariant()
    def what_was_decided_is_under_way(self) -> None:
        waiting = {marker.transactional_id for marker in self.machine.markers}
        prepared = {name for name, each in self.machine.shard.transactions.items() if each.state in PREPARED}
        assert prepared == waiting

    @invariant()
    def what_is_open_has_a_clock(self) -> None:
        clocks = {key[1] for key in self.machine.timers}
        assert clocks == {name for name in NAMES if self._open(name)}


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
