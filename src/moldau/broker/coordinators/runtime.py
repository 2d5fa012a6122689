"""The runtime of a coordinator: decide → append → apply → reply. Knows nothing of groups or transactions.

A coordinator's state lies in one topic. Each partition of it that this broker leads is a shard: a pure machine, fed by
replaying the log. A command is decided on the machine's state, what was decided is appended as one batch, then applied,
and the replies go out when the batch is committed. If the append fails nothing has happened, and whoever waited is told
to try again. If what was appended is lost with the leadership, so is the shard: nobody has heard of it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from moldau.base.coordination import Caller, Decision, Fired, Record, Timer, TimerKey
from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later, NowOrLater
from moldau.broker.coordinators.outcomes import failed
from moldau.broker.coordinators.placing import partition_of
from moldau.broker.coordinators.replay import replay
from moldau.broker.coordinators.shard import Asked, Pending, Shard
from moldau.metadata.image import ClusterImage
from moldau.replication.partition import Appended, Outcome, Partition
from moldau.replication.replicas import Replicas

log = logging.getLogger("moldau.broker")

RETRY_MS = 1_000  # before a timer whose records could not be appended is tried again
PATIENCE_MS = 5_000  # how long a reply may wait for replicas, unless the coordinator says otherwise
PENDING_AT_MOST = 10_000  # appends of one shard that are not committed; clients' own limits keep it far below
NOBODY = Caller(None, 0, "", "")  # who decides by a timer, or for the broker itself
STOPPED = WireError.NOT_COORDINATOR  # clients look for the coordinator anew
LOST = Refusal.of(WireError.NOT_LEADER_OR_FOLLOWER)
CROWDED = Refusal(WireError.REQUEST_TIMED_OUT, "too much waits for replicas")

# What clients of a coordinator are told where its log refuses a write: their retry rules know these.
FAILED_APPENDS = {
    WireError.KAFKA_STORAGE_ERROR: WireError.NOT_COORDINATOR,
    WireError.NOT_LEADER_OR_FOLLOWER: WireError.NOT_COORDINATOR,
    WireError.UNKNOWN_TOPIC_OR_PARTITION: WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.REQUEST_TIMED_OUT: WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.NOT_ENOUGH_REPLICAS: WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.INVALID_PRODUCER_EPOCH: WireError.INVALID_PRODUCER_EPOCH,  # no failure: the producer was replaced
}
NO_FAULT = (WireError.INVALID_PRODUCER_EPOCH, WireError.NOT_LEADER_OR_FOLLOWER)  # as things go: no error in our log


class Machine(Protocol):
    """A shard's pure half. `decide` is called by the runtime's user through `Decide`, so it is not here."""

    def encode(self, record: Record) -> tuple[bytes, bytes | None]: ...
    def apply(self, change: Any, producer_id: int = -1) -> None: ...
    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None: ...
    def end_transaction(self, producer_id: int, commit: bool) -> None: ...


M = TypeVar("M", bound=Machine)
R = TypeVar("R")


class Runtime(Generic[M]):
    """The shards of one coordinator. `decide` is its machine's, which the coordinator gives its surroundings."""

    def __init__(
        self,
        topic: str,
        replicas: Replicas,
        make: Callable[[], M],
        decide: Callable[[M, Any, Caller, int], Decision],
        loaded: Callable[[M, int], Decision],
        now: Callable[[], int],
    ) -> None:
        self.topic = topic
        self.on_work: Callable[[Shard[M], Any], None] | None = None  # told what a decision leaves others to do
        self.on_closed: Callable[[Shard[M]], None] | None = None
        self.patience_ms: Callable[[], int] = lambda: PATIENCE_MS
        self._replicas = replicas
        self._make = make
        self._decide = decide
        self._loaded = loaded
        self._now = now
        self._token = topic.encode()
        self._shards: dict[int, Shard[M]] = {}
        self._running = False
        self._stopped = False
        self._turn = asyncio.Lock()  # one shard after the other: threads would only take turns, and the loop's as well
        self._settling: asyncio.Task[None] | None = None
        self._loaded_records = 0
        self._started = 0

    # ── finding ──

    @property
    def partitions(self) -> int:
        """How many shards there are in the cluster; 0 before the topic is created."""
        return len(self._replicas.by_name.get(self._token, ()))

    def find(self, key: str) -> Shard[M] | WireError:
        """The shard of a group or transactional id, or why it cannot be asked now."""
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
        """Those of this broker; an error for each that is still loading."""
        found = (self.at(index) for index in range(self.partitions))
        return (each for each in found if each is not WireError.NOT_COORDINATOR)

    def opened(self) -> list[Shard[M]]:
        """Those that are loaded."""
        return [shard for shard in self._shards.values() if shard.loading is None]

    def has(self, shard: Shard[M]) -> bool:
        """Whether it is still one of ours: work that was begun for a shard may outlive it."""
        return self._shards.get(shard.index) is shard

    # ── asking ──

    def ask(self, key: str, command: Any, caller: Caller, refused: Callable[[WireError], R]) -> NowOrLater[R]:
        """The reply to a command, now or later. The caller's token is set here."""
        shard = self.find(key)
        if isinstance(shard, WireError):
            return refused(shard)
        return self.ask_shard(shard, command, caller, refused)

    def ask_shard(
        self, shard: Shard[M], command: Any, caller: Caller, refused: Callable[[WireError], R]
    ) -> NowOrLater[R]:
        reply: Later[R] = Later()
        asked = Asked(reply, refused)
        decision = self._decide(shard.machine, command, caller._replace(token=asked), self._now())
        if not self.carry_out(shard, decision):
            reply.resolve(refused(STOPPED))  # it would have had to wait: the group does not know of it
        elif shard.closed:  # what followed from it has ended the shard
            reply.resolve(refused(STOPPED))
        if reply.done:
            return reply.result
        shard.waiting.add(asked)
        return reply

    def read(self, key: str, look: Callable[[M], R], refused: Callable[[WireError], R]) -> NowOrLater[R]:
        """A view of the shard of a key; later if part of its state is not committed yet and may still be lost."""
        shard = self.find(key)
        return refused(shard) if isinstance(shard, WireError) else self._seen(shard, look, refused)

    def read_all(self, look: Callable[[M], R], refused: Callable[[WireError], R]) -> list[NowOrLater[R]]:
        """A view of each shard of this broker, now or later; refused for each that is still loading."""
        return [
            refused(shard) if isinstance(shard, WireError) else self._seen(shard, look, refused)
            for shard in self.shards()
        ]

    def _seen(self, shard: Shard[M], look: Callable[[M], R], refused: Callable[[WireError], R]) -> NowOrLater[R]:
        view = look(shard.machine)
        if not shard.pending:
            return view
        reply: Later[R] = Later()
        asked = Asked(reply, refused)
        shard.waiting.add(asked)
        self._hold_back(shard, Decision(replies=[(asked, view)]))
        return reply

    # ── carrying out ──

    def carry_out(self, shard: Shard[M], decision: Decision) -> bool:
        """Append, apply, set timers, reply. False: the append failed, and nothing of the decision has happened."""
        outcome = self._append(shard, decision) if decision.records else None
        refusal = failed(outcome)
        if refusal is not None:
            self._refuse(shard, decision, refusal)
            return False
        machine = shard.machine
        for record in decision.records:
            machine.apply(record, decision.producer_id)
        for change in decision.passing:
            machine.apply(change)
        for timer in decision.timers:
            self._set(shard, timer)
        if isinstance(outcome, Later):
            self._wait_for(shard, outcome, decision=decision)
        elif outcome is None and shard.pending and (decision.replies or shard.loading is not None):
            self._hold_back(shard, decision)  # it may rest on what is not committed yet
        else:
            self._reply(shard, decision)
        return True

    def marked(
        self,
        shard: Shard[M],
        producer_id: int,
        commit: bool,
        outcome: NowOrLater[Outcome],
        told: Callable[[WireError], None],
    ) -> None:
        """A marker was appended to the shard's log, and counts from here on; `told` hears when it is committed."""
        shard.machine.end_transaction(producer_id, commit)
        if isinstance(outcome, Later):
            self._wait_for(shard, outcome, told)
        else:
            told(WireError.NONE)

    def _append(self, shard: Shard[M], decision: Decision) -> NowOrLater[Outcome]:
        if len(shard.pending) >= PENDING_AT_MOST:
            return CROWDED
        encode = shard.machine.encode
        records = [encode(record) for record in decision.records]
        return shard.partition.append_records(
            records,
            self._now(),
            producer_id=decision.producer_id,
            producer_epoch=decision.producer_epoch,
            transactional=decision.producer_id >= 0,
        )

    def _reply(self, shard: Shard[M], decision: Decision) -> None:
        for token, response in decision.replies:
            if isinstance(token, Asked):
                shard.waiting.discard(token)
                self._answer(token, response)
        for work in decision.work:
            if self.on_work is not None:
                self.on_work(shard, work)

    def _answer(self, token: Asked, response: Any) -> None:
        """An answer that trips over a bug of ours must not keep others from theirs, nor the log from going on."""
        try:
            token.reply.resolve(response)
        except Exception:
            log.exception("a reply of %s failed", self.topic)

    def _refuse(self, shard: Shard[M], decision: Decision, refusal: Refusal) -> None:
        level = logging.INFO if refusal.error in NO_FAULT else logging.ERROR
        log.log(level, "%s-%d could not be written: %s", self.topic, shard.index, refusal.message)
        self._send_away(shard, decision, FAILED_APPENDS.get(refusal.error, WireError.UNKNOWN_SERVER_ERROR))
        if not shard.current:  # nothing will be written by it ever again: no timer need try
            self._close(shard)

    def _send_away(self, shard: Shard[M], decision: Decision, error: WireError) -> None:
        """Whoever waits for this decision waits no longer."""
        replies, decision.replies = decision.replies, []
        for token, _ in replies:
            if isinstance(token, Asked):
                shard.waiting.discard(token)
                self._answer(token, token.refused(error))

    # ── what is not committed yet ──

    def _wait_for(
        self,
        shard: Shard[M],
        later: Later[Outcome],
        told: Callable[[WireError], None] | None = None,
        decision: Decision | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        pending = Pending(loop.time() + self.patience_ms() / 1000, told)
        if decision is not None:
            pending.decisions.append(decision)
        shard.pending.append(pending)
        if shard.overdue is None:
            shard.overdue = loop.call_at(pending.deadline, self._look_for_overdue, shard)
        later.then(lambda outcome: self._settle(shard, pending, outcome))

    def _hold_back(self, shard: Shard[M], decision: Decision) -> None:
        """Nothing was appended for it: it is answered with the last that was, and waits no longer than others do."""
        last = shard.pending[-1]
        if shard.overdue is None:  # all that wait are overdue, and whoever asked for them was told so
            loop = asyncio.get_running_loop()
            last.deadline = loop.time() + self.patience_ms() / 1000
            shard.overdue = loop.call_at(last.deadline, self._look_for_overdue, shard)
        last.decisions.append(decision)

    def _settle(self, shard: Shard[M], pending: Pending, outcome: Outcome) -> None:
        """What was appended is committed, and so is all that lies before it in the log; or else it is lost."""
        if shard.closed or pending not in shard.pending:  # whoever waited was told so
            return
        refusal = failed(outcome)
        if refusal is not None:
            log.info("%s-%d was not committed: %s", self.topic, shard.index, refusal.message)
            self._close(shard)  # its machine tells of what is not so
            return
        done = False
        while not done and not shard.closed:
            first = shard.pending.popleft()
            done = first is pending
            if first.told is not None:
                first.told(WireError.NONE)
            for decision in first.decisions:
                self._reply(shard, decision)

    def _look_for_overdue(self, shard: Shard[M]) -> None:
        """Replicas take too long: clients come again. What they asked for may still be done, as after any time-out."""
        shard.overdue = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        error = FAILED_APPENDS[WireError.REQUEST_TIMED_OUT]
        for pending in list(shard.pending):
            if pending.deadline > now:
                shard.overdue = loop.call_at(pending.deadline, self._look_for_overdue, shard)
                break
            told, pending.told = pending.told, None
            decisions, pending.decisions = pending.decisions, []
            pending.decisions = [decision for decision in decisions if decision.work]
            if told is not None:
                told(WireError.REQUEST_TIMED_OUT)
            for decision in decisions:
                self._send_away(shard, decision, error)

    # ── timers ──

    def _set(self, shard: Shard[M], timer: Timer) -> None:
        old = shard.timers.pop(timer.key, None)
        if old is not None:
            old.cancel()
        if timer.at is not None and not shard.closed:
            delay = max(timer.at - self._now(), 0) / 1000
            loop = asyncio.get_running_loop()
            shard.timers[timer.key] = loop.call_later(delay, self._fire, shard, timer.key, timer.at)

    def _fire(self, shard: Shard[M], key: TimerKey, at: int) -> None:
        del shard.timers[key]
        self.wake(shard, key, max(self._now(), at))  # the loop's clock and the wall's may differ: what is due is due

    def wake(self, shard: Shard[M], key: TimerKey, now: int) -> None:
        """As if this timer of the machine were due: again and again, until what it leads to can be written."""
        try:
            decision = self._decide(shard.machine, Fired(key), NOBODY, now)
            if not self.carry_out(shard, decision):
                self._set(shard, Timer(key, now + RETRY_MS))
        except Exception:
            log.exception("a timer of %s-%d failed: %s", self.topic, shard.index, key)

    # ── loading and stopping ──

    def start(self) -> None:
        """Begin to load every shard that there is."""
        self._running = True
        self._started = self._now()
        for _ in self.shards():
            pass

    def _open(self, index: int, partition: Partition) -> Shard[M]:
        shard = self._shards[index] = Shard(index, partition, self._make())
        if partition.log.end_offset > partition.log.start_offset:
            shard.task = shard.loading = asyncio.get_running_loop().create_task(self._load(shard))
        return shard

    async def _load(self, shard: Shard[M]) -> None:
        """Replay the log in a thread: nobody else knows the machine before it is loaded.

        What a new leader finds in its log is not all committed at first. It counts, so replies wait until it is.
        """
        partition = shard.partition
        found: Later[Outcome] = Later()
        try:
            async with self._turn:
                count = await asyncio.to_thread(replay, shard, partition.log)
            if shard.closed or not shard.current:
                return
            end = partition.log.end_offset
            if partition.high_watermark < end:
                self._wait_for(shard, found)
            decision = self._loaded(shard.machine, self._now())
            if not self.carry_out(shard, decision):  # what lives on its timers does not wait for the disk
                self.carry_out(shard, replace(decision, records=[]))
        except Exception:
            if not shard.closed:
                log.exception("%s-%d could not be loaded: its groups or transactions wait", self.topic, shard.index)
            return  # it stays loading: a coordinator that has forgotten half of its state must not answer
        shard.loading = None
        self._loaded_records += count
        if all(each.loading is None for each in self._shards.values()):
            seconds = (self._now() - self._started) / 1000
            log.info("loaded %d records of %s in %.2f s", self._loaded_records, self.topic, seconds)
        await partition.committed(end)
        found.resolve(Appended(end, -1, 0) if shard.current else LOST)

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """The image changed: shards that this broker does not lead any more end, those that it leads now are loaded."""
        if not self._running or old.topics.get(self.topic) is new.topics.get(self.topic):
            return
        if all(each.loading is None for each in self._shards.values()):
            self._started, self._loaded_records = self._now(), 0
        self._look_after()
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().create_task(self._look_again())

    async def _look_again(self) -> None:
        """Partitions may still be being opened."""
        await self._replicas.settled()
        self._look_after()

    def _look_after(self) -> None:
        for shard in list(self._shards.values()):
            if self._replicas.find(self._replicas.by_name, self._token, shard.index) is not shard.partition:
                self._close(shard)
        for _ in self.shards():
            pass

    def _close(self, shard: Shard[M]) -> None:
        if shard.closed:
            return
        if self.has(shard):
            del self._shards[shard.index]
        shard.closed = True
        if shard.task is not None:
            shard.task.cancel()
        for timer in (*shard.timers.values(), shard.overdue):
            if timer is not None:
                timer.cancel()
        shard.timers.clear()
        pending, shard.pending = shard.pending, deque()
        for each in pending:
            if each.told is not None:
                each.told(WireError.NOT_LEADER_OR_FOLLOWER)
        waiting, shard.waiting = shard.waiting, set()
        for asked in waiting:
            self._answer(asked, asked.refused(STOPPED))
        if self.on_closed is not None:
            self.on_closed(shard)

    async def stop(self) -> None:
        self._stopped = True
        tasks = [shard.task for shard in self._shards.values() if shard.task is not None]
        for shard in list(self._shards.values()):
            self._close(shard)
        if self._settling is not None:
            self._settling.cancel()
            tasks.append(self._settling)
        await asyncio.gather(*tasks, return_exceptions=True)
