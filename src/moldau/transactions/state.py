"""A transactional id and its transaction: a value, the states it goes through, and its form as a record.

Two rules. A transaction changes by `to` alone, which knows the table; and what is not in its record is forgotten by a
restart: that is `last_producer_epoch` only, by which a repeated InitProducerId is told from a stranger's (KIP-360).
"""

from collections.abc import Iterable
from enum import IntEnum
from itertools import groupby
from typing import Any, NamedTuple

from moldau.base.coordination import Record
from moldau.transactions.records import PartitionsSchema, TransactionLogKey, TransactionLogValue

NO_PRODUCER = -1  # as id and as epoch
NO_TIME = -1
MAX_EPOCH = 2**15 - 1  # never given to a client: with it a producer id comes to its end
BUMPING = 2  # from this transaction version on every end of a transaction raises the epoch (KIP-890)

TopicPartition = tuple[str, int]


class TransactionState(IntEnum):
    """The number is the one in records; `title` is the one in DescribeTransactions and ListTransactions."""

    title: str

    def __new__(cls, number: int, title: str = "") -> "TransactionState":
        member = int.__new__(cls, number)
        member._value_ = number
        member.title = title
        return member

    EMPTY = 0, "Empty"  # the producer is known, and has begun nothing
    ONGOING = 1, "Ongoing"  # partitions were added
    PREPARE_COMMIT = 2, "PrepareCommit"  # decided: the markers are being written
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"  # every marker is written
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"  # expired; here a tombstone says it, so nobody ever sees it
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"  # a name of the protocol: fencing and aborting are one record here


EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

RESTING = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})  # nothing is open: may begin, and may expire
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})

TRANSITIONS: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),  # KIP-890: an abort may come before anything was added
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    TransactionState.DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({PREPARE_ABORT}),
}


class LastEpoch(NamedTuple):
    """A change that is not written: the epoch that a producer had before its last InitProducerId or EndTxn."""

    transactional_id: str
    producer_epoch: int


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    update_time: int
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_time: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER  # takes over with the end of this transaction: the epochs ran out
    client_version: int = 0  # the transaction version that the client spoke when it last changed something
    last_producer_epoch: int = NO_PRODUCER

    @property
    def exhausted(self) -> bool:
        """The next epoch is the last one, which no client is given: time for another producer id."""
        return self.producer_epoch >= MAX_EPOCH - 1

    @property
    def deadline(self) -> int:
        return self.start_time + self.timeout_ms

    def to(self, state: TransactionState, update_time: int, **changes: Any) -> "Transaction":
        """The transaction in another state. One that the table does not allow is a bug of ours, not a client's."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{self.transactional_id} cannot go from {self.state.title} to {state.title}")
        return self._replace(state=state, update_time=update_time, previous_producer_id=self.producer_id, **changes)


def record_of(transaction: Transaction) -> Record:
    """The record that says what the transaction is now."""
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None if transaction.state is EMPTY else _by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.update_time,
        transaction_start_timestamp_ms=transaction.start_time,
        client_transaction_version=transaction.client_version,
    )
    return Record(TransactionLogKey(transactional_id=transaction.transactional_id), value)


def transaction_of(record: Record) -> Transaction:
    """What a record says. An unknown state number raises: a coordinator must not guess how a transaction ended."""
    value: TransactionLogValue = record.value
    return Transaction(
        transactional_id=record.key.transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        update_time=value.transaction_last_update_timestamp_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset((of.topic, i) for of in value.transaction_partitions or () for i in of.partition_ids),
        start_time=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[PartitionsSchema, ...]:
    return tuple(
        PartitionsSchema(topic=topic, partition_ids=tuple(index for _, index in found))
        for topic, found in groupby(sorted(partitions), key=lambda partition: partition[0])
    )
