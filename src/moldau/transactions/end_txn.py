"""The end of a transaction: EndTxn, an abort by the coordinator, and its completion once the markers are written.

The decision is one record (Prepare…), committed before any reply. Then the markers are written, and a second record
(Complete…) closes the transaction. From transaction version 2 on (KIP-890) the first record also bumps the producer's
epoch, and the markers carry the new one (KIP-1228): a late request with the old epoch can neither add to the ended
transaction nor end the next one.
"""

from collections.abc import Iterable

from moldau.base.coordination import Caller, Decision, Timer
from moldau.base.errors import WireError
from moldau.base.ids import Epoch
from moldau.transactions.commands import AllocateProducerId, Interrupted, MarkersWritten, WriteMarkers, timeout_key
from moldau.transactions.environment import TransactionEnvironment
from moldau.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    IDLE,
    MAX_EPOCH,
    NO_PRODUCER,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TRANSACTION_V2,
    LastEpoch,
    Transaction,
    TransactionState,
    record_of,
)
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

PRODUCER_FENCED_SINCE = 2  # request version; earlier clients get INVALID_PRODUCER_EPOCH
TRANSACTION_V2_SINCE = 5  # request version of clients with transaction version 2

# Java's producer checks first for records to send, then for a commit. A commit requested in between overtakes the
# records, and INVALID_TXN_STATE would be fatal to the producer. In Apache Kafka the markers of the last transaction are
# usually still being written then, so the commit gets CONCURRENT_TRANSACTIONS and is retried. Here markers are written
# faster, so the same error is returned for a while after the transaction has ended.
GRACE_MS = 1_000

COMPLETE = (COMPLETE_COMMIT, COMPLETE_ABORT)
ENDED = {True: (PREPARE_COMMIT, COMPLETE_COMMIT), False: (PREPARE_ABORT, COMPLETE_ABORT)}


def end(
    transaction: Transaction | None, request: EndTxnRequest, caller: Caller, env: TransactionEnvironment
) -> Decision:
    if not request.transactional_id:
        return _refuse(caller, WireError.INVALID_REQUEST)
    if transaction is None:
        return _refuse(caller, WireError.INVALID_PRODUCER_ID_MAPPING)
    if caller.version >= TRANSACTION_V2_SINCE:
        return _end_and_bump(transaction, request, caller, env)
    return _end(transaction, request, caller, env)


def _end(transaction: Transaction, request: EndTxnRequest, caller: Caller, env: TransactionEnvironment) -> Decision:
    """Transaction versions 0 and 1: the epoch stays, so a late retry cannot be told from a new request."""
    if request.producer_id != transaction.producer_id:
        return _refuse(caller, WireError.INVALID_PRODUCER_ID_MAPPING)
    if request.producer_epoch != transaction.producer_epoch:
        return _refuse(caller, WireError.PRODUCER_FENCED)
    if transaction.state is ONGOING:
        prepared = transaction.to(_prepare(request.committed), env.now, client_version=0, next_producer_id=NO_PRODUCER)
        return _prepared(prepared, transaction.last_producer_epoch, [(caller.token, EndTxnResponse())])
    return Decision.reply(caller, EndTxnResponse(error_code=_repeated(transaction, request.committed)))


def _end_and_bump(
    transaction: Transaction, request: EndTxnRequest, caller: Caller, env: TransactionEnvironment
) -> Decision:
    """Transaction version 2: a request with the previous epoch can only be a retry."""
    # The previous epoch is this producer's only if the last end bumped it; else it is a fenced producer's.
    bumped = transaction.client_version >= TRANSACTION_V2
    epoch_overflowed = (
        bumped
        and request.producer_id == transaction.previous_producer_id
        and request.producer_epoch == MAX_EPOCH - 1
        and transaction.producer_epoch == 0
    )
    repeated = epoch_overflowed or (bumped and request.producer_epoch == transaction.producer_epoch - 1)
    if request.producer_id != transaction.producer_id and not epoch_overflowed:
        return _refuse(caller, WireError.INVALID_PRODUCER_ID_MAPPING)
    if transaction.state in PREPARED and request.producer_epoch == transaction.producer_epoch:
        return _refuse(caller, WireError.CONCURRENT_TRANSACTIONS)  # the markers of the last transaction are missing
    if not _epoch_fits(transaction, request.producer_epoch, repeated, epoch_overflowed):
        return _refuse(caller, WireError.PRODUCER_FENCED)
    if transaction.state is ONGOING or (transaction.state in IDLE and not request.committed and not repeated):
        # An abort of an empty transaction bumps the epoch, too: records may still be in flight.
        return _bump(transaction, request.committed, request, caller, env)
    if not repeated:
        just_ended = transaction.state in COMPLETE and 0 <= env.now - transaction.update_time < GRACE_MS
        return _refuse(caller, WireError.CONCURRENT_TRANSACTIONS if just_ended else WireError.INVALID_TXN_STATE)
    error = _repeated(transaction, request.committed)
    return _refuse(caller, error) if error is not WireError.NONE else Decision.reply(caller, _success(transaction))


def _epoch_fits(transaction: Transaction, epoch: Epoch, repeated: bool, epoch_overflowed: bool) -> bool:
    if transaction.state in PREPARED:
        return repeated and not epoch_overflowed
    if transaction.state in COMPLETE and repeated:
        return True
    return epoch == transaction.producer_epoch


def _bump(
    transaction: Transaction, commit: bool, command: Interrupted, caller: Caller, env: TransactionEnvironment
) -> Decision:
    if transaction.epoch_exhausted and env.producer_id == NO_PRODUCER:
        return Decision(work=[AllocateProducerId(command, caller)])
    prepared = _with_next_epoch(transaction, commit, env)
    response = _success(completed(prepared, env.now))
    return _prepared(prepared, transaction.producer_epoch, [(caller.token, response)])


def _with_next_epoch(transaction: Transaction, commit: bool, env: TransactionEnvironment) -> Transaction:
    return transaction.to(
        _prepare(commit),
        env.now,
        producer_epoch=min(transaction.producer_epoch + 1, MAX_EPOCH),
        start_time=env.now if transaction.state in IDLE else transaction.start_time,
        next_producer_id=env.producer_id if transaction.epoch_exhausted else NO_PRODUCER,
        client_version=TRANSACTION_V2,
    )


def _prepare(commit: bool) -> TransactionState:
    return PREPARE_COMMIT if commit else PREPARE_ABORT


def fence(transaction: Transaction, command: Interrupted, caller: Caller, env: TransactionEnvironment) -> Decision:
    """Abort an open transaction with a new epoch, on timeout or on another producer's InitProducerId. Without a reply.

    Kafka goes through PrepareEpochFence here; this is one record.
    """
    if env.config.transaction_version >= TRANSACTION_V2:
        if transaction.epoch_exhausted and env.producer_id == NO_PRODUCER:
            return Decision(work=[AllocateProducerId(command, caller)])
        return _prepared(_with_next_epoch(transaction, False, env), transaction.producer_epoch)
    fenced = transaction.to(
        PREPARE_ABORT,
        env.now,
        producer_epoch=min(transaction.producer_epoch + 1, MAX_EPOCH),
        next_producer_id=NO_PRODUCER,
        client_version=0,
    )
    return _prepared(fenced, NO_PRODUCER)


def time_out(
    transaction: Transaction | None, command: Interrupted, caller: Caller, env: TransactionEnvironment
) -> Decision:
    if transaction is None or transaction.state is not ONGOING:
        return Decision()
    if transaction.deadline > env.now:
        return Decision(timers=[Timer(timeout_key(transaction.transactional_id), transaction.deadline)])
    return fence(transaction, command, caller, env)


def markers_written(
    transaction: Transaction | None, done: MarkersWritten, caller: Caller, env: TransactionEnvironment
) -> Decision:
    if transaction is None or transaction.state not in PREPARED:
        return Decision()
    if (transaction.producer_id, transaction.producer_epoch) != (done.producer_id, done.producer_epoch):
        return Decision()
    return Decision(records=[record_of(completed(transaction, env.now))])


def completed(transaction: Transaction, now: int) -> Transaction:
    """The transaction after its markers. With exhausted epochs it continues with its next producer id."""
    state = COMPLETE_COMMIT if transaction.state is PREPARE_COMMIT else COMPLETE_ABORT
    rotates = transaction.client_version >= TRANSACTION_V2 and transaction.next_producer_id != NO_PRODUCER
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
    prepared: Transaction, last_epoch: Epoch, replies: Iterable[tuple[object, EndTxnResponse]] = ()
) -> Decision:
    return Decision(
        records=[record_of(prepared)],
        transient=[LastEpoch(prepared.transactional_id, last_epoch)],
        replies=list(replies),
        timers=[Timer(timeout_key(prepared.transactional_id), None)],
        work=[markers_of(prepared)],
    )


def _repeated(transaction: Transaction, commit: bool) -> WireError:
    """The result of an EndTxn for a transaction that has ended or is ending."""
    prepare, complete = ENDED[commit]
    if transaction.state is complete:
        return WireError.NONE
    return WireError.CONCURRENT_TRANSACTIONS if transaction.state is prepare else WireError.INVALID_TXN_STATE


def _success(transaction: Transaction) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=WireError.NONE, producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch
    )


def _refuse(caller: Caller, error: WireError) -> Decision:
    if error is WireError.PRODUCER_FENCED and caller.version < PRODUCER_FENCED_SINCE:
        error = WireError.INVALID_PRODUCER_EPOCH
    return Decision.reply(caller, EndTxnResponse(error_code=error))
