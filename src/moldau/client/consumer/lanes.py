"""Lanes: the order in which taken messages are processed. Pure: knows no threads, no engine, and no clock of its own.

Messages of one partition, or of one key, are one lane: one at a time, in the order in which they were added. Lanes do
not wait for each other; the one that was ready first is served first. A message that is not due waits outside of its
lane, and joins it then; one that failed waits inside, and what follows it too.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Hashable
from typing import Any, Literal, TypeAlias

from moldau.base.ids import TopicPartition
from moldau.client.message import Message

AnyMessage: TypeAlias = Message[Any, Any]
Order: TypeAlias = Literal["partition", "key"]

OVERHEAD_BYTES = 500  # of a message, beside its value


class Job:
    """A message on its way through a lane."""

    __slots__ = ("failures", "lane", "message", "partition", "revoked", "size")

    def __init__(self, message: AnyMessage, partition: TopicPartition) -> None:
        self.message = message
        self.partition = partition
        self.size = OVERHEAD_BYTES + len(message.record)
        self.failures = 0
        self.revoked = False  # its partition was withdrawn after it had begun
        self.lane: Lane | None = None  # None: it is not due


class Lane:
    """Jobs in order; the first one may be running."""

    __slots__ = ("jobs", "name", "running")

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.jobs: deque[Job] = deque()
        self.running = False


class Load:
    """What lanes have of one partition."""

    __slots__ = ("jobs", "moves", "size")

    def __init__(self) -> None:
        self.jobs = 0
        self.size = 0
        self.moves = 0  # jobs that were added or ended


class Lanes:
    """Jobs that wait and jobs that run, in lanes."""

    def __init__(self, order: Order, most_jobs: int, most_bytes: int) -> None:
        self._by_key = order == "key"
        self._most_jobs = most_jobs  # of one partition; they may grow past it by what is taken at once
        self._most_bytes = most_bytes  # of all
        self._lanes: dict[Hashable, Lane] = {}
        self._ready: deque[Lane] = deque()
        self._later: list[tuple[float, int, Lane | Job]] = []  # a heap: lanes whose first job failed, jobs not yet due
        self._numbers = itertools.count()
        self._loads: dict[TopicPartition, Load] = {}
        self._running: set[Job] = set()
        self.bytes = 0

    @property
    def empty(self) -> bool:
        return not self._loads

    @property
    def full(self) -> bool:
        return self.bytes >= self._most_bytes

    @property
    def ready(self) -> int:
        """Lanes that could begin a job now, at most."""
        return len(self._ready)

    def add(self, message: AnyMessage, partition: TopicPartition, due: float = 0.0) -> None:
        """Add a message behind those of its lane, now or when it is due; 0: now."""
        job = Job(message, partition)
        if due:
            self._wait(job, due)
        else:
            self._join(job)
        load = self._loads.get(partition)
        if load is None:
            load = self._loads[partition] = Load()
        load.jobs += 1
        load.moves += 1
        load.size += job.size
        self.bytes += job.size

    def begin(self, clock: Callable[[], float]) -> Job | None:
        """The next job; the lane waits for it until `end` or `postpone`."""
        if self._later:
            self._call_due(clock())
        if not self._ready:
            return None
        lane = self._ready.popleft()
        lane.running = True
        job = lane.jobs[0]
        self._running.add(job)
        return job

    def next_due(self) -> float | None:
        """When something goes on that waits for its time."""
        return self._later[0][0] if self._later else None

    def end(self, job: Job) -> None:
        """A job is over, whatever its outcome."""
        lane = self._stop(job)
        lane.jobs.popleft()
        self._unload(job)
        if lane.jobs:
            self._ready.append(lane)
        else:
            del self._lanes[lane.name]

    def postpone(self, job: Job, due: float) -> None:
        """A job failed: it stays first in its lane, and begins again at `due`."""
        job.failures += 1
        self._wait(self._stop(job), due)

    def withdraw(self, partitions: Collection[TopicPartition] | None = None) -> list[AnyMessage]:
        """Remove jobs that are not running: of these partitions, or all. Those that run are `revoked`."""
        removed: list[AnyMessage] = []
        for lane in list(self._lanes.values()):
            kept: deque[Job] = deque()
            for job in lane.jobs:
                if partitions is not None and job.partition not in partitions:
                    kept.append(job)
                elif job in self._running:
                    job.revoked = True
                    kept.append(job)
                else:
                    removed.append(job.message)
                    self._unload(job)
            lane.jobs = kept
            if not kept:
                del self._lanes[lane.name]
        later, self._later = self._later, []
        wait: set[Lane] = set()
        for due, _, each in later:
            if isinstance(each, Lane):
                if each.jobs and each.jobs[0].failures:  # the one that it waits for
                    self._wait(each, due)
                    wait.add(each)
            elif partitions is not None and each.partition not in partitions:
                self._wait(each, due)
            else:
                removed.append(each.message)
                self._unload(each)
        self._ready = deque(lane for lane in self._lanes.values() if not lane.running and lane not in wait)
        return removed

    # ── partitions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def crowded(self, partition: TopicPartition) -> bool:
        """Whether there is enough of a partition: its other messages should wait elsewhere."""
        load = self._loads.get(partition)
        return load is not None and (load.jobs >= self._most_jobs or load.size >= self._most_bytes // 8)

    def roomy(self, partition: TopicPartition) -> bool:
        """Whether more of a partition should come; not the contrary of `crowded`: there is something in between."""
        load = self._loads.get(partition)
        return load is None or (load.jobs <= self._most_jobs // 2 and load.size <= self._most_bytes // 16)

    def moves(self, partition: TopicPartition) -> int:
        """Changes whenever a message of the partition is added or ends."""
        load = self._loads.get(partition)
        return load.moves if load is not None else 0

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _call_due(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            waited = heapq.heappop(self._later)[2]
            if isinstance(waited, Job):
                self._join(waited)
            else:
                self._ready.append(waited)

    def _join(self, job: Job) -> None:
        name: Hashable = job.partition
        if self._by_key:
            # Messages without a key have no order among themselves.
            key = job.message.raw_key
            name = object() if key is None else key
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name)
            self._ready.append(lane)
        lane.jobs.append(job)
        job.lane = lane

    def _wait(self, waiting: Lane | Job, due: float) -> None:
        heapq.heappush(self._later, (due, next(self._numbers), waiting))

    def _stop(self, job: Job) -> Lane:
        self._running.remove(job)
        assert job.lane is not None
        job.lane.running = False
        return job.lane

    def _unload(self, job: Job) -> None:
        load = self._loads[job.partition]
        load.jobs -= 1
        load.moves += 1
        load.size -= job.size
        self.bytes -= job.size
        if not load.jobs:
            del self._loads[job.partition]
