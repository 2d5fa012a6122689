"""A transaction shard without a broker: decisions are applied at once, and the log is a list."""

from typing import Any

from moldau.base.coordination import INTERNAL_CALLER, Caller, Decision, TimerFired, TimerKey
from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.transactions.commands import (
    AddPartitions,
    AllocateProducerId,
    MarkersWritten,
    ProducerIdAllocated,
    WriteMarkers,
)
from moldau.transactions.environment import TransactionConfig, TransactionEnvironment
from moldau.transactions.shard import TransactionShard
from moldau.transactions.state import Transaction
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FIRST_PRODUCER_ID = 1000


class TransactionMachine:
    """Drives a shard. With `hold_markers` the work of writing markers waits in `markers` until `write_markers`."""

    def __init__(self, config: TransactionConfig | None = None, hold_markers: bool = False) -> None:
        self.config = config or TransactionConfig()
        self.hold_markers = hold_markers
        self.shard = TransactionShard()
        self.now = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.markers: list[WriteMarkers] = []  # not written yet
        self.written: list[WriteMarkers] = []
        self._next_producer_id = FIRST_PRODUCER_ID

    def ask(self, command: Any, version: int = 5) -> Any:
        """The reply to a command."""
        replies: list[Any] = []
        self._run(command, Caller(replies, version, "client", "127.0.0.1"))
        assert len(replies) == 1, f"{command} got {len(replies)} replies"
        return replies[0]

    def _run(self, command: Any, caller: Caller) -> None:
        self.execute(self.shard.decide(command, caller, TransactionEnvironment(self.now, self.config)))

    def execute(self, decision: Decision) -> None:
        for record in decision.records:
            self.log.append(self.shard.encode(record))
            self.shard.apply(record)
        for change in decision.transient:
            self.shard.apply(change)
        for timer in decision.timers:
            if timer.at is None:
                self.timers.pop(timer.key, None)
            else:
                self.timers[timer.key] = timer.at
        for token, response in decision.replies:
            assert isinstance(token, list)
            token.append(response)
        for work in decision.work:
            self._work(work)

    def _work(self, work: Any) -> None:
        if isinstance(work, AllocateProducerId):
            self._next_producer_id += 1
            self._run(ProducerIdAllocated(work.command, self._next_producer_id - 1), work.caller)
        else:
            self.markers.append(work)
            if not self.hold_markers:
                self.write_markers()

    def write_markers(self) -> None:
        while self.markers:
            done = self.markers.pop(0)
            self.written.append(done)
            command = MarkersWritten(done.transactional_id, done.producer_id, done.producer_epoch)
            self._run(command, INTERNAL_CALLER)

    def wait(self, ms: int) -> None:
        """Move the clock; timers fire in order."""
        until = self.now + ms
        while due := sorted((at, key) for key, at in self.timers.items() if at <= until):
            at, key = due[0]
            self.now = max(self.now, at)
            del self.timers[key]
            self._run(TimerFired(key), INTERNAL_CALLER)
        self.now = until

    def restart(self) -> None:
        """Restart the process: only the log is kept."""
        self.shard, self.timers, self.markers = self.replayed(), {}, []
        self.execute(self.shard.loaded(TransactionEnvironment(self.now, self.config)))

    def replayed(self) -> TransactionShard:
        shard = TransactionShard()
        for key, value in self.log:
            shard.replay(key, value)
        return shard

    def durable(self) -> dict[str, Transaction]:
        """The state that a restart keeps."""
        return {name: found._replace(last_producer_epoch=-1) for name, found in self.shard.transactions.items()}

    def __getitem__(self, transactional_id: str) -> Transaction:
        return self.shard.transactions[transactional_id]

    # ── short forms of requests ──

    def init(
        self, name: str, producer: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000, version: int = 5
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        response = self.ask(request, version)
        assert isinstance(response, InitProducerIdResponse)
        return response

    def begin(self, name: str, **settings: Any) -> tuple[int, int]:
        """InitProducerId; return producer id and epoch."""
        response = self.init(name, **settings)
        assert response.error_code == 0, response
        return response.producer_id, response.producer_epoch

    def add(
        self, name: str, producer: tuple[int, int], *partitions: TopicPartition, client_version: int = 2
    ) -> WireError:
        error = self.ask(
            AddPartitions(name, *producer, frozenset(partitions or {TopicPartition("t", 0)}), client_version)
        )
        assert isinstance(error, WireError)
        return error

    def end(self, name: str, producer: tuple[int, int], commit: bool, version: int = 5) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        response = self.ask(request, version)
        assert isinstance(response, EndTxnResponse)
        return response
