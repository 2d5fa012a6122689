"""EndTxn under both protocols: what ends, what is a repetition, and what the markers carry."""

import pytest

from moldau.base.coordination import TimerFired
from moldau.base.errors import WireError
from moldau.transactions.commands import WriteMarkers, markers_key
from moldau.transactions.end_txn import GRACE_MS
from moldau.transactions.environment import TransactionConfig, TransactionEnvironment
from moldau.transactions.state import MAX_EPOCH, TransactionState
from support.transactions.machine import FIRST_PRODUCER_ID, INTERNAL_CALLER, TransactionMachine

OLD, NEW = 4, 5  # versions of EndTxn: the second raises the epoch with every transaction (KIP-890)
P = FIRST_PRODUCER_ID


@pytest.fixture
def machine() -> TransactionMachine:
    return TransactionMachine()


def open_transaction(machine: TransactionMachine, name: str = "tx") -> tuple[int, int]:
    producer = machine.begin(name)
    assert machine.add(name, producer, ("t", 0), ("t", 1)) is WireError.NONE
    return producer


@pytest.mark.parametrize("commit", [True, False])
def test_the_old_protocol_keeps_the_epoch(machine: TransactionMachine, commit: bool) -> None:
    producer = open_transaction(machine)
    response = machine.end("tx", producer, commit, OLD)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, -1, -1)
    assert machine.written == [WriteMarkers("tx", P, 0, commit, frozenset({("t", 0), ("t", 1)}), 0)]
    assert machine["tx"].state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert machine.end("tx", producer, commit, OLD).error_code == WireError.NONE
    assert machine.end("tx", producer, not commit, OLD).error_code == WireError.INVALID_TXN_STATE
    assert len(machine.written) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_the_new_protocol_raises_the_epoch(machine: TransactionMachine, commit: bool) -> None:
    producer = open_transaction(machine)
    for _ in range(2):  # the second is a repetition, and is told the same
        response = machine.end("tx", producer, commit, NEW)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, P, 1)
    assert machine.written == [WriteMarkers("tx", P, 1, commit, frozenset({("t", 0), ("t", 1)}), 2)]
    assert machine.end("tx", producer, not commit, NEW).error_code == WireError.INVALID_TXN_STATE


def test_a_late_repetition_does_not_end_the_next_transaction(machine: TransactionMachine) -> None:
    producer = open_transaction(machine)
    machine.end("tx", producer, True, NEW)
    assert machine.add("tx", (P, 1)) is WireError.NONE
    for commit in (True, False):
        assert machine.end("tx", producer, commit, NEW).error_code == WireError.PRODUCER_FENCED
    assert machine["tx"].state is TransactionState.ONGOING


def test_an_empty_transaction_may_be_aborted_but_not_committed(machine: TransactionMachine) -> None:
    """KIP-890: nothing is known here of records that are under way, so an abort closes the door to them."""
    producer = machine.begin("tx")
    assert machine.end("tx", producer, True, NEW).error_code == WireError.INVALID_TXN_STATE
    assert machine.end("tx", producer, True, OLD).error_code == WireError.INVALID_TXN_STATE
    assert machine.end("tx", producer, False, OLD).error_code == WireError.INVALID_TXN_STATE
    response = machine.end("tx", producer, False, NEW)
    assert (response.error_code, response.producer_epoch) == (0, 1)
    assert machine.written == [WriteMarkers("tx", P, 1, False, frozenset(), 2)]
    machine.now += GRACE_MS
    assert machine.end("tx", (P, 1), True, NEW).error_code == WireError.INVALID_TXN_STATE
    assert machine.end("tx", (P, 1), False, NEW).producer_epoch == 2
    machine.add("tx", (P, 2))
    machine.end("tx", (P, 2), True, NEW)
    machine.now += GRACE_MS
    assert machine.end("tx", (P, 3), True, NEW).error_code == WireError.INVALID_TXN_STATE
    assert machine.end("tx", (P, 3), False, NEW).producer_epoch == 4


@pytest.mark.parametrize("version", [OLD, NEW])
def test_strangers_are_refused(machine: TransactionMachine, version: int) -> None:
    producer = open_transaction(machine)
    errors = {
        ("tx", (P + 9, 0)): WireError.INVALID_PRODUCER_ID_MAPPING,
        ("tx", (P, 3)): WireError.PRODUCER_FENCED,
        ("nobody", producer): WireError.INVALID_PRODUCER_ID_MAPPING,
        ("", producer): WireError.INVALID_REQUEST,
    }
    for (name, claimed), error in errors.items():
        response = machine.end(name, claimed, True, version)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (error, -1, -1)
    assert machine.end("tx", (P, 3), True, 1).error_code == WireError.INVALID_PRODUCER_EPOCH
    assert machine["tx"].state is TransactionState.ONGOING


@pytest.mark.parametrize("commit", [True, False])
def test_a_commit_that_overtakes_its_records_is_to_come_again(machine: TransactionMachine, commit: bool) -> None:
    """CONCURRENT_TRANSACTIONS, as if its markers were still being written; for a while only."""
    machine.end("tx", open_transaction(machine), commit, NEW)
    machine.now += GRACE_MS - 1
    assert machine.end("tx", (P, 1), True, NEW).error_code == WireError.CONCURRENT_TRANSACTIONS
    machine.now -= 3_600_000  # another coordinator with its clock behind
    assert machine.end("tx", (P, 1), True, NEW).error_code == WireError.INVALID_TXN_STATE
    assert machine.add("tx", (P, 1)) is WireError.NONE
    assert machine.end("tx", (P, 1), True, NEW).producer_epoch == 2


@pytest.mark.parametrize("version", [OLD, NEW])
def test_while_markers_are_written(version: int) -> None:
    machine = TransactionMachine(hold_markers=True)
    producer = open_transaction(machine)
    assert machine.end("tx", producer, True, version).error_code == WireError.NONE
    assert machine["tx"].state is TransactionState.PREPARE_COMMIT
    assert machine.end("tx", producer, True, version).error_code == WireError.CONCURRENT_TRANSACTIONS
    assert machine.end("tx", producer, False, version).error_code == WireError.INVALID_TXN_STATE
    current = (machine["tx"].producer_id, machine["tx"].producer_epoch)
    assert machine.add("tx", current) is WireError.CONCURRENT_TRANSACTIONS
    assert machine.shard.verify("tx", *current, [("t", 0)]) == {("t", 0): WireError.CONCURRENT_TRANSACTIONS}


def test_markers_that_failed_are_asked_for_again() -> None:
    machine = TransactionMachine(hold_markers=True)
    machine.end("tx", open_transaction(machine), True)
    again = machine.shard.decide(
        TimerFired(markers_key("tx")), INTERNAL_CALLER, TransactionEnvironment(machine.now, machine.config)
    )
    assert again.work == machine.markers
    machine.write_markers()
    again = machine.shard.decide(
        TimerFired(markers_key("tx")), INTERNAL_CALLER, TransactionEnvironment(machine.now, machine.config)
    )
    assert not again.work


def test_the_last_epoch_hands_over_to_another_producer_id(machine: TransactionMachine) -> None:
    producer = open_transaction(machine)
    while producer[1] < MAX_EPOCH - 1:
        response = machine.end("tx", producer, True, NEW)
        producer = response.producer_id, response.producer_epoch
        machine.add("tx", producer)
    assert producer == (P, MAX_EPOCH - 1)
    for _ in range(2):  # the second is a repetition
        response = machine.end("tx", producer, True, NEW)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, P + 1, 0)
    assert machine.written[-1].producer_id == P
    assert machine.written[-1].producer_epoch == MAX_EPOCH
    assert machine.add("tx", (P + 1, 0)) is WireError.NONE
    assert machine.end("tx", producer, True, NEW).error_code in (
        WireError.INVALID_PRODUCER_ID_MAPPING,
        WireError.PRODUCER_FENCED,
    )


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_transaction_that_takes_too_long_is_aborted(transaction_version: int) -> None:
    machine = TransactionMachine(TransactionConfig(transaction_version=transaction_version))
    producer = open_transaction(machine)
    machine.wait(30_000)
    machine.add("tx", producer, ("t", 2))  # does not give it more time
    machine.wait(29_999)
    assert machine["tx"].state is TransactionState.ONGOING
    machine.wait(1)
    assert machine["tx"].state is TransactionState.COMPLETE_ABORT
    assert [(marker.commit, marker.producer_epoch) for marker in machine.written] == [(False, 1)]
    assert not machine.timers
    assert machine.add("tx", producer) is WireError.PRODUCER_FENCED
    version = NEW if transaction_version == 2 else OLD
    assert machine.end("tx", producer, True, version).error_code in (
        WireError.PRODUCER_FENCED,
        WireError.INVALID_TXN_STATE,
    )
    assert machine.begin("tx", producer=(P, 1)) == (P, 2)


def test_a_client_that_learns_late_of_its_time_out_goes_on(machine: TransactionMachine) -> None:
    """It aborts with its old epoch, and is told the new one."""
    producer = open_transaction(machine)
    machine.wait(60_000)
    response = machine.end("tx", producer, False, NEW)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, P, 1)
    assert machine.add("tx", (P, 1)) is WireError.NONE


def test_ended_transactions_have_no_timers(machine: TransactionMachine) -> None:
    machine.end("tx", open_transaction(machine), True)
    assert not machine.timers
