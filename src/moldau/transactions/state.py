"""A transactional id and its transaction as a value: states, transitions, and the record.

Two rules. A transaction changes through `to` alone, which checks the table of transitions. Everything is in its record
except `last_producer_epoch`, which tells a retried InitProducerId from another producer's (KIP-360).
"""

from collections.abc import Iterable
from enum import IntEnum
from itertools import groupby
from typing import Any, NamedTuple

from moldau.base.coordination import Record
from moldau.base.ids import Epoch, TopicPartition
from moldau.transactions.records import PartitionsSchema, TransactionLogKey, TransactionLogValue

NO_PRODUCER = -1  # as id and as epoch
NO_TIME = -1
MAX_EPOCH = 2**15 - 1  # never given to a client: the producer id is replaced first
TRANSACTION_V2 = 2  # transaction.version from which each end of a transaction bumps the epoch (KIP-890)


class TransactionState(IntEnum):
    """The numbers are those of the records, `title` is the name in DescribeTransactions and ListTransactions."""

    title: str

    def __new__(cls, number: int, title: str = "") -> "TransactionState":
        member = int.__new__(cls, number)
        member._value_ = number
        member.title = title
        return member

    EMPTY = 0, "Empty"  # a producer id is assigned, no transaction has begun
    ONGOING = 1, "Ongoing"  # partitions were added
    PREPARE_COMMIT = 2, "PrepareCommit"  # decided; markers are being written
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"  # all markers are written
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"  # expired; a tombstone here, never visible
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"  # never entered: fencing and aborting are one record here


EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

IDLE = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})  # a transaction may begin, the id may expire
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})

TRANSITIONS: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),  # KIP-890: an abort may come before any partition was added
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    TransactionState.DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({PREPARE_ABORT}),
}


class LastEpoch(NamedTuple):
    """A transient change: the producer's epoch before its last InitProducerId or EndTxn."""

    transactional_id: str
    producer_epoch: Epoch


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: Epoch
    timeout_ms: int
    update_time: int
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_time: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER  # used from the end of this transaction on: the epochs are exhausted
    client_version: int = 0  # the client's transaction version at its last request
    last_producer_epoch: Epoch = NO_PRODUCER

    @property
    def epoch_exhausted(self) -> bool:
        """Whether the next epoch would be MAX_EPOCH: the producer id has to be replaced."""
        return self.producer_epoch >= MAX_EPOCH - 1

    @property
    def deadline(self) -> int:
        return self.start_time + self.timeout_ms

    def to(self, state: TransactionState, update_time: int, **changes: Any) -> "Transaction":
        """The transaction in another state. A transition that the table does not have is a bug."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{self.transactional_id} cannot go from {self.state.title} to {state.title}")
        return self._replace(state=state, update_time=update_time, previous_producer_id=self.producer_id, **changes)


def record_of(transaction: Transaction) -> Record:
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
    """The transaction of a record. An unknown state raises: a coordinator must not guess how a transaction ended."""
    key, value = record
    assert isinstance(key, TransactionLogKey)
    assert isinstance(value, TransactionLogValue)
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        update_time=value.transaction_last_update_timestamp_ms,
        state=TransactionState(value.transaction_status),
        partitions=_partitions(value),
        start_time=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _partitions(value: TransactionLogValue) -> frozenset[TopicPartition]:
    topics = value.transaction_partitions or ()
    return frozenset(TopicPartition(each.topic, index) for each in topics for index in each.partition_ids)


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[PartitionsSchema, ...]:
    return tuple(
        PartitionsSchema(topic=topic, partition_ids=tuple(index for _, index in found))
        for topic, found in groupby(sorted(partitions), key=lambda partition: partition[0])
    )
