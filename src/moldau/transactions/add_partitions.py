"""Add partitions to a transaction (AddPartitionsToTxn), or verify that it has them before a produce (KIP-890)."""

from collections.abc import Iterable, Mapping

from moldau.base.coordination import Caller, Decision, Timer
from moldau.base.errors import WireError
from moldau.base.ids import Epoch, TopicPartition
from moldau.transactions.commands import AddPartitions, timeout_key
from moldau.transactions.environment import TransactionEnvironment
from moldau.transactions.state import ONGOING, PREPARED, Transaction, record_of


def add(
    transaction: Transaction | None, command: AddPartitions, caller: Caller, env: TransactionEnvironment
) -> Decision:
    """The first partitions begin the transaction and start its timeout."""
    error = _check(transaction, command.transactional_id, command.producer_id, command.producer_epoch)
    if error is not WireError.NONE or transaction is None:
        return Decision.reply(caller, error)
    begins = transaction.state is not ONGOING
    if not begins and command.partitions <= transaction.partitions:
        return Decision.reply(caller, WireError.NONE)
    added = transaction.to(
        ONGOING,
        env.now,
        partitions=transaction.partitions | command.partitions,
        start_time=env.now if begins else transaction.start_time,
        client_version=command.client_version,
    )
    return Decision(
        records=[record_of(added)],
        replies=[(caller.token, WireError.NONE)],
        timers=[Timer(timeout_key(added.transactional_id), added.deadline)] if begins else [],
    )


def verify(
    transaction: Transaction | None,
    transactional_id: str,
    producer_id: int,
    producer_epoch: Epoch,
    partitions: Iterable[TopicPartition],
) -> Mapping[TopicPartition, WireError]:
    """Whether each partition is in the open transaction."""
    error = _check(transaction, transactional_id, producer_id, producer_epoch)
    if error is not WireError.NONE or transaction is None:
        return dict.fromkeys(partitions, error)
    # A completed transaction has no partitions, so late records of it are refused.
    return {
        partition: WireError.NONE if partition in transaction.partitions else WireError.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def _check(
    transaction: Transaction | None, transactional_id: str, producer_id: int, producer_epoch: Epoch
) -> WireError:
    if not transactional_id:
        return WireError.INVALID_REQUEST
    if transaction is None or transaction.producer_id != producer_id:
        return WireError.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer_epoch:
        return WireError.PRODUCER_FENCED
    return WireError.CONCURRENT_TRANSACTIONS if transaction.state in PREPARED else WireError.NONE
