"""Dispatcher: gives the messages of an engine to workers, lane by lane. Runs no handler: workers are threads or tasks.

Workers ask it for jobs and tell it the outcomes. A worker that finds nothing to do takes messages from the engine, so
there is no thread in between. A partition of which lanes have enough is passed over. If it makes no progress, it is
paused, and the engine drops what it has buffered of it, so that others can come. Messages of the retry topic that are
not due are such a case.

The engine is never called under the lock: a signal handler that wakes the consumer up may hold the engine's.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from moldau.base.ids import Millis, TopicPartition
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.lanes import AnyMessage, Job, Lanes
from moldau.client.consumer.rebalances import Partitions
from moldau.client.consumer.retries import Retry, wait_s
from moldau.client.errors import Closed

logger = logging.getLogger(__name__)

STUCK_S = 1.0  # without progress; then a partition is paused
TAKING_S = 10.0  # longest wait of a rebalance for messages that are being taken


class Wait(NamedTuple):
    """There is nothing to do: until woken, or until these seconds are over."""

    seconds: float | None


class Dispatcher:
    """`next` gives a job; each job ends by one of `done`, `postpone`, `fail` and `give_up`.

    `drain`: messages that were taken are processed, come what may; at-most-once needs that.
    """

    def __init__(
        self,
        engine: ConsumerEngine,
        lanes: Lanes,
        retry: Retry | None,
        wake: Callable[[int], None],
        *,
        take: int,
        drain: bool,
    ) -> None:
        self._engine = engine
        self._lanes = lanes
        self._retry = retry
        self._wake = wake  # so many workers, if they wait
        self._most = take  # messages at once
        self._drain = drain
        self._lock = threading.RLock()
        self._taken = threading.Condition(self._lock)
        self._arrived = True  # the engine may have messages
        self._taking = False
        self.stopping = False
        self._crowded: dict[TopicPartition, tuple[int, float]] = {}  # with its moves, and since when there were no more
        self._parked: set[TopicPartition] = set()  # of these, paused
        self._not_done: list[AnyMessage] = []
        self.failure: BaseException | None = None

    def start(self) -> Callable[[], None]:
        """Listen to the engine. Returns what ends that, to be called when workers have ended."""
        removers = (self._engine.add_listener(self._arrive), self._engine.on_revocation(self._revoke))

        def end() -> None:
            for remove in removers:
                remove()
            self._finish()

        return end

    # ── workers ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def next(self) -> Job | Wait | None:
        """The next job, or for how long there is none; None: the worker can go home."""
        while True:
            with self._lock:
                if self.stopping and (self._lanes.empty or not self._drain):
                    return None
                job = self._lanes.begin(time.monotonic)
                if job is not None:
                    return job
                stuck, pause_s = self._look_at_crowded(time.monotonic())
                take = self._arrived and not (self._taking or self.stopping or self._lanes.full)
                if take:
                    self._taking, self._arrived = True, False
                passed_over = frozenset(self._crowded)
            if stuck:
                self._park(stuck)
            if take:
                self._take(passed_over)
            elif not stuck:
                return Wait(pause_s)

    def done(self, job: Job) -> None:
        """The message was processed, or written to where it is tried again."""
        self._engine.done(job.message)
        self._end(job)

    def postpone(self, job: Job, delay_s: float) -> None:
        """The handler failed; try again in place."""
        with self._lock:
            stays = not (job.revoked or self.stopping)
            if stays:
                self._lanes.postpone(job, time.monotonic() + delay_s)
        if stays:
            self._wake(1)  # to look at the clock
        else:
            self.give_up(job)

    def fail(self, job: Job, error: BaseException) -> None:
        """The message was not processed, and the run is over."""
        self.give_up(job)
        self.abort(error)

    def abort(self, error: BaseException) -> None:
        """Stop, and let the run raise this, or what was the first."""
        with self._lock:
            first = self.failure is None
            if first:
                self.failure = error
        if not first:
            logger.error("The run is failing already; this happened too", exc_info=error)
        self.stop()

    def give_up(self, job: Job) -> None:
        """The message began and is not done; it will be handed out again."""
        if job.revoked:
            self._engine.give_back([job.message])
        else:
            with self._lock:
                self._not_done.append(job.message)
        self._end(job)

    def stop(self) -> None:
        """Let workers end after the job that they have; from any thread or signal handler."""
        self.stopping = True
        self._wake_all()

    # ── the poll thread ─────────────────────────────────────────────────────────────────────────────────────────────

    def _arrive(self) -> None:
        """There may be something to take; also called by signal handlers that wake the consumer up."""
        self._arrived = True
        self._wake(1)

    def _revoke(self, partitions: Partitions, lost: bool) -> None:
        """Give back what did not begin: the engine waits for the rest, unless the partitions are lost."""
        if self._drain:
            return
        gone = set(partitions)
        with self._lock:
            # What is being taken is in hand already, and not in a lane yet.
            self._taken.wait_for(lambda: not self._taking, TAKING_S)
            removed = self._lanes.withdraw(gone)
            # The run is failing, and these wait for its end.
            removed += [message for message in self._not_done if message.topic_partition in gone]
            self._not_done = [message for message in self._not_done if message.topic_partition not in gone]
            self._parked -= gone
            for tp in gone:
                self._crowded.pop(tp, None)
        self._engine.give_back(removed)
        if removed:
            logger.info("Gave back %d messages of revoked partitions that had not begun", len(removed))

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _finish(self) -> None:
        """At the end of the run: what was not processed is handed out again."""
        with self._lock:
            left = [*self._lanes.withdraw(), *self._not_done]
            self._not_done.clear()
            parked = set(self._parked)
            self._parked.clear()
        if left and not self._drain:
            self._engine.rewind(left)
        self._engine.unpark(parked)

    def _take(self, passed_over: frozenset[TopicPartition]) -> None:
        """Move messages from the engine to lanes; one worker at a time, so that they stay in order."""
        messages: list[AnyMessage] | None = None
        try:
            messages = self._engine.take_now(self._most, passed_over)
        except Closed:
            self.stopping = True
        except BaseException as error:  # noqa: BLE001  # raised at the end of the run
            self.abort(error)
        with self._lock:
            self._taking = False
            self._taken.notify_all()
            if messages:
                self._arrived = True  # there may be more
                self._add(messages)
            elif messages is not None:  # wakeup
                self.stopping = True
            idle = self._lanes.ready
        if self.stopping:
            self._wake_all()
        else:
            self._wake(idle + 1)

    def _add(self, messages: list[AnyMessage]) -> None:
        now, wall = time.monotonic(), Millis(time.time_ns() // 1_000_000)
        lanes, retry = self._lanes, self._retry
        tp, came = TopicPartition("", -1), set()
        for message in messages:
            if message.partition != tp.partition or message.topic != tp.topic:
                tp = message.topic_partition
                came.add(tp)
            left = wait_s(retry, message, wall) if retry is not None else 0.0
            lanes.add(message, tp, now + left if left else 0.0)
        for tp in came:
            if lanes.crowded(tp) and tp not in self._crowded:
                self._crowded[tp] = (lanes.moves(tp), now)

    def _end(self, job: Job) -> None:
        tp = job.partition
        with self._lock:
            self._lanes.end(job)
            roomy = tp in self._crowded and self._lanes.roomy(tp)
            parked = roomy and tp in self._parked
            if roomy:
                del self._crowded[tp]
                self._parked.discard(tp)
                self._arrived = True
        if parked:
            self._engine.unpark({tp})
        if roomy:
            self._wake(1)

    def _park(self, stuck: set[TopicPartition]) -> None:
        self._engine.park(stuck)
        with self._lock:
            moved = stuck - self._parked  # meanwhile
        if moved:
            self._engine.unpark(moved)

    def _look_at_crowded(self, now: float) -> tuple[set[TopicPartition], float | None]:
        """Partitions that are passed over and make no progress; and how long until there may be more to do."""
        stuck: set[TopicPartition] = set()
        due = self._lanes.next_due()
        times = [] if due is None else [due]
        for tp, (moves, since) in self._crowded.items():
            if tp in self._parked:
                continue
            if moves != self._lanes.moves(tp):
                moves, since = self._crowded[tp] = (self._lanes.moves(tp), now)
            if now - since >= STUCK_S:
                stuck.add(tp)
            else:
                times.append(since + STUCK_S)
        self._parked |= stuck
        return stuck, max(min(times) - now, 0.0) if times else None

    def _wake_all(self) -> None:
        self._wake(1 << 30)
