"""A shard of transactional ids: adding and verifying partitions, loading, expiry, lists."""

import pytest

from moldau.base.errors import WireError
from moldau.transactions.environment import TransactionEnvironment
from moldau.transactions.shard import MAX_TOMBSTONES
from moldau.transactions.state import TRANSITIONS, TransactionState
from support.transactions.machine import FIRST_PRODUCER_ID, TransactionMachine

P = FIRST_PRODUCER_ID


def test_adding_the_same_again_writes_nothing() -> None:
    machine = TransactionMachine()
    producer = machine.begin("tx")
    machine.add("tx", producer, ("a", 0), ("b", 1))
    written = len(machine.log)
    assert machine.add("tx", producer, ("b", 1)) is WireError.NONE
    assert len(machine.log) == written
    machine.add("tx", producer, ("a", 2))
    assert machine["tx"].partitions == {("a", 0), ("a", 2), ("b", 1)}


def test_strangers_add_nothing() -> None:
    machine = TransactionMachine()
    producer = machine.begin("tx")
    assert machine.add("", producer) is WireError.INVALID_REQUEST
    assert machine.add("nobody", producer) is WireError.INVALID_PRODUCER_ID_MAPPING
    assert machine.add("tx", (P + 1, 0)) is WireError.INVALID_PRODUCER_ID_MAPPING
    assert machine.add("tx", (P, 1)) is WireError.PRODUCER_FENCED
    assert machine["tx"].state is TransactionState.EMPTY


def test_records_of_an_ended_transaction_are_not_verified() -> None:
    machine = TransactionMachine()
    producer = machine.begin("tx")
    machine.add("tx", producer, ("a", 0))
    verify = machine.shard.verify
    assert verify("tx", *producer, [("a", 0), ("a", 1)]) == {
        ("a", 0): WireError.NONE,
        ("a", 1): WireError.TRANSACTION_ABORTABLE,
    }
    machine.end("tx", producer, True, version=4)
    assert verify("tx", *producer, [("a", 0)]) == {("a", 0): WireError.TRANSACTION_ABORTABLE}
    assert verify("tx", P, 7, [("a", 0)]) == {("a", 0): WireError.PRODUCER_FENCED}
    assert verify("nobody", *producer, [("a", 0)]) == {("a", 0): WireError.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize("commit", [True, False])
def test_a_restart_between_decision_and_markers_completes(commit: bool) -> None:
    machine = TransactionMachine(hold_markers=True)
    producer = machine.begin("tx")
    machine.add("tx", producer, ("a", 0))
    machine.end("tx", producer, commit)
    machine.restart()
    assert [(m.producer_epoch, m.commit, m.partitions) for m in machine.markers] == [(1, commit, {("a", 0)})]
    machine.write_markers()
    assert machine["tx"].state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)


def test_a_restart_does_not_stop_the_clock() -> None:
    machine = TransactionMachine()
    producer = machine.begin("tx")
    machine.add("tx", producer)
    machine.wait(50_000)
    machine.restart()
    machine.wait(10_000)
    assert machine["tx"].state is TransactionState.COMPLETE_ABORT


def test_unused_ids_expire_and_open_ones_do_not() -> None:
    machine = TransactionMachine()
    week = machine.config.id_expiration_ms
    machine.begin("unused")
    machine.end("ended", machine.begin("ended"), False)
    machine.now += 1
    machine.begin("younger")
    machine.now -= 1
    machine.add("open", machine.begin("open", timeout_ms=900_000))
    machine.now += week
    machine.execute(machine.shard.expire(TransactionEnvironment(machine.now, machine.config)))
    assert set(machine.shard.transactions) == {"open", "younger"}
    assert machine.replayed().transactions == machine.durable()
    assert machine.begin("unused") == (P + 4, 0)


def test_many_ids_expire_in_turns() -> None:
    machine = TransactionMachine()
    for number in range(MAX_TOMBSTONES + 1):
        machine.begin(f"tx{number}")
    env = TransactionEnvironment(machine.now + machine.config.id_expiration_ms, machine.config)
    rounds = []
    while (decision := machine.shard.expire(env)).records:
        rounds.append(len(decision.records))
        machine.execute(decision)
    assert rounds == [MAX_TOMBSTONES, 1]


def test_lists_are_filtered() -> None:
    machine = TransactionMachine()
    machine.begin("empty")
    machine.add("open", machine.begin("open"))
    now = machine.now + 1000

    def names(states=None, producer_ids=(), longer_than_ms=-1, matches=lambda name: True):  # type: ignore[no-untyped-def]
        found = machine.shard.listed(states, producer_ids, longer_than_ms, matches, now)
        return [transaction.transactional_id for transaction in found]

    assert names() == ["empty", "open"]
    assert names({TransactionState.ONGOING}) == ["open"]
    assert names(set()) == []
    assert names(producer_ids={P}) == ["empty"]
    assert names({TransactionState.ONGOING}, longer_than_ms=999) == ["open"]
    assert names({TransactionState.ONGOING}, longer_than_ms=1000) == []
    assert names(matches=lambda name: name.startswith("o")) == ["open"]


def test_every_state_has_its_transitions() -> None:
    assert set(TRANSITIONS) == set(TransactionState)
