"""The end of a transaction: EndTxn, an abort by the coordinator, and what follows when the markers are written.

The decision is one record (Prepare…), durable before anybody hears of it. Markers go to the partitions after it, and a
second record (Complete…) closes the transaction. From transaction version 2 on (KIP-890) the first record also raises
the producer's epoch, and the markers carry the raised one (KIP-1228): whatever is still under way with the old epoch
can neither add to the ended transaction nor end the next one.
"""

from collections.abc import Iterable
from typing import Any

from moldau.base.coordination import Caller, Decision, Timer
from moldau.base.errors import WireError
from moldau.transactions.commands import MarkersWritten, ProducerIdWanted, WriteMarkers, timeout_key
from moldau.transactions.env import Env
from moldau.transactions.state import (
    BUMPING,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    MAX_EPOCH,
    NO_PRODUCER,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    RESTING,
    LastEpoch,
    Transaction,
    TransactionState,
    record_of,
)
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2  # the version that first knew PRODUCER_FENCED
BUMPING_SINCE = 5  # the version by which a client says that it speaks transaction version 2

# Java's producer looks whether it has records to send, and then whether it is to commit. A commit that is asked for in
# between overtakes its records, and INVALID_TXN_STATE would be fatal to the producer. In Apache Kafka it meets a
# transaction whose markers are still being written, and tries again. Ours are written sooner: so that it tries again
# here too, a transaction counts as being ended for a while after it was.
GRACE_MS = 1_000

COMPLETE = (COMPLETE_COMMIT, COMPLETE_ABORT)
ENDED = {True: (PREPARE_COMMIT, COMPLETE_COMMIT), False: (PREPARE_ABORT, COMPLETE_ABORT)}


def end(transaction: Transaction | None, request: EndTxnRequest, caller: Caller, env: Env) -> Decision:
    if not request.transactional_id:
        return _refuse(caller, WireError.INVALID_REQUEST)
    if transaction is None:
        return _refuse(caller, WireError.INVALID_PRODUCER_ID_MAPPING)
    if caller.version >= BUMPING_SINCE:
        return _end_and_bump(transaction, request, caller, env)
    return _end(transaction, request, caller, env)


def _end(transaction: Transaction, request: EndTxnRequest, caller: Caller, env: Env) -> Decision:
    """Transaction versions 0 and 1: the epoch stays, so a late repetition cannot be told from a new request."""
    if request.producer_id != transaction.producer_id:
        return _refuse(caller, WireError.INVALID_PRODUCER_ID_MAPPING)
    if request.producer_epoch != transaction.producer_epoch:
        return _refuse(caller, WireError.PRODUCER_FENCED)
    if transaction.state is ONGOING:
        prepared = transaction.to(_prepare(request.committed), env.now, client_version=0, next_producer_id=NO_PRODUCER)
        return _prepared(prepared, transaction.last_producer_epoch, [(caller.token, EndTxnResponse())])
    return Decision.reply(caller, EndTxnResponse(error_code=_repeated(transaction, request.committed)))


def _end_and_bump(transaction: Transaction, request: EndTxnRequest, caller: Caller, env: Env) -> Decision:
    """Transaction version 2: a request with the epoch before the present one can only be a repetition."""
    # Only where the last end raised the epoch was the one before it this producer's; else it is a replaced one's.
    bumped = transaction.client_version >= BUMPING
    overflowed = (
        bumped
        and request.producer_id == transaction.previous_producer_id
        and request.producer_epoch == MAX_EPOCH - 1
        and transaction.producer_epoch == 0
    )
    repeated = overflowed or (bumped and request.producer_epoch == transaction.producer_epoch - 1)
    if request.producer_id != transaction.producer_id and not overflowed:
        return _refuse(caller, WireError.INVALID_PRODUCER_ID_MAPPING)
    if transaction.state in PREPARED and request.producer_epoch == transaction.producer_epoch:
        return _refuse(caller, WireError.CONCURRENT_TRANSACTIONS)  # the next one, while the last is being ended
    if not _epoch_fits(transaction, request.producer_epoch, repeated, overflowed):
        return _refuse(caller, WireError.PRODUCER_FENCED)
    if transaction.state is ONGOING or (transaction.state in RESTING and not request.committed and not repeated):
        # An abort with nothing added raises the epoch as any other: records that are under way may still come.
        return _bump(transaction, request.committed, request, caller, env)
    if not repeated:
        just_ended = transaction.state in COMPLETE and 0 <= env.now - transaction.update_time < GRACE_MS
        return _refuse(caller, WireError.CONCURRENT_TRANSACTIONS if just_ended else WireError.INVALID_TXN_STATE)
    error = _repeated(transaction, request.committed)
    return _refuse(caller, error) if error is not WireError.NONE else Decision.reply(caller, _named(transaction))


def _epoch_fits(transaction: Transaction, epoch: int, repeated: bool, overflowed: bool) -> bool:
    if transaction.state in PREPARED:
        return repeated and not overflowed
    if transaction.state in COMPLETE and repeated:
        return True
    return epoch == transaction.producer_epoch


def _bump(transaction: Transaction, commit: bool, command: Any, caller: Caller, env: Env) -> Decision:
    if transaction.exhausted and env.producer_id == NO_PRODUCER:
        return Decision(work=[ProducerIdWanted(command, caller)])
    prepared = _with_next_epoch(transaction, commit, env)
    response = _named(completed(prepared, env.now))
    return _prepared(prepared, transaction.producer_epoch, [(caller.token, response)])


def _with_next_epoch(transaction: Transaction, commit: bool, env: Env) -> Transaction:
    return transaction.to(
        _prepare(commit),
        env.now,
        producer_epoch=min(transaction.producer_epoch + 1, MAX_EPOCH),
        start_time=env.now if transaction.state in RESTING else transaction.start_time,
        next_producer_id=env.producer_id if transaction.exhausted else NO_PRODUCER,
        client_version=BUMPING,
    )


def _prepare(commit: bool) -> TransactionState:
    return PREPARE_COMMIT if commit else PREPARE_ABORT


def fence(transaction: Transaction, command: Any, caller: Caller, env: Env) -> Decision:
    """Abort an open transaction under an epoch that nobody has: its time is up, or another instance starts.

    Says in the terms of Kafka's states what passes through PrepareEpochFence there. No reply is part of it.
    """
    if env.config.transaction_version >= BUMPING:
        if transaction.exhausted and env.producer_id == NO_PRODUCER:
            return Decision(work=[ProducerIdWanted(command, caller)])
        return _prepared(_with_next_epoch(transaction, False, env), transaction.producer_epoch)
    fenced = transaction.to(
        PREPARE_ABORT,
        env.now,
        producer_epoch=min(transaction.producer_epoch + 1, MAX_EPOCH),
        next_producer_id=NO_PRODUCER,
        client_version=0,
    )
    return _prepared(fenced, NO_PRODUCER)


def time_out(transaction: Transaction | None, command: Any, caller: Caller, env: Env) -> Decision:
    if transaction is None or transaction.state is not ONGOING:
        return Decision()
    if transaction.deadline > env.now:
        return Decision(timers=[Timer(timeout_key(transaction.transactional_id), transaction.deadline)])
    return fence(transaction, command, caller, env)


def markers_written(transaction: Transaction | None, done: MarkersWritten, caller: Caller, env: Env) -> Decision:
    if transaction is None or transaction.state not in PREPARED:
        return Decision()
    if (transaction.producer_id, transaction.producer_epoch) != (done.producer_id, done.producer_epoch):
        return Decision()
    return Decision(records=[record_of(completed(transaction, env.now))])


def completed(transaction: Transaction, now: int) -> Transaction:
    """The transaction once its markers are written. If its epochs ran out it goes on with its next producer id."""
    state = COMPLETE_COMMIT if transaction.state is PREPARE_COMMIT else COMPLETE_ABORT
    rotates = transaction.client_version >= BUMPING and transaction.next_producer_id != NO_PRODUCER
    return transaction.to(
        state,
        now,
        producer_id=transaction.next_producer_id if rotates else transaction.producer_id,
        producer_epoch=0 if rotates else transaction.producer_epoch,
        next_producer_id=NO_PRODUCER,
        partitions=frozenset(),
    )


def markers_of(transaction: Transaction) -> WriteMarkers:
    return WriteMarkers(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state is PREPARE_COMMIT,
        transaction.partitions,
        transaction.client_version,
    )


def _prepared(
    prepared: Transaction, last_epoch: int, replies: Iterable[tuple[object, EndTxnResponse]] = ()
) -> Decision:
    return Decision(
        records=[record_of(prepared)],
        passing=[LastEpoch(prepared.transactional_id, last_epoch)],
        replies=list(replies),
        timers=[Timer(timeout_key(prepared.transactional_id), None)],
        work=[markers_of(prepared)],
    )


def _repeated(transaction: Transaction, commit: bool) -> WireError:
    """What the end of a transaction is told that is ended, or about to be."""
    prepare, complete = ENDED[commit]
    if transaction.state is complete:
        return WireError.NONE
    return WireError.CONCURRENT_TRANSACTIONS if transaction.state is prepare else WireError.INVALID_TXN_STATE


def _named(transaction: Transaction) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=WireError.NONE, producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch
    )


def _refuse(caller: Caller, error: WireError) -> Decision:
    if error is WireError.PRODUCER_FENCED and caller.version < FENCED_SINCE:
        error = WireError.INVALID_PRODUCER_EPOCH
    return Decision.reply(caller, EndTxnResponse(error_code=error))
