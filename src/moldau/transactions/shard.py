"""The transactional ids of one partition of `__transaction_state`: a table of handlers, and the state they decide on.

Only `apply` changes the state. The runtime appends the records of a decision before it applies them; the coordinator
does the work that a decision hands out (markers, producer ids).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from moldau.base.coordination import Caller, Decision, Record, Timer, TimerFired
from moldau.base.errors import WireError
from moldau.base.ids import Epoch, TopicPartition
from moldau.transactions import add_partitions, end_txn, records
from moldau.transactions.commands import AddPartitions, MarkersWritten, ProducerIdAllocated, timeout_key
from moldau.transactions.environment import TransactionEnvironment
from moldau.transactions.init_producer_id import initialize
from moldau.transactions.records import TransactionLogKey
from moldau.transactions.state import (
    IDLE,
    NO_PRODUCER,
    ONGOING,
    PREPARED,
    LastEpoch,
    Transaction,
    TransactionState,
    transaction_of,
)
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest

MAX_TOMBSTONES = 1_000  # of one call of `expire`: they are one batch

HANDLERS: dict[type, Callable[[Transaction | None, Any, Caller, TransactionEnvironment], Decision]] = {
    InitProducerIdRequest: initialize,
    AddPartitions: add_partitions.add,
    EndTxnRequest: end_txn.end,
    MarkersWritten: end_txn.markers_written,
}

TransactionCommand = (
    InitProducerIdRequest | EndTxnRequest | AddPartitions | MarkersWritten | ProducerIdAllocated | TimerFired
)


class TransactionShard:
    __slots__ = ("transactions",)

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}

    def decide(self, command: TransactionCommand, caller: Caller, env: TransactionEnvironment) -> Decision:
        if isinstance(command, ProducerIdAllocated):
            env = replace(env, producer_id=command.producer_id)
            command = command.command
        if isinstance(command, TimerFired):
            return self._fired(command, caller, env)
        transaction = self.transactions.get(command.transactional_id or "")
        return HANDLERS[type(command)](transaction, command, caller, env)

    def _fired(self, command: TimerFired, caller: Caller, env: TransactionEnvironment) -> Decision:
        kind, transactional_id = command.key
        transaction = self.transactions.get(transactional_id)
        if kind == "timeout":
            return end_txn.time_out(transaction, command, caller, env)
        if transaction is None or transaction.state not in PREPARED:
            return Decision()
        return Decision(work=[end_txn.markers_of(transaction)])

    def gathers(self, command: object) -> bool:
        """Every decision depends on the last one about its transactional id, and few ids share a shard."""
        return False

    # ── state ──

    def apply(self, change: object, producer_id: int = NO_PRODUCER) -> None:
        """Apply a record that is in the log, or a transient change."""
        if isinstance(change, LastEpoch):
            known = self.transactions[change.transactional_id]
            self.transactions[change.transactional_id] = known._replace(last_producer_epoch=change.producer_epoch)
            return
        assert isinstance(change, Record)
        assert isinstance(change.key, TransactionLogKey)
        transactional_id = change.key.transactional_id
        before = self.transactions.get(transactional_id)
        if change.value is None:
            self.transactions.pop(transactional_id, None)
        elif before is None or before.last_producer_epoch == NO_PRODUCER:
            self.transactions[transactional_id] = transaction_of(change)
        else:
            self.transactions[transactional_id] = transaction_of(change)._replace(
                last_producer_epoch=before.last_producer_epoch
            )

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        return records.encode(record)

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER) -> None:
        record = records.decode(key, value)
        if record is not None:
            self.apply(record)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """A marker in `__transaction_state` has no meaning: its records are never transactional."""

    def loaded(self, env: TransactionEnvironment) -> Decision:
        """After a load: set the timeouts of open transactions, write the markers of prepared ones."""
        return Decision(
            timers=[Timer(timeout_key(open_.transactional_id), open_.deadline) for open_ in self._in({ONGOING})],
            work=[end_txn.markers_of(prepared) for prepared in self._in(PREPARED)],
        )

    def expire(self, env: TransactionEnvironment) -> Decision:
        """Tombstones of ids unused for transactional.id.expiration.ms; call it again after MAX_TOMBSTONES."""
        before = env.now - env.config.id_expiration_ms
        expired = [found for found in self._in(IDLE) if found.update_time <= before]
        return Decision(
            records=[
                Record(TransactionLogKey(transactional_id=found.transactional_id), None)
                for found in expired[:MAX_TOMBSTONES]
            ]
        )

    def _in(self, states: Collection[TransactionState]) -> Iterator[Transaction]:
        return (transaction for transaction in self.transactions.values() if transaction.state in states)

    # ── reads ──

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: Epoch, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, WireError]:
        found = self.transactions.get(transactional_id)
        return add_partitions.verify(found, transactional_id, producer_id, producer_epoch, partitions)

    def listed(
        self,
        states: Collection[TransactionState] | None,
        producer_ids: Collection[int],
        longer_than_ms: int,
        matches: Callable[[str], bool],
        now: int,
    ) -> list[Transaction]:
        """ListTransactions. Any state if None, any producer id if empty, any duration if negative."""
        return [
            found
            for found in self.transactions.values()
            if (not producer_ids or found.producer_id in producer_ids)
            and (states is None or found.state in states)
            and (longer_than_ms < 0 or now - found.start_time > longer_than_ms)
            and matches(found.transactional_id)
        ]
