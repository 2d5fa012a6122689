"""CoordinatorRuntime: decide → append → apply → reply. Knows nothing of groups or transactions.

A coordinator's state is in one internal topic. Each partition of it that this broker leads is a shard with a pure state
machine, loaded by replaying the log. The machine decides a command; the decision's records are appended as one batch,
then applied; its replies are sent once the batch is committed. If the append fails, nothing has happened and the client
gets a retriable error. If an append is lost with the leadership, the shard is closed before any reply was sent.

Decisions that do not depend on each other (commits of offsets) share a batch if they are made in one turn of the event
loop. It is appended at the end of the turn; any other use of the shard appends it first.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from moldau.base.coordination import INTERNAL_CALLER, Caller, Decision, Record, Timer, TimerFired, TimerKey
from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later, NowOrLater
from moldau.broker.coordinators.outcomes import failed
from moldau.broker.coordinators.partitioning import partition_of
from moldau.broker.coordinators.replay import replay
from moldau.broker.coordinators.shard import PendingAppend, PendingReply, Shard
from moldau.broker.coordinators.turn_batch import joined
from moldau.metadata.image import ClusterImage
from moldau.replication.appender import Appended, Outcome
from moldau.replication.leader import NOT_LEADER
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas

logger: Final = logging.getLogger("moldau.broker")

RETRY_MS = 1_000  # until a timer fires again after a failed append
APPEND_TIMEOUT_MS = 5_000  # a reply's wait for the commit, by default
MAX_PENDING_APPENDS = 10_000  # of one shard; clients' own limits keep the number far below
NOT_COORDINATOR: Final = WireError.NOT_COORDINATOR  # clients look up the coordinator again
TOO_MANY_PENDING: Final = Refusal(WireError.REQUEST_TIMED_OUT, "Too many appends wait for replicas.")

# The errors that clients get when an append fails; their retry rules know these.
CLIENT_ERRORS: Final = {
    WireError.KAFKA_STORAGE_ERROR: WireError.NOT_COORDINATOR,
    WireError.NOT_LEADER_OR_FOLLOWER: WireError.NOT_COORDINATOR,
    WireError.UNKNOWN_TOPIC_OR_PARTITION: WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.REQUEST_TIMED_OUT: WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.NOT_ENOUGH_REPLICAS: WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.INVALID_PRODUCER_EPOCH: WireError.INVALID_PRODUCER_EPOCH,  # a fenced producer
}
EXPECTED_ERRORS: Final = (WireError.INVALID_PRODUCER_EPOCH, WireError.NOT_LEADER_OR_FOLLOWER)  # logged at INFO


class StateMachine(Protocol):
    """A shard's state machine. Its `decide` needs an environment, so the coordinator passes it as a function."""

    def gathers(self, command: object) -> bool:
        """Whether the decision may share a batch with others of such commands.

        It has only records, replies and timers, and is the same whether theirs are applied or not.
        """

    def encode(self, record: Record) -> tuple[bytes, bytes | None]: ...
    def apply(self, change: object, producer_id: int = -1) -> None: ...
    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None: ...
    def end_transaction(self, producer_id: int, commit: bool) -> None: ...


M = TypeVar("M", bound=StateMachine)
C = TypeVar("C")  # commands
R = TypeVar("R")


class CoordinatorRuntime(Generic[M, C]):
    """The shards of one coordinator. `decide` and `loaded` call the machine with its environment."""

    def __init__(
        self,
        topic: str,
        replicas: Replicas,
        make: Callable[[], M],
        decide: Callable[[M, C | TimerFired, Caller, int], Decision],
        loaded: Callable[[M, int], Decision],
        now: Callable[[], int],
    ) -> None:
        self.topic = topic
        self.on_work: Callable[[Shard[M], object], None] | None = None  # does the work of committed decisions
        self.on_closed: Callable[[Shard[M]], None] | None = None
        self.append_timeout_ms: Callable[[], int] = lambda: APPEND_TIMEOUT_MS
        self._replicas = replicas
        self._make = make
        self._decide = decide
        self._loaded = loaded
        self._now = now
        self._token = topic.encode()
        self._shards: dict[int, Shard[M]] = {}
        self._running = False
        self._stopped = False
        self._load_lock = asyncio.Lock()  # one shard at a time: replay is bound by the interpreter lock
        self._settle_task: asyncio.Task[None] | None = None
        self._loaded_records = 0
        self._load_started = 0

    # ── finding ──

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic; 0 before it is created."""
        return len(self._replicas.by_name.get(self._token, ()))

    def find(self, key: str) -> Shard[M] | WireError:
        """The shard of a group or transactional id, or why there is none now."""
        partitions = self.partitions
        if not partitions:
            return WireError.NOT_COORDINATOR
        return self.at(partition_of(key, partitions))

    def at(self, index: int) -> Shard[M] | WireError:
        partition = self._replicas.find(self._replicas.by_name, self._token, index)
        shard = self._shards.get(index)
        if shard is not None and (shard.partition is not partition or not shard.current):
            self._close(shard)
        if partition is None or not partition.leads or partition.offline or self._stopped:
            return WireError.NOT_COORDINATOR
        shard = self._shards.get(index) or self._open(index, partition)
        return shard if shard.loading is None else WireError.COORDINATOR_LOAD_IN_PROGRESS

    def shards(self) -> Iterator[Shard[M] | WireError]:
        """The shards of this broker; an error for each that is loading."""
        found = (self.at(index) for index in range(self.partitions))
        return (each for each in found if each is not WireError.NOT_COORDINATOR)

    def loaded_shards(self) -> list[Shard[M]]:
        return [shard for shard in self._shards.values() if shard.loading is None]

    def is_open(self, shard: Shard[M]) -> bool:
        """Whether the shard is still open: work for a shard may outlive it."""
        return self._shards.get(shard.index) is shard

    # ── commands and reads ──

    def ask(self, key: str, command: C, caller: Caller, refused: Callable[[WireError], R]) -> NowOrLater[R]:
        """The reply to a command, now or later. Sets the caller's token."""
        shard = self.find(key)
        if isinstance(shard, WireError):
            return refused(shard)
        return self.ask_shard(shard, command, caller, refused)

    def ask_shard(
        self, shard: Shard[M], command: C, caller: Caller, refused: Callable[[WireError], R]
    ) -> NowOrLater[R]:
        machine = shard.machine
        gathers = machine.gathers(command)
        if not gathers and shard.turn_batch:
            self._append_turn_batch(shard)
            if shard.closed:
                return refused(NOT_COORDINATOR)
        reply: Later[R] = Later()
        pending_reply = PendingReply(reply, refused)
        _, version, client_id, client_host = caller
        decision = self._decide(machine, command, Caller(pending_reply, version, client_id, client_host), self._now())
        if gathers and decision.records and self._hold_back(shard, decision):
            shard.waiting.add(pending_reply)
            if shard.turn_batch.full:
                self._append_turn_batch(shard)
        elif not self._execute(shard, decision) or shard.closed:  # closed by the work of the decision
            reply.resolve(refused(NOT_COORDINATOR))  # a JoinGroup or SyncGroup that would have waited
        elif not reply.done:
            shard.waiting.add(pending_reply)
        return reply.result if reply.done else reply

    def read(self, key: str, query: Callable[[M], R], refused: Callable[[WireError], R]) -> NowOrLater[R]:
        """A view of the shard of a key; later if part of its state is not committed yet and may still be lost."""
        shard = self.find(key)
        return refused(shard) if isinstance(shard, WireError) else self._read(shard, query, refused)

    def read_all(self, query: Callable[[M], R], refused: Callable[[WireError], R]) -> list[NowOrLater[R]]:
        """A view of each shard of this broker, now or later; refused for each that is still loading."""
        return [
            refused(shard) if isinstance(shard, WireError) else self._read(shard, query, refused)
            for shard in self.shards()
        ]

    def _read(self, shard: Shard[M], query: Callable[[M], R], refused: Callable[[WireError], R]) -> NowOrLater[R]:
        self._append_turn_batch(shard)
        if shard.closed:
            return refused(NOT_COORDINATOR)
        view = query(shard.machine)
        if not shard.pending:
            return view
        reply: Later[R] = Later()
        pending_reply = PendingReply(reply, refused)
        shard.waiting.add(pending_reply)
        self._reply_with_last_append(shard, Decision(replies=[(pending_reply, view)]))
        return reply

    # ── decisions ──

    def run(self, shard: Shard[M], decide: Callable[[M], Decision]) -> Decision | None:
        """Decide and execute. None: nothing took effect, because the append failed or the shard was closed."""
        self._append_turn_batch(shard)
        if shard.closed:
            return None
        decision = decide(shard.machine)
        return decision if self._execute(shard, decision) else None

    def execute(self, shard: Shard[M], decision: Decision) -> bool:
        """Execute a decision that does not depend on the shard's state. As `run`: False if nothing took effect."""
        return self.run(shard, lambda machine: decision) is not None

    def _execute(self, shard: Shard[M], decision: Decision) -> bool:
        """Append, apply, set timers, reply. False: the append failed, and nothing of the decision took effect."""
        return self._carry_out(shard, decision, self._append(shard, decision) if decision.records else None)

    def _carry_out(self, shard: Shard[M], decision: Decision, outcome: NowOrLater[Outcome] | None) -> bool:
        """All but the append, of which this is the outcome; None: there was nothing to append."""
        refusal = failed(outcome)
        if refusal is not None:
            self._refuse(shard, decision, refusal)
            return False
        if shard.append_error is not None and decision.records:
            logger.info("Appends to %s-%d succeed again", self.topic, shard.index)
            shard.append_error = None
        machine = shard.machine
        for record in decision.records:
            machine.apply(record, decision.producer_id)
        for change in decision.transient:
            machine.apply(change)
        for timer in decision.timers:
            self._set_timer(shard, timer)
        if isinstance(outcome, Later):
            self._wait_for(shard, outcome, decision=decision)
        elif outcome is None and shard.pending and (decision.replies or shard.loading is not None):
            self._reply_with_last_append(shard, decision)  # it may depend on an append that is not committed
        else:
            self._reply(shard, decision)
        return True

    def marker_appended(
        self,
        shard: Shard[M],
        producer_id: int,
        commit: bool,
        outcome: NowOrLater[Outcome],
        done: Callable[[WireError], None],
    ) -> None:
        """Apply a marker that was appended to the shard's log. Call `done` when it is committed.

        Decisions that are held back come behind it in the log, so they are applied behind it, too.
        """
        shard.machine.end_transaction(producer_id, commit)
        if isinstance(outcome, Later):
            self._wait_for(shard, outcome, done)
        else:
            done(WireError.NONE)

    def _append(self, shard: Shard[M], decision: Decision) -> NowOrLater[Outcome]:
        if len(shard.pending) >= MAX_PENDING_APPENDS:
            return TOO_MANY_PENDING
        encode = shard.machine.encode
        records = [encode(record) for record in decision.records]
        return shard.partition.appender.append_records(
            records,
            self._now(),
            producer_id=decision.producer_id,
            producer_epoch=decision.producer_epoch,
            transactional=decision.producer_id >= 0,
        )

    def _reply(self, shard: Shard[M], decision: Decision) -> None:
        for token, response in decision.replies:
            if isinstance(token, PendingReply):
                shard.waiting.discard(token)
                self._resolve(token, response)
        for work in decision.work:
            if self.on_work is not None:
                self.on_work(shard, work)

    def _resolve(self, token: PendingReply, response: object) -> None:
        """Resolve one reply. An exception of its listener must not stop the others."""
        try:
            token.reply.resolve(response)
        except Exception:
            logger.exception("Sending a reply of %s failed", self.topic)

    def _refuse(self, shard: Shard[M], decision: Decision, refusal: Refusal) -> None:
        if refusal.error in EXPECTED_ERRORS:
            logger.info("Append to %s-%d failed: %s", self.topic, shard.index, refusal.message)
        elif refusal.error is not shard.append_error:  # one line until it changes: every request fails
            shard.append_error = refusal.error
            logger.error("Append to %s-%d failed, clients retry: %s", self.topic, shard.index, refusal.message)
        self._fail_replies(shard, decision, CLIENT_ERRORS.get(refusal.error, WireError.UNKNOWN_SERVER_ERROR))
        if not shard.current:  # the shard cannot append any more
            self._close(shard)

    def _fail_replies(self, shard: Shard[M], decision: Decision, error: WireError) -> None:
        """Answer the decision's callers with an error."""
        replies, decision.replies = decision.replies, []
        for token, _ in replies:
            if isinstance(token, PendingReply):
                shard.waiting.discard(token)
                self._resolve(token, token.refused(error))

    # ── one batch for the decisions of a turn ──

    def _hold_back(self, shard: Shard[M], decision: Decision) -> bool:
        """Whether the decision's records wait for the end of this turn of the loop."""
        if shard.turn_batch.begin():
            asyncio.get_running_loop().call_soon(self._end_turn, shard)
        return shard.turn_batch.add(decision)

    def _end_turn(self, shard: Shard[M]) -> None:
        shard.turn_batch.end_turn()
        self._append_turn_batch(shard)

    def _append_turn_batch(self, shard: Shard[M]) -> None:
        """Append, apply and answer what was held back. Until then nothing of it has happened."""
        if not shard.turn_batch:
            return
        decisions = shard.turn_batch.take()
        if not shard.current:  # it lost the leadership in this turn, and may even have it again in another epoch
            self._close(shard)
            return
        try:
            whole = joined(decisions)
            outcome = self._append(shard, whole)
            if isinstance(outcome, Refusal) and outcome.error is WireError.MESSAGE_TOO_LARGE and len(decisions) > 1:
                for each in decisions:
                    self._execute(shard, each)
            else:
                self._carry_out(shard, whole, outcome)
        except Exception:  # no request is being handled that could fail with it
            logger.exception("Writing decisions to %s-%d failed; its state is loaded again", self.topic, shard.index)
            self._close(shard)

    # ── pending appends ──

    def _wait_for(
        self,
        shard: Shard[M],
        later: Later[Outcome],
        done: Callable[[WireError], None] | None = None,
        decision: Decision | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        pending = PendingAppend(loop.time() + self.append_timeout_ms() / 1000, done)
        if decision is not None:
            pending.decisions.append(decision)
        shard.pending.append(pending)
        if shard.overdue is None:
            shard.overdue = loop.call_at(pending.deadline, self._expire_overdue, shard)
        later.then(lambda outcome: self._on_committed(shard, pending, outcome))

    def _reply_with_last_append(self, shard: Shard[M], decision: Decision) -> None:
        """Answer a decision without records when the last pending append is committed, within the usual timeout."""
        last = shard.pending[-1]
        if shard.overdue is None:  # all pending appends are overdue, and answered so
            loop = asyncio.get_running_loop()
            last.deadline = loop.time() + self.append_timeout_ms() / 1000
            shard.overdue = loop.call_at(last.deadline, self._expire_overdue, shard)
        last.decisions.append(decision)

    def _on_committed(self, shard: Shard[M], pending: PendingAppend, outcome: Outcome) -> None:
        """The outcome of an append. If it is committed, so are all appends before it; else it is lost."""
        if shard.closed or pending not in shard.pending:  # its callers were answered
            return
        refusal = failed(outcome)
        if refusal is not None:
            logger.log(
                logging.WARNING if refusal.error is WireError.KAFKA_STORAGE_ERROR else logging.INFO,
                "Records appended to %s-%d may not be committed: %s. The coordinator's state is dropped; clients look "
                "for the new coordinator.",
                self.topic,
                shard.index,
                refusal.message.rstrip("."),
            )
            self._close(shard)  # its machine has applied a lost record
            return
        done = False
        while not done and not shard.closed:
            first = shard.pending.popleft()
            done = first is pending
            if first.done is not None:
                first.done(WireError.NONE)
            for decision in first.decisions:
                self._reply(shard, decision)

    def _expire_overdue(self, shard: Shard[M]) -> None:
        """Answer overdue decisions with an error: clients retry. Their records may still be committed."""
        shard.overdue = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        error = CLIENT_ERRORS[WireError.REQUEST_TIMED_OUT]
        for pending in list(shard.pending):
            if pending.deadline > now:
                shard.overdue = loop.call_at(pending.deadline, self._expire_overdue, shard)
                break
            done, pending.done = pending.done, None
            decisions, pending.decisions = pending.decisions, []
            pending.decisions = [decision for decision in decisions if decision.work]
            if done is not None:
                done(WireError.REQUEST_TIMED_OUT)
            for decision in decisions:
                self._fail_replies(shard, decision, error)

    # ── timers ──

    def _set_timer(self, shard: Shard[M], timer: Timer) -> None:
        old = shard.timers.pop(timer.key, None)
        if old is not None:
            old.cancel()
        if timer.at is not None and not shard.closed:
            delay = max(timer.at - self._now(), 0) / 1000
            loop = asyncio.get_running_loop()
            shard.timers[timer.key] = loop.call_later(delay, self._on_timer, shard, timer.key, timer.at)

    def _on_timer(self, shard: Shard[M], key: TimerKey, at: int) -> None:
        due = shard.timers[key]
        self._append_turn_batch(shard)
        if shard.timers.get(key) is due:  # else a commit of this turn has set it anew: it counts as a heartbeat
            del shard.timers[key]
            self.fire(shard, key, max(self._now(), at))  # the wall clock may be behind the loop's

    def fire(self, shard: Shard[M], key: TimerKey, now: int) -> None:
        """Fire a timer of the machine. Retried while the append fails."""
        try:
            if self.run(shard, lambda machine: self._decide(machine, TimerFired(key), INTERNAL_CALLER, now)) is None:
                self._set_timer(shard, Timer(key, now + RETRY_MS))
        except Exception:
            logger.exception("Timer of %s-%d failed: %s", self.topic, shard.index, key)

    # ── loading and stopping ──

    def start(self) -> None:
        """Load the shards of all partitions that this broker leads."""
        self._running = True
        self._load_started = self._now()
        for _ in self.shards():
            pass

    def _open(self, index: int, partition: Partition) -> Shard[M]:
        shard = self._shards[index] = Shard(index, partition, self._make())
        if partition.log.end_offset > partition.log.start_offset:
            shard.task = shard.loading = asyncio.get_running_loop().create_task(self._load(shard))
        return shard

    async def _load(self, shard: Shard[M]) -> None:
        """Replay the log in a thread: the machine is not used elsewhere until it is loaded.

        The end of a new leader's log is not committed yet. It is applied all the same, and replies wait for the commit.
        """
        partition = shard.partition
        found: Later[Outcome] = Later()
        try:
            async with self._load_lock:
                count = await asyncio.to_thread(replay, shard, partition.log)
            if shard.closed or not shard.current:
                return
            end = partition.log.end_offset
            if partition.high_watermark < end:
                self._wait_for(shard, found)
            decision = self._loaded(shard.machine, self._now())
            if not self._execute(shard, decision):  # timers are needed even if the disk fails
                decision.records = []
                self._execute(shard, decision)
        except Exception:
            if not shard.closed:
                logger.exception("Loading %s-%d failed; unavailable until its leader changes", self.topic, shard.index)
            return  # it stays loading: half a state must not be served
        shard.loading = None
        self._loaded_records += count
        if all(each.loading is None for each in self._shards.values()):
            seconds = (self._now() - self._load_started) / 1000
            logger.info("Loaded %d records of %s in %.2f s", self._loaded_records, self.topic, seconds)
        await partition.await_committed(end)
        found.resolve(Appended(end, -1, 0) if shard.current else NOT_LEADER)

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """Close shards that this broker no longer leads, load those that it leads now."""
        if not self._running or old.topics.get(self.topic) is new.topics.get(self.topic):
            return
        if all(each.loading is None for each in self._shards.values()):
            self._load_started, self._loaded_records = self._now(), 0
        self._reconcile()
        if self._settle_task is not None:
            self._settle_task.cancel()
        self._settle_task = asyncio.get_running_loop().create_task(self._reconcile_when_settled())

    async def _reconcile_when_settled(self) -> None:
        """Partitions may still be opening."""
        await self._replicas.settled()
        self._reconcile()

    def _reconcile(self) -> None:
        for shard in list(self._shards.values()):
            if self._replicas.find(self._replicas.by_name, self._token, shard.index) is not shard.partition:
                self._close(shard)
        for _ in self.shards():
            pass

    def _close(self, shard: Shard[M]) -> None:
        if shard.closed:
            return
        if self.is_open(shard):
            del self._shards[shard.index]
        shard.closed = True
        if shard.task is not None:
            shard.task.cancel()
        for timer in (*shard.timers.values(), shard.overdue):
            if timer is not None:
                timer.cancel()
        shard.timers.clear()
        shard.turn_batch.take()  # not appended; those that wait for it are answered below
        pending, shard.pending = shard.pending, deque()
        for each in pending:
            if each.done is not None:
                each.done(WireError.NOT_LEADER_OR_FOLLOWER)
        waiting, shard.waiting = shard.waiting, set()
        for pending_reply in waiting:
            self._resolve(pending_reply, pending_reply.refused(NOT_COORDINATOR))
        if self.on_closed is not None:
            self.on_closed(shard)

    async def stop(self) -> None:
        self._stopped = True
        tasks = [shard.task for shard in self._shards.values() if shard.task is not None]
        for shard in list(self._shards.values()):
            self._append_turn_batch(shard)
            self._close(shard)
        if self._settle_task is not None:
            self._settle_task.cancel()
            tasks.append(self._settle_task)
        await asyncio.gather(*tasks, return_exceptions=True)
