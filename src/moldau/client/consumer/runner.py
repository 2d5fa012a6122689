"""Consumer.run: a handler for each message, in threads, with retries and dead letters. `async_runner` has tasks.

With `concurrency=1` the handler runs in the thread that calls `run`.
"""

import dataclasses
import inspect
import logging
import re
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from moldau.base.ids import Millis
from moldau.client.arguments import check_number
from moldau.client.consumer.dispatcher import Dispatcher, Wait
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.interrupts import deferred_interrupt
from moldau.client.consumer.lanes import AnyMessage, Job, Lanes, Order
from moldau.client.consumer.letters import Letters
from moldau.client.consumer.options import ConsumerOptions
from moldau.client.consumer.retries import Forward, Retry, TryAgain, judge
from moldau.client.consumer.subscriptions import PATTERN
from moldau.client.errors import InvalidUse

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[AnyMessage], object]

MOST_JOBS = 100  # of a partition in lanes; as many are taken at once
JOBS_PER_WORKER = 10  # or that many: more by key, because some have the same one; less at most once
REPEAT_S = 10.0  # failures of handlers are logged this often


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """What `run` needs to know beside the consumer's options."""

    concurrency: int = 1
    order: Order = "partition"
    retry: Retry | None = None

    def check(self, options: ConsumerOptions) -> None:
        """Raise `InvalidUse` for what makes no sense together."""
        check_number("concurrency", self.concurrency, 1)
        if self.order not in ("partition", "key"):
            raise InvalidUse(f"order={self.order!r} is not known; it is one of partition, key")
        retry = self.retry
        if retry is None:
            return
        if options.delivery != "at-least-once":
            raise InvalidUse(f"retry needs delivery='at-least-once', not {options.delivery!r}")
        if retry.topic is not None and options.group is None:
            raise InvalidUse("a retry topic needs a group: without one nothing is remembered of what was tried")
        if retry.dead is not None and _reads(options.topics, retry.dead):
            raise InvalidUse(f"the consumer reads {retry.dead} itself: its dead letters would never end")

    def dispatcher(self, engine: ConsumerEngine, wake: Callable[[int], None]) -> Dispatcher:
        drain = engine.options.delivery == "at-most-once"
        most = MOST_JOBS
        if drain:
            most = min(most, JOBS_PER_WORKER * self.concurrency)
        elif self.order == "key":
            most = max(most, JOBS_PER_WORKER * self.concurrency)
        lanes = Lanes(self.order, most, engine.options.buffer_bytes)
        return Dispatcher(engine, lanes, self.retry, wake, take=most, drain=drain)


class Judge:
    """What follows from a handler's exception, with a line in the log; for threads and tasks."""

    def __init__(self, retry: Retry | None) -> None:
        self._retry = retry
        self._silent_until = 0.0
        self._failures = 0

    def decide(self, job: Job, error: Exception) -> TryAgain | Forward | None:
        """None: the run is over."""
        now = Millis(time.time_ns() // 1_000_000)
        verdict = judge(self._retry, job.message, job.failures + 1, error, now)
        if isinstance(verdict, TryAgain):
            self._log(job, error, f"it is tried again in {verdict.delay_s:.1f} s")
        elif isinstance(verdict, Forward):
            self._log(job, error, f"it goes to {verdict.topic}")
        else:
            return None
        return verdict

    def _log(self, job: Job, error: Exception, follows: str) -> None:
        self._failures += 1
        now = time.monotonic()
        if now >= self._silent_until:
            text = "Handler failed (%d since the last line), now for %r: %s: %s; %s"
            logger.warning(text, self._failures, job.message, type(error).__name__, error, follows)
            self._silent_until, self._failures = now + REPEAT_S, 0


class Runner:
    """One `run` of a consumer, in threads."""

    def __init__(self, engine: ConsumerEngine, handler: Handler, options: RunOptions, letters: Letters) -> None:
        if not callable(handler):
            raise InvalidUse(f"{handler!r} is no handler: give a function of a message")
        self._engine = engine
        self._handler = handler
        self._concurrency = options.concurrency
        self._letters = letters
        self._judge = Judge(options.retry)
        self._changed = threading.Condition()
        self._changes = 0
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()
        self._dispatcher = options.dispatcher(engine, self._wake)

    def run(self) -> None:
        """Run until `stop`, `wakeup` or `close`, or until a handler fails."""
        try:
            self._letters.open(lambda: self._dispatcher.stopping)
            end = self._dispatcher.start()
            try:
                self._engine.start()
                with deferred_interrupt(self.stop):
                    if self._concurrency == 1:
                        self._work()
                    else:
                        self._work_in_threads()
                    if self._dispatcher.failure is not None:
                        raise self._dispatcher.failure
            finally:
                self.stop()
                end()
        finally:
            self._letters.close()
            self._over.set()

    def stop(self) -> None:
        """End the run after the messages in hand; from any thread or signal handler."""
        self._dispatcher.stop()

    def join(self, timeout: float) -> bool:
        """Wait for the end of the run; whether it came."""
        return self._over.wait(timeout)

    @property
    def inside(self) -> bool:
        """Whether the caller is a handler of this run."""
        return threading.current_thread() in self._threads

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _work_in_threads(self) -> None:
        # Daemons: the second Ctrl-C does not wait for them.
        names = (f"moldau-handler-{number}" for number in range(self._concurrency))
        self._threads = [threading.Thread(target=self._work_guarded, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def _work_guarded(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  # raised by `run`
            self._dispatcher.abort(error)

    def _work(self) -> None:
        if not self._threads:
            self._threads = [threading.current_thread()]
        while (job := self._next()) is not None:
            self._process(job)

    def _next(self) -> Job | None:
        while True:
            seen = self._changes
            found = self._dispatcher.next()
            if not isinstance(found, Wait):
                return found
            with self._changed:
                if seen == self._changes:
                    self._changed.wait(found.seconds)

    def _process(self, job: Job) -> None:
        try:
            result = self._handler(job.message)
        except Exception as error:  # noqa: BLE001  # judged
            self._failed(job, error)
        except BaseException as error:  # noqa: BLE001  # Ctrl-C, sys.exit: raised by `run`
            self._dispatcher.fail(job, error)
        else:
            if inspect.iscoroutine(result):
                result.close()
                self._dispatcher.fail(job, InvalidUse("the handler is a coroutine function: use AsyncConsumer"))
            else:
                self._dispatcher.done(job)

    def _failed(self, job: Job, error: Exception) -> None:
        verdict = self._judge.decide(job, error)
        if isinstance(verdict, TryAgain):
            self._dispatcher.postpone(job, verdict.delay_s)
        elif verdict is None:
            self._dispatcher.fail(job, error)
        else:
            try:
                self._letters.write(job.message, verdict)
            except BaseException as failure:  # noqa: BLE001  # raised by `run`
                failure.__cause__ = failure.__cause__ or error
                self._dispatcher.fail(job, failure)
            else:
                self._dispatcher.done(job)

    def _wake(self, workers: int) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify(workers)


def _reads(topics: tuple[str, ...], name: str) -> bool:
    return name in topics or any(topic.startswith(PATTERN) and re.search(topic, name) for topic in topics)
