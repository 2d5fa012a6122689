"""InitProducerId of a transactional producer: a first producer id, the next epoch, or an abort of an open transaction.

KIP-360: a producer that sends its id and epoch continues after an error; its retries are told apart from zombies.
Producers without a transactional id have no state here.
"""

from moldau.base.coordination import Caller, Decision
from moldau.base.errors import WireError
from moldau.base.ids import Epoch
from moldau.transactions.commands import AllocateProducerId
from moldau.transactions.end_txn import fence
from moldau.transactions.environment import TransactionEnvironment
from moldau.transactions.state import (
    EMPTY,
    MAX_EPOCH,
    NO_PRODUCER,
    NO_TIME,
    ONGOING,
    PREPARED,
    LastEpoch,
    Transaction,
    record_of,
)
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

PRODUCER_FENCED_SINCE = 4  # request version; earlier clients get INVALID_PRODUCER_EPOCH


def initialize(
    transaction: Transaction | None, request: InitProducerIdRequest, caller: Caller, env: TransactionEnvironment
) -> Decision:
    error = _check(transaction, request, env)
    if error is not WireError.NONE:
        return _refuse(caller, error)
    if transaction is not None and transaction.state is ONGOING:
        # The fencing epoch is never given to a producer: the client retries and gets the next one.
        decision = fence(transaction, request, caller, env)
        if decision.records:
            decision.replies.append((caller.token, _failed(WireError.CONCURRENT_TRANSACTIONS)))
        return decision
    if transaction is None or (transaction.epoch_exhausted and _expects(request) in (None, transaction.producer_epoch)):
        return _with_new_id(transaction, request, caller, env)
    epochs = _next_epoch(transaction, _expects(request))
    if epochs is None:
        return _refuse(caller, WireError.PRODUCER_FENCED)
    epoch, last = epochs
    return _begin(_emptied(transaction, request, env, transaction.producer_id, epoch), last, caller)


def _check(transaction: Transaction | None, request: InitProducerIdRequest, env: TransactionEnvironment) -> WireError:
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_PRODUCER):
        return WireError.INVALID_REQUEST
    if not request.transactional_id:
        return WireError.INVALID_REQUEST
    if not 0 < request.transaction_timeout_ms <= env.config.max_timeout_ms:
        return WireError.INVALID_TRANSACTION_TIMEOUT
    if transaction is None:
        return WireError.NONE
    if _expects(request) is not None and not _is_its_producer(transaction, request):
        return WireError.PRODUCER_FENCED
    if transaction.state is ONGOING and _expects(request) not in (None, transaction.producer_epoch):
        return WireError.PRODUCER_FENCED  # in Kafka a zombie aborts its successor's transaction first
    return WireError.CONCURRENT_TRANSACTIONS if transaction.state in PREPARED else WireError.NONE


def _expects(request: InitProducerIdRequest) -> int | None:
    """The producer's own epoch, if the request has one."""
    return None if request.producer_epoch == NO_PRODUCER else request.producer_epoch


def _is_its_producer(transaction: Transaction, request: InitProducerIdRequest) -> bool:
    """The previous id with its last epoch is accepted: the response with the new id may have been lost."""
    if request.producer_id == transaction.producer_id:
        return True
    return request.producer_id == transaction.previous_producer_id and request.producer_epoch >= MAX_EPOCH - 1


def _with_new_id(
    transaction: Transaction | None, request: InitProducerIdRequest, caller: Caller, env: TransactionEnvironment
) -> Decision:
    if env.producer_id == NO_PRODUCER:
        return Decision(work=[AllocateProducerId(request, caller)])
    if transaction is None:
        first = Transaction(
            transactional_id=request.transactional_id or "",
            producer_id=env.producer_id,
            producer_epoch=0,
            timeout_ms=request.transaction_timeout_ms,
            update_time=env.now,
            previous_producer_id=env.producer_id,
        )
        return _begin(first, NO_PRODUCER, caller)
    last = NO_PRODUCER if _expects(request) is None else transaction.producer_epoch
    return _begin(_emptied(transaction, request, env, env.producer_id, 0), last, caller)


def _next_epoch(transaction: Transaction, expected: int | None) -> tuple[int, int] | None:
    """The producer's next epoch and its last one; None for a fenced producer."""
    current = transaction.producer_epoch
    if expected is None:
        return current + 1, NO_PRODUCER
    if transaction.epoch_exhausted and expected != transaction.last_producer_epoch:
        return None
    if expected == current:
        return current + 1, current
    if expected == transaction.last_producer_epoch:
        return current, expected  # a retry; another producer in between would have reset this to -1
    return None


def _emptied(
    transaction: Transaction,
    request: InitProducerIdRequest,
    env: TransactionEnvironment,
    producer_id: int,
    epoch: Epoch,
) -> Transaction:
    return transaction.to(
        EMPTY,
        env.now,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=request.transaction_timeout_ms,
        partitions=frozenset(),
        start_time=NO_TIME,
    )


def _begin(transaction: Transaction, last_epoch: Epoch, caller: Caller) -> Decision:
    response = InitProducerIdResponse(
        error_code=WireError.NONE, producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch
    )
    return Decision(
        records=[record_of(transaction)],
        transient=[LastEpoch(transaction.transactional_id, last_epoch)],
        replies=[(caller.token, response)],
    )


def _refuse(caller: Caller, error: WireError) -> Decision:
    if error is WireError.PRODUCER_FENCED and caller.version < PRODUCER_FENCED_SINCE:
        error = WireError.INVALID_PRODUCER_EPOCH
    return Decision.reply(caller, _failed(error))


def _failed(error: WireError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=NO_PRODUCER)
