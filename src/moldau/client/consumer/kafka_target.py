"""Transactions of Kafka: records that the producer sends and offsets of the consumer's group are committed together.

The group keeps other owners out (KIP-447): offsets go with the generation in which the messages were taken, and the
coordinator refuses them when it is over. The generation at the time of the commit would not do: it may be one in which
another member has the partition, and has processed the same messages.
"""

import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.handover import AnyMessage
from moldau.client.consumer.rebalances import Partitions
from moldau.client.consumer.transaction_targets import Batch, Repeat
from moldau.client.errors import (
    AuthenticationFailed,
    ClientError,
    Fenced,
    InvalidUse,
    KafkaFailure,
    NotAuthorized,
    RecordTooLarge,
    TimedOut,
)
from moldau.client.producer.transactions import Transaction

logger = logging.getLogger(__name__)

METADATA = b"CGMDv2:"  # librdkafka's form of a group's metadata: this, the generation in four bytes, names
# The group has gone on without this member, which takes part in its next generation.
REBALANCED = {
    "FENCED_MEMBER_EPOCH",
    "ILLEGAL_GENERATION",
    "REBALANCE_IN_PROGRESS",
    "STALE_MEMBER_EPOCH",
    "UNKNOWN_MEMBER_ID",
}
NEVER_PASSES = (AuthenticationFailed, Fenced, NotAuthorized, RecordTooLarge)


class KafkaBatch(Batch[Any, Any]):
    """A batch with its offsets, and the generation in which it was taken."""

    def __init__(self, messages: Sequence[AnyMessage], offsets: Mapping[TopicPartition, Offset], group: bytes) -> None:
        super().__init__(messages)
        self.offsets = offsets
        self.group = group


class KafkaTarget:
    """The producer's transactions, each with the offsets of a batch."""

    def __init__(self, engine: ConsumerEngine, transaction: Transaction) -> None:
        if engine.options.configuration.get("isolation.level") == "read_uncommitted":
            problem = "would start at offsets that an open transaction is about to replace"
            raise InvalidUse(f"a consumer with isolation.level=read_uncommitted {problem}; leave that setting out")
        self._engine = engine
        self._transaction = transaction
        self._sent: dict[TopicPartition, Offset] = {}
        self._generations = Generations(engine)
        self._left_open = False

    def prepare(self) -> None:
        # First: the offsets of a transaction that was left open are what this consumer waits for before it starts.
        self._transaction.initialize()
        self._generations.before_take()

    def begin(self, messages: Sequence[AnyMessage]) -> Batch[Any, Any] | None:
        group = self._generations.after_take()
        if group is None:
            self._engine.rewind(messages)
            return None
        if self._left_open:
            self._abort()
        self._transaction.begin()
        return KafkaBatch(messages, self._offsets(messages), group)

    def commit(self, batch: Batch[Any, Any]) -> None:
        assert isinstance(batch, KafkaBatch)
        self._left_open = True
        try:
            self._transaction.send_offsets(batch.offsets, batch.group)
        except ClientError as failure:
            if not failure.fatal:
                self._abort()
            self._repeat_after(failure)
            raise
        try:
            self._commit()
        except KafkaFailure as failure:
            self._left_open = False
            self._repeat_after(failure)
            raise
        self._left_open = False
        self._sent |= batch.offsets

    def abort(self, batch: Batch[Any, Any]) -> None:
        del batch
        self._abort()

    def close(self) -> None:
        self._generations.close()

    def _commit(self) -> None:
        """Commit, however long it takes: nothing can be done while it is not known whether the batch is committed."""
        while True:
            try:
                return self._transaction.commit()
            except TimedOut as late:
                logger.warning("Still waiting for the outcome of a commit: %s", late)

    def _abort(self) -> None:
        self._left_open = True
        self._transaction.abort()
        self._left_open = False

    def _repeat_after(self, failure: ClientError) -> None:
        """Raise `Repeat` unless the failure is one that does not pass."""
        if failure.name in REBALANCED:
            self._generations.refused()
            raise Repeat(failure, bounded=False) from failure
        if failure.retriable and not isinstance(failure, NEVER_PASSES):
            raise Repeat(failure, bounded=True) from failure

    def _offsets(self, messages: Sequence[AnyMessage]) -> dict[TopicPartition, Offset]:
        """The offsets after these messages, and after those that `where` has passed over."""
        ends = {tp: end for tp, end in self._engine.positions().items() if self._sent.get(tp) != end}
        for message in messages:
            tp = message.topic_partition
            ends[tp] = max(ends.get(tp, 0), message.offset + 1)
        return ends


class Generations:
    """Metadata of the generation in which messages are taken, as librdkafka writes it."""

    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._current: bytes | None = None
        self._assignments = 0
        self._refused = False
        self._before: tuple[bytes | None, int] = (None, 0)
        self._hooks = (engine.on_assignment(self._assigned), engine.on_revocation(self._revoked))

    def before_take(self) -> None:
        if self._refused or (self._current is None and self._engine.assignment()):
            self._refresh()
        with self._lock:
            self._before = (self._current, self._assignments)

    def after_take(self) -> bytes | None:
        """The generation of messages that were taken since; None if it cannot be told, because there was a new one."""
        with self._lock:
            known, count = self._before
            since = self._assignments - count
            return self._current if since == 0 or (since == 1 and known is None) else None

    def refused(self) -> None:
        """The epoch of a member may change without an assignment (KIP-848)."""
        self._refused = True

    def close(self) -> None:
        for remove in self._hooks:
            remove()

    def _refresh(self) -> None:
        """Ask for the generation. Without one the offsets would be accepted from anybody."""
        metadata = self._engine.group_metadata()
        if generation_of(metadata) >= 0 or not self._engine.options.topics:
            with self._lock:
                self._current = metadata
                self._refused = False

    def _assigned(self, partitions: Partitions) -> dict[TopicPartition, Offset | None]:
        """In the poll thread, before anything of the partitions is handed out."""
        del partitions
        metadata = self._engine.group_metadata()
        with self._lock:
            self._current = metadata
            self._assignments += 1
            self._refused = False
        return {}

    def _revoked(self, partitions: Partitions, lost: bool) -> None:
        del partitions
        with self._lock:
            if lost or not self._engine.options.incremental:
                self._current = None


def generation_of(metadata: bytes) -> int:
    """The generation in a group's metadata; -1: the consumer is not a member."""
    assert metadata.startswith(METADATA), f"group metadata of an unknown version: {metadata[:16]!r}"
    return int.from_bytes(metadata[len(METADATA) : len(METADATA) + 4], sys.byteorder, signed=True)
