"""The runtime of a coordinator: decide → append → apply → reply. Knows nothing of groups or transactions.

A coordinator's state lies in one topic. Each partition of it is a shard: a pure machine, fed by replaying the log. A
command is decided on the machine's state, what was decided is appended as one batch, then applied, and the replies go
out when the batch is committed. If the append fails nothing has happened, and whoever waited is told to try again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from moldau.base.coordination import Caller, Decision, Fired, Record, Timer, TimerKey
from moldau.base.errors import Refusal, WireError
from moldau.broker.coordinators.placing import partition_of
from moldau.broker.promise import Promise
from moldau.metadata.image import ClusterImage
from moldau.replication.partition import Later, Outcome, Partition
from moldau.replication.replicas import Replicas
from moldau.wire.batch import CONTROL, TRANSACTIONAL
from moldau.wire.records import ControlType, decode_control, iter_records

log = logging.getLogger("moldau.broker")

RETRY_MS = 1_000  # before a timer whose records could not be appended is tried again
LARGEST_BATCH = 256 * 1024 * 1024  # bytes that a batch of a coordinator's log may unpack to
STOPPED = WireError.NOT_COORDINATOR  # clients look for the coordinator anew

# What clients of a coordinator are told where its log refuses a write: their retry rules know these.
FAILED_APPENDS = {
    WireError.KAFKA_STORAGE_ERROR: WireError.NOT_COORDINATOR,
    WireError.NOT_LEADER_OR_FOLLOWER: WireError.NOT_COORDINATOR,
    WireError.UNKNOWN_TOPIC_OR_PARTITION: WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.REQUEST_TIMED_OUT: WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.INVALID_PRODUCER_EPOCH: WireError.INVALID_PRODUCER_EPOCH,  # no failure: the producer was replaced
}


class Machine(Protocol):
    """A shard's pure half. `decide` is called by the runtime's user through `Decide`, so it is not here."""

    def encode(self, record: Record) -> tuple[bytes, bytes | None]: ...
    def apply(self, change: Any, producer_id: int = -1) -> None: ...
    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None: ...
    def end_transaction(self, producer_id: int, commit: bool) -> None: ...


M = TypeVar("M", bound=Machine)


class Asked(NamedTuple):
    """The token of a command: who gets the reply, and how it is told that there will be none."""

    promise: Promise
    refused: Callable[[WireError], Any]


class Shard(Generic[M]):
    """One partition of the coordinator's topic: its machine, its timers, and who waits for it."""

    __slots__ = ("closed", "index", "loading", "machine", "partition", "timers", "unsafe", "waiting")

    def __init__(self, index: int, partition: Partition, machine: M) -> None:
        self.index = index
        self.partition = partition
        self.machine = machine
        self.loading: asyncio.Task[None] | None = None
        self.closed = False
        self.timers: dict[TimerKey, asyncio.TimerHandle] = {}
        self.waiting: set[Asked] = set()
        self.unsafe: list[Decision] | None = None  # the last one that the disk is waited for, and those that saw it


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
        self._replicas = replicas
        self._make = make
        self._decide = decide
        self._loaded = loaded
        self._now = now
        self._token = topic.encode()
        self._shards: dict[int, Shard[M]] = {}
        self._stopped = False
        self._turn = asyncio.Lock()  # one shard after the other: threads would only take turns, and the loop's as well
        self._loaded_records = 0
        self._started = 0

    # ── finding ──

    @property
    def partitions(self) -> int:
        """How many shards there are; 0 before the topic is created."""
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
        if shard is not None and (shard.partition is not partition or partition.offline):
            self._close(shard)
        if partition is None or partition.offline or self._stopped:
            return WireError.NOT_COORDINATOR
        shard = self._shards.get(index) or self._open(index, partition)
        return shard if shard.loading is None else WireError.COORDINATOR_LOAD_IN_PROGRESS

    def shards(self) -> Iterator[Shard[M] | WireError]:
        """All of them; an error for each that is still loading."""
        return (self.at(index) for index in range(self.partitions))

    def opened(self) -> list[Shard[M]]:
        """Those that are loaded."""
        return [shard for shard in self._shards.values() if shard.loading is None]

    def has(self, shard: Shard[M]) -> bool:
        """Whether it is still one of ours: work that was begun for a shard may outlive it."""
        return self._shards.get(shard.index) is shard

    # ── asking ──

    def ask(self, key: str, command: Any, caller: Caller, refused: Callable[[WireError], Any]) -> Any:
        """The reply to a command, or a Promise of it. The caller's token is set here."""
        shard = self.find(key)
        if isinstance(shard, WireError):
            return refused(shard)
        return self.ask_shard(shard, command, caller, refused)

    def ask_shard(self, shard: Shard[M], command: Any, caller: Caller, refused: Callable[[WireError], Any]) -> Any:
        asked = Asked(Promise(), refused)
        decision = self._decide(shard.machine, command, caller._replace(token=asked), self._now())
        if not self.carry_out(shard, decision):
            asked.promise.resolve(refused(STOPPED))  # it would have had to wait: the group does not know of it
        if asked.promise.done:
            return asked.promise.answer
        shard.waiting.add(asked)
        return asked.promise

    def carry_out(self, shard: Shard[M], decision: Decision) -> bool:
        """Append, apply, set timers, reply. False: the append failed, and nothing of the decision has happened."""
        outcome = self._append(shard, decision) if decision.records else None
        if isinstance(outcome, Refusal):
            self._refuse(shard, decision, outcome)
            return False
        machine = shard.machine
        for record in decision.records:
            machine.apply(record, decision.producer_id)
        for change in decision.passing:
            machine.apply(change)
        for timer in decision.timers:
            self._set(shard, timer)
        if isinstance(outcome, Later):
            shard.unsafe = together = [decision]
            outcome.tell = lambda settled: self._settle(shard, together, settled)
        elif outcome is None and shard.unsafe is not None:  # it may rest on what the disk has not got yet
            shard.unsafe.append(decision)
        else:
            self._reply(shard, decision)
        return True

    def _append(self, shard: Shard[M], decision: Decision) -> Outcome | Later:
        encode = shard.machine.encode
        records = [encode(record) for record in decision.records]
        return shard.partition.append_records(
            records,
            self._now(),
            producer_id=decision.producer_id,
            producer_epoch=decision.producer_epoch,
            transactional=decision.producer_id >= 0,
        )

    def _settle(self, shard: Shard[M], together: list[Decision], outcome: Outcome) -> None:
        if shard.unsafe is together:
            shard.unsafe = None
        for decision in together:
            if shard.closed:  # whoever waited was told so
                return
            if isinstance(outcome, Refusal):
                self._refuse(shard, decision, outcome)
            else:
                self._reply(shard, decision)

    def _reply(self, shard: Shard[M], decision: Decision) -> None:
        for token, response in decision.replies:
            if isinstance(token, Asked):
                shard.waiting.discard(token)
                token.promise.resolve(response)
        for work in decision.work:
            if self.on_work is not None:
                self.on_work(shard, work)

    def _refuse(self, shard: Shard[M], decision: Decision, refusal: Refusal) -> None:
        level = logging.INFO if refusal.error is WireError.INVALID_PRODUCER_EPOCH else logging.ERROR
        log.log(level, "%s-%d could not be written: %s", self.topic, shard.index, refusal.message)
        error = FAILED_APPENDS.get(refusal.error, WireError.UNKNOWN_SERVER_ERROR)
        for token, _ in decision.replies:
            if isinstance(token, Asked):
                shard.waiting.discard(token)
                token.promise.resolve(token.refused(error))
        if shard.partition.offline:  # nothing will ever be written to it again: no timer need try
            self._close(shard)

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
            decision = self._decide(shard.machine, Fired(key), Caller(None, 0, "", ""), now)
            if not self.carry_out(shard, decision):
                self._set(shard, Timer(key, now + RETRY_MS))
        except Exception:
            log.exception("a timer of %s-%d failed: %s", self.topic, shard.index, key)

    # ── loading and stopping ──

    def start(self) -> None:
        """Begin to load every shard that there is."""
        self._started = self._now()
        for _ in self.shards():
            pass

    def _open(self, index: int, partition: Partition) -> Shard[M]:
        shard = self._shards[index] = Shard(index, partition, self._make())
        if partition.log.end_offset > partition.log.start_offset:
            shard.loading = asyncio.get_running_loop().create_task(self._load(shard))
        return shard

    async def _load(self, shard: Shard[M]) -> None:
        """Replay the log in a thread: nobody else knows the machine before it is loaded."""
        try:
            async with self._turn:
                count = await asyncio.to_thread(replay, shard)
            decision = self._loaded(shard.machine, self._now())
            if not self.carry_out(shard, decision):  # what lives on its timers does not wait for the disk
                self.carry_out(shard, replace(decision, records=[]))
        except Exception:
            log.exception("%s-%d could not be loaded: its groups or transactions wait", self.topic, shard.index)
            return  # it stays loading: a coordinator that has forgotten half of its state must not answer
        shard.loading = None
        self._loaded_records += count
        if all(each.loading is None for each in self._shards.values()):
            seconds = (self._now() - self._started) / 1000
            log.info("loaded %d records of %s in %.2f s", self._loaded_records, self.topic, seconds)

    def follow(self, image: ClusterImage) -> None:
        """The image changed: shards whose partition is gone end with it."""
        if self._shards and self.topic not in image.topics:
            for shard in list(self._shards.values()):
                self._close(shard)

    def _close(self, shard: Shard[M]) -> None:
        self._shards.pop(shard.index, None)
        shard.closed = True
        if shard.loading is not None:
            shard.loading.cancel()
        for timer in shard.timers.values():
            timer.cancel()
        shard.timers.clear()
        waiting, shard.waiting = shard.waiting, set()
        for asked in waiting:
            asked.promise.resolve(asked.refused(STOPPED))

    async def stop(self) -> None:
        self._stopped = True
        loading = [shard.loading for shard in self._shards.values() if shard.loading is not None]
        for shard in list(self._shards.values()):
            self._close(shard)
        await asyncio.gather(*loading, return_exceptions=True)


def replay(shard: Shard[M]) -> int:
    """Feed a machine all records of its log, in a thread, until somebody closes it. Returns how many there were."""
    machine, stored = shard.machine, shard.partition.log
    count = 0
    for header, batch in stored.read_batches(stored.start_offset):
        if shard.closed:
            break
        if header.attributes & CONTROL:
            _replay_markers(header.producer_id, batch, machine)
            continue
        producer_id = header.producer_id if header.attributes & TRANSACTIONAL else -1
        for record in iter_records(batch, limit=LARGEST_BATCH):
            if record.key is not None:
                machine.replay(record.key, record.value, producer_id)
                count += 1
    return count


def _replay_markers(producer_id: int, batch: memoryview | bytes, machine: Machine) -> None:
    for record in iter_records(batch, limit=LARGEST_BATCH):
        kind = decode_control(record).type
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            machine.end_transaction(producer_id, kind is ControlType.COMMIT)
