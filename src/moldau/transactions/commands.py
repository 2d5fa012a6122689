"""Commands to the transaction state machine and work that it hands out, where no wire message fits.

InitProducerId and EndTxn requests are commands themselves. Partitions are added in three ways (AddPartitionsToTxn,
AddOffsetsToTxn, and implicitly by a produce under transaction.version 2), so `AddPartitions` is a command of its own.
"""

from typing import NamedTuple

from moldau.base.coordination import Caller, TimerFired, TimerKey
from moldau.base.ids import Epoch, TopicPartition
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest

# Commands that may need a producer id before they can be decided.
Interrupted = InitProducerIdRequest | EndTxnRequest | TimerFired


class AddPartitions(NamedTuple):
    """Add these partitions to the transaction. The reply is a WireError."""

    transactional_id: str
    producer_id: int
    producer_epoch: Epoch
    partitions: frozenset[TopicPartition]
    client_version: int  # the client's transaction version


class MarkersWritten(NamedTuple):
    """Every partition of the transaction has its marker, or was deleted."""

    transactional_id: str
    producer_id: int
    producer_epoch: Epoch


class ProducerIdAllocated(NamedTuple):
    """A command again, with the producer id that it needed."""

    command: Interrupted
    producer_id: int


class WriteMarkers(NamedTuple):
    """Work: write markers to these partitions, then send `MarkersWritten`. Retried until it succeeds."""

    transactional_id: str
    producer_id: int
    producer_epoch: Epoch
    commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class AllocateProducerId(NamedTuple):
    """Work: allocate a producer id, then send `ProducerIdAllocated`. The decision has nothing else."""

    command: Interrupted
    caller: Caller


def timeout_key(transactional_id: str) -> TimerKey:
    """The timer that aborts an open transaction."""
    return "timeout", transactional_id


def markers_key(transactional_id: str) -> TimerKey:
    """The timer that retries markers that could not be written."""
    return "markers", transactional_id
