"""What the transaction machine is told and leaves to others, where no wire message says it.

InitProducerId and EndTxn are commands as they are. Partitions come in three ways (AddPartitionsToTxn, AddOffsetsToTxn,
and with the records themselves under transaction.version 2), so they are a command of their own.
"""

from typing import Any, NamedTuple

from moldau.base.coordination import Caller, TimerKey
from moldau.transactions.state import TopicPartition


class AddPartitions(NamedTuple):
    """These partitions join the transaction. The reply is a WireError."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int  # the transaction version that the client speaks


class MarkersWritten(NamedTuple):
    """Every partition of the transaction has its marker, or is gone."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class ProducerIdGiven(NamedTuple):
    """The command again, with the producer id that it wanted."""

    command: Any
    producer_id: int


class WriteMarkers(NamedTuple):
    """Work: end the transaction in its partitions, then say `MarkersWritten`. To be done again if it fails."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class ProducerIdWanted(NamedTuple):
    """Work: get a producer id and say `ProducerIdGiven`. Nothing else was decided."""

    command: Any
    caller: Caller


def timeout_key(transactional_id: str) -> TimerKey:
    """The timer by which an open transaction is aborted."""
    return "timeout", transactional_id


def markers_key(transactional_id: str) -> TimerKey:
    """The timer by which markers that could not be written are tried again."""
    return "markers", transactional_id
