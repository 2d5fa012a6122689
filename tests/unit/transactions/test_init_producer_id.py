"""InitProducerId with a transactional id: producer ids, epochs and refusals."""

import pytest

from moldau.base.errors import WireError
from moldau.transactions.environment import TransactionConfig
from moldau.transactions.state import MAX_EPOCH, TransactionState
from support.transactions.machine import FIRST_PRODUCER_ID, TransactionMachine

FIRST = (FIRST_PRODUCER_ID, 0)


def test_a_new_id_then_the_next_epoch() -> None:
    machine = TransactionMachine()
    assert machine.begin("tx") == FIRST
    assert machine.begin("tx") == (FIRST_PRODUCER_ID, 1)
    assert machine.begin("other") == (FIRST_PRODUCER_ID + 1, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_have_limits(timeout_ms: int) -> None:
    machine = TransactionMachine()
    assert machine.init("tx", timeout_ms=timeout_ms).error_code == WireError.INVALID_TRANSACTION_TIMEOUT
    assert not machine.log


def test_half_a_producer_is_no_request() -> None:
    machine = TransactionMachine()
    assert machine.init("tx", (5, -1)).error_code == WireError.INVALID_REQUEST
    assert machine.init("tx", (-1, 5)).error_code == WireError.INVALID_REQUEST
    assert machine.init("").error_code == WireError.INVALID_REQUEST


def test_a_producer_goes_on_after_an_error_and_may_repeat_itself() -> None:
    """KIP-360."""
    machine = TransactionMachine()
    machine.begin("tx")
    assert machine.begin("tx", producer=FIRST) == (FIRST_PRODUCER_ID, 1)
    assert machine.begin("tx", producer=FIRST) == (FIRST_PRODUCER_ID, 1)  # the first answer was lost
    assert machine.begin("tx", producer=(FIRST_PRODUCER_ID, 1)) == (FIRST_PRODUCER_ID, 2)


@pytest.mark.parametrize(("version", "error"), [(3, WireError.INVALID_PRODUCER_EPOCH), (4, WireError.PRODUCER_FENCED)])
def test_a_zombie_is_fenced(version: int, error: WireError) -> None:
    machine = TransactionMachine()
    machine.begin("tx")
    machine.begin("tx")  # another instance
    assert machine.init("tx", FIRST, version=version).error_code == error
    assert machine.init("tx", (FIRST_PRODUCER_ID + 5, 1), version=version).error_code == error


def test_a_zombie_cannot_abort_its_successors_transaction() -> None:
    machine = TransactionMachine()
    machine.begin("tx")
    successor = machine.begin("tx")
    machine.add("tx", successor)
    assert machine.init("tx", FIRST).error_code == WireError.PRODUCER_FENCED
    assert machine["tx"].state is TransactionState.ONGOING
    assert machine.end("tx", successor, commit=True).error_code == WireError.NONE


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_an_open_transaction_is_aborted_first(transaction_version: int) -> None:
    machine = TransactionMachine(TransactionConfig(transaction_version=transaction_version))
    older = machine.begin("tx")
    machine.add("tx", older)
    assert machine.init("tx").error_code == WireError.CONCURRENT_TRANSACTIONS
    assert [(marker.commit, marker.producer_epoch) for marker in machine.written] == [(False, 1)]
    assert machine["tx"].state is TransactionState.COMPLETE_ABORT
    assert machine.begin("tx") == (FIRST_PRODUCER_ID, 2)
    assert machine.add("tx", older) == WireError.PRODUCER_FENCED
    assert machine.end("tx", older, commit=True).error_code == WireError.PRODUCER_FENCED
    assert machine.end("tx", older, commit=True, version=1).error_code == WireError.INVALID_PRODUCER_EPOCH


def test_while_markers_are_written_one_has_to_wait() -> None:
    machine = TransactionMachine(hold_markers=True)
    machine.add("tx", machine.begin("tx"))
    assert machine.init("tx").error_code == WireError.CONCURRENT_TRANSACTIONS
    assert machine.init("tx").error_code == WireError.CONCURRENT_TRANSACTIONS
    assert len(machine.markers) == 1
    machine.write_markers()
    assert machine.begin("tx") == (FIRST_PRODUCER_ID, 2)


def test_when_the_epochs_run_out_there_is_another_producer_id() -> None:
    machine = TransactionMachine()
    producer = machine.begin("tx")
    while producer[1] < MAX_EPOCH - 1:
        producer = machine.begin("tx")
    assert producer[0] == FIRST_PRODUCER_ID
    assert machine.init("tx", (FIRST_PRODUCER_ID, 5)).error_code == WireError.PRODUCER_FENCED
    assert machine.begin("tx", producer=producer) == (FIRST_PRODUCER_ID + 1, 0)
    assert machine.begin("tx", producer=producer) == (FIRST_PRODUCER_ID + 1, 0)  # the first answer was lost
    assert machine.begin("tx") == (FIRST_PRODUCER_ID + 1, 1)
