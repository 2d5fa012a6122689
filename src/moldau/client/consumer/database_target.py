"""Transactions of a database: output and offsets are committed together, and claims keep other owners out.

Claims are made by the thread that iterates: they may have to wait for a lock that its own transaction holds, and a
database connection belongs to one thread. docs/decisions/0029-offsets-beside-the-output.md has the reasons.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.handover import AnyMessage
from moldau.client.consumer.partitions import named
from moldau.client.consumer.rebalances import Partitions
from moldau.client.consumer.subscriptions import BEGINNING, END
from moldau.client.consumer.transaction_targets import Batch, Repeat
from moldau.client.errors import ClientError, Fenced, InvalidUse
from moldau.client.offset_store.store import OffsetStore, OpenTransaction
from moldau.client.offset_store.table import NO_OFFSET, Advance, Claim

logger = logging.getLogger(__name__)

CommittedOffsets = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, OffsetAndMetadata | None]]


class DatabaseBatch(Batch[Any, Any]):
    """A batch with the offsets that its transaction advances."""

    def __init__(
        self, messages: Sequence[AnyMessage], transaction: OpenTransaction, advances: Sequence[Advance]
    ) -> None:
        super().__init__(messages, transaction)
        self.transaction = transaction
        self.advances = advances


class DatabaseTarget:
    """The partitions that this consumer has claimed, and the transactions on them."""

    def __init__(self, engine: ConsumerEngine, store: OffsetStore, committed: CommittedOffsets) -> None:
        self._engine = engine
        self._store = store
        self._committed_in_kafka = committed
        self._prepared = False
        self._lock = threading.Lock()
        self._claims: dict[TopicPartition, Claim] = {}
        self._revocations = 0
        self._forget_hook = engine.on_revocation(self._revoked)

    def prepare(self) -> None:
        """Claim what is assigned and not claimed yet, and go to its offset in the database."""
        try:
            if not self._prepared:
                self._store.prepare()
                self._prepared = True
            while missing := self._engine.assignment() - self._claims.keys():
                self._claim(missing)
        except Exception as error:
            self._repeat_if_it_may_pass(error)
            raise

    def begin(self, messages: Sequence[AnyMessage]) -> Batch[Any, Any] | None:
        with self._lock:
            claims = dict(self._claims)
        # Assigned while messages were waited for: they are read again, from the offset in the database.
        unclaimed = [message for message in messages if message.topic_partition not in claims]
        if unclaimed:
            self._engine.rewind(unclaimed)
            messages = [message for message in messages if message.topic_partition in claims]
        if not messages:
            return None
        advances = self._advances(messages, claims)
        try:
            return DatabaseBatch(messages, self._store.begin(), advances)
        except Exception as error:
            self._repeat_if_it_may_pass(error)
            raise

    def commit(self, batch: Batch[Any, Any]) -> None:
        assert isinstance(batch, DatabaseBatch)
        try:
            refused = batch.transaction.advance(batch.advances)
            if not refused:
                batch.transaction.commit()
        except BaseException as error:
            # The commit may have succeeded: claiming again reads how it ended.
            self._forget(advance.partition for advance in batch.advances)
            batch.transaction.rollback()
            if isinstance(error, Exception):
                self._repeat_if_it_may_pass(error)
            raise
        if refused:
            self._forget(refused)
            batch.transaction.rollback()
            raise Repeat(Fenced("FENCED", f"another owner has claimed {named(refused)}"), bounded=False)
        self._committed(batch)

    def abort(self, batch: Batch[Any, Any]) -> None:
        assert isinstance(batch, DatabaseBatch)
        batch.transaction.rollback()

    def close(self) -> None:
        self._forget_hook()
        self._store.close()

    # ── claims ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _claim(self, partitions: set[TopicPartition]) -> None:
        before = self._revocations
        claims = self._store.claim(partitions)
        starts = {tp: claim.next_offset for tp, claim in claims.items() if claim.next_offset != NO_OFFSET}
        starts |= self._starts_without_row([tp for tp in claims if tp not in starts])
        elsewhere = {tp: offset for tp, offset in starts.items() if self._engine.next_offset(tp) != offset}
        try:
            self._engine.seek(elsewhere)
        except InvalidUse as error:
            logger.debug("Revoked while it was claimed: %s", error)
            return
        with self._lock:
            if self._revocations == before:
                self._claims |= claims
        logger.info("Claimed in the database: %s", named(claims))

    def _starts_without_row(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The database decides: offsets that the group has committed in Kafka do not count."""
        committed = self._committed_in_kafka(partitions)
        left_out = [tp for tp, offset in committed.items() if offset is not None]
        start = self._engine.options.start
        if not left_out or start == "error":
            return {}
        logger.warning("No offsets of %s in the database: starting at the %s one", named(left_out), start)
        return dict.fromkeys(left_out, END if start == "latest" else BEGINNING)

    def _revoked(self, partitions: Partitions, lost: bool) -> None:
        """In the poll thread. A batch in hand keeps its claims, and the database decides whether they still count."""
        del lost
        with self._lock:
            self._revocations += 1
        self._forget(partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Claim these again before anything of them is handed out, if they are still assigned."""
        with self._lock:
            for tp in partitions:
                self._claims.pop(tp, None)

    # ── batches ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _advances(self, messages: Sequence[AnyMessage], claims: Mapping[TopicPartition, Claim]) -> list[Advance]:
        """The offsets after these messages, and after those that `where` has passed over."""
        ends = {tp: offset for tp, offset in self._engine.positions().items() if tp in claims}
        for message in messages:
            tp = message.topic_partition
            ends[tp] = max(ends.get(tp, 0), message.offset + 1)
        read = {message.topic_partition for message in messages}
        return [Advance(tp, claims[tp], end) for tp, end in ends.items() if tp in read or end > claims[tp].next_offset]

    def _committed(self, batch: DatabaseBatch) -> None:
        with self._lock:
            for advance in batch.advances:
                if self._claims.get(advance.partition) is advance.claim:
                    self._claims[advance.partition] = Claim(advance.claim.epoch, advance.next_offset)
        self._show_lag(batch.advances)

    def _show_lag(self, advances: Sequence[Advance]) -> None:
        """Commit to Kafka as well. Nobody reads these offsets, so nobody waits for them."""
        assigned = self._engine.assignment()
        ends = {each.partition: OffsetAndMetadata(each.next_offset) for each in advances if each.partition in assigned}
        try:
            self._engine.commit(ends, wait=False)
        except ClientError as error:
            logger.debug("Not committed to Kafka, where it is for information only: %s", error)

    def _repeat_if_it_may_pass(self, error: Exception) -> None:
        if self._store.may_pass(error) or (isinstance(error, ClientError) and error.retriable):
            raise Repeat(error, bounded=True) from error
