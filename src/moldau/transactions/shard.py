"""All transactional ids of one partition of `__transaction_state`: which function decides a command, and what is so.

Only `apply` changes it. The runtime appends what was decided before it applies it, and carries out the work (markers,
producer ids) that a decision leaves to others.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from moldau.base.coordination import Caller, Decision, Fired, Record, Timer
from moldau.base.errors import WireError
from moldau.transactions import adding, ending, records
from moldau.transactions.commands import AddPartitions, MarkersWritten, ProducerIdGiven, timeout_key
from moldau.transactions.env import Env
from moldau.transactions.initialize import initialize
from moldau.transactions.records import TransactionLogKey
from moldau.transactions.state import (
    NO_PRODUCER,
    ONGOING,
    PREPARED,
    RESTING,
    LastEpoch,
    TopicPartition,
    Transaction,
    TransactionState,
    transaction_of,
)
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest

MOST_TOMBSTONES = 1_000  # of one call of `expire`: they are one batch, and a batch may not be too large

DECIDES: dict[type, Callable[[Transaction | None, Any, Caller, Env], Decision]] = {
    InitProducerIdRequest: initialize,
    AddPartitions: adding.add,
    EndTxnRequest: ending.end,
    MarkersWritten: ending.markers_written,
}


class TransactionShard:
    __slots__ = ("transactions",)

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}

    def decide(self, command: Any, caller: Caller, env: Env) -> Decision:
        if isinstance(command, ProducerIdGiven):
            command, env = command.command, replace(env, producer_id=command.producer_id)
        if isinstance(command, Fired):
            return self._fired(command, caller, env)
        return DECIDES[type(command)](self.transactions.get(command.transactional_id), command, caller, env)

    def _fired(self, command: Fired, caller: Caller, env: Env) -> Decision:
        kind, transactional_id = command.key
        transaction = self.transactions.get(transactional_id)
        if kind == "timeout":
            return ending.time_out(transaction, command, caller, env)
        if transaction is None or transaction.state not in PREPARED:
            return Decision()
        return Decision(work=[ending.markers_of(transaction)])

    # ── what is so ──

    def apply(self, change: Any, producer_id: int = NO_PRODUCER) -> None:
        if isinstance(change, LastEpoch):
            known = self.transactions[change.transactional_id]
            self.transactions[change.transactional_id] = known._replace(last_producer_epoch=change.producer_epoch)
            return
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
        """Nobody writes to `__transaction_state` within a transaction, so a marker in it means nothing."""

    def loaded(self, env: Env) -> Decision:
        """After a restart: time goes on for what is open, and what was decided gets its markers."""
        return Decision(
            timers=[Timer(timeout_key(open_.transactional_id), open_.deadline) for open_ in self._in({ONGOING})],
            work=[ending.markers_of(prepared) for prepared in self._in(PREPARED)],
        )

    def expire(self, env: Env) -> Decision:
        """Forget ids that nobody used for transactional.id.expiration.ms; call it again while it finds many."""
        before = env.now - env.config.id_expiration_ms
        expired = [found for found in self._in(RESTING) if found.update_time <= before]
        return Decision(
            records=[
                Record(TransactionLogKey(transactional_id=found.transactional_id), None)
                for found in expired[:MOST_TOMBSTONES]
            ]
        )

    def _in(self, states: Collection[TransactionState]) -> Iterator[Transaction]:
        return (transaction for transaction in self.transactions.values() if transaction.state in states)

    # ── reads ──

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, WireError]:
        found = self.transactions.get(transactional_id)
        return adding.verify(found, transactional_id, producer_id, producer_epoch, partitions)

    def listed(
        self,
        states: Collection[TransactionState] | None,
        producer_ids: Collection[int],
        longer_than_ms: int,
        matches: Callable[[str], bool],
        now: int,
    ) -> list[Transaction]:
        """ListTransactions; None for states, no producer ids and a negative duration mean any."""
        return [
            found
            for found in self.transactions.values()
            if (not producer_ids or found.producer_id in producer_ids)
            and (states is None or found.state in states)
            and (longer_than_ms < 0 or now - found.start_time > longer_than_ms)
            and matches(found.transactional_id)
        ]
