"""Delivery reports: the thread that serves them, and the threads and coroutines that wait for them.

librdkafka calls back once for each record, each time with Python's lock, in the thread that polls. While one thread
sends without pause, another one that polls gets that lock every 5 ms only. So a busy sender serves reports itself every
few records and this thread steps aside; it polls when senders are idle or somebody waits. One thread polls at a time:
reports stay in order. Callbacks of the user's run only here, or on the event loop.
"""

import asyncio
import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from moldau.client.errors import ClientError, KafkaFailure, client_error
from moldau.client.producer.delivery import Outcome
from moldau.client.producer.failures import Connection
from moldau.client.producer.listeners import Listeners, Waiter

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka import Producer as KafkaProducer

logger = logging.getLogger("moldau.client.producer")

POLL_S = 0.02  # others wait for its end
IDLE_POLL_S = 0.15  # from 0.2 on confluent-kafka polls for the whole time, whatever comes
QUIET = 50  # polls without anything to serve
ASIDE_S = 0.01  # while senders serve reports themselves
PATIENCE = 16  # times that a sender lets the other thread serve reports
MANY = 1024  # records without report
SLICE_S = 0.1  # of a wait for room
STOP_S = 5.0  # for the callbacks that run
TICK_S = 1.0  # of a wait for an outcome
EXIT_FLUSH_S = 10.0  # for producers that nobody closed, at the end of the process

Call: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]


class ReportThread:
    """Serves the delivery reports of one librdkafka producer; is the `Reports` of its outcomes."""

    def __init__(self, kafka: "KafkaProducer", connection: Connection) -> None:
        self.connection = connection
        self.listeners = Listeners(self.call_later)
        self.loop: asyncio.AbstractEventLoop | None = None  # where callbacks run, if not in this thread
        self.on_room: Callable[[], object] | None = None  # the buffer may have room; called in any thread
        self.ended: ClientError | None = None  # why nothing can be waited for any more
        self._kafka = kafka
        self._exception = _kafka_exception()
        self._polling = threading.Lock()
        self._room = threading.Condition()
        self._wake = threading.Event()
        self._calls: deque[Call] = deque()
        self._calling = False
        self._served = 0  # times that senders served reports, or tried to
        self._missed = 0  # times in a row that they could not
        self._server: int | None = None  # the thread that did so last; None if it waits now
        self._mutex = threading.Lock()
        self._guests = 0  # threads that serve reports meanwhile: flush, commit
        self._abandoned = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="moldau-producer", daemon=True)
        _running.add(self)
        self._thread.start()

    # -- the thread

    def _run(self) -> None:
        served = quiet = 0
        while not (self._stopped or (self._abandoned and not len(self._kafka))):
            if self._guests or (self._server is not None and self._served != served):
                served = self._served
                self._wake.wait(ASIDE_S)
                self._wake.clear()
            else:
                quiet = 0 if self._poll_safely(POLL_S if quiet < QUIET else IDLE_POLL_S) else quiet + 1
            self._call()
        self._call()
        _running.discard(self)
        if self._abandoned:
            self.connection.drop_queued = None  # it refers to librdkafka's producer, which refers to it

    def _poll_safely(self, timeout: float) -> bool:
        """An error of this library's must not end the thread: everyone waits for it."""
        try:
            with self._polling:
                return self._poll(timeout)
        except Exception:
            logger.exception("Delivery reports could not be served; the producer goes on.")
            self._wake.wait(ASIDE_S)
            return False

    def _poll(self, timeout: float) -> bool:
        """Whether there was anything to serve."""
        try:
            served = self._kafka.poll(timeout)
        except self._exception as error:  # fatal errors come out of poll
            self.connection.on_fatal(error)
            served = 1
        if served:
            self._tell_room()
        return bool(served)

    def _tell_room(self) -> None:
        if self.on_room is not None:
            self.on_room()
        with self._room:
            self._room.notify_all()

    def _call(self) -> None:
        """Make the calls that wait: here, or all at once on the event loop."""
        if not self._calls:
            return
        if self.loop is None:
            self._calling = True
            while self._calls:
                _call_one(self._calls.popleft())
            self._calling = False
            return
        calls = [self._calls.popleft() for _ in range(len(self._calls))]
        try:
            self.loop.call_soon_threadsafe(_call_all, calls)
        except RuntimeError:
            logger.warning("The event loop was closed before %d outcomes of records were told.", len(calls))
            _call_all([call for call in calls if isinstance(call[0], Waiter)])

    def call_later(self, function: Callable[..., object], *arguments: object) -> None:
        """Call it in order with the callbacks of the user's."""
        self._calls.append((function, arguments))
        if not self._polling.locked():  # else the thread that polls looks after it
            self._wake.set()

    def abandon(self) -> None:
        """Nobody can use the producer any more: send what it has, then end."""
        self._abandoned = True

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        if not self._is_here():
            self._thread.join(STOP_S)
            if self._thread.is_alive():
                logger.warning("A callback of a producer has not returned for %g s; it is left alone.", STOP_S)

    def _is_here(self) -> bool:
        return threading.current_thread() is self._thread

    # -- for senders

    def serve(self) -> None:
        """Serve what is there, and keep the other thread from doing so while this one sends."""
        self._served += 1
        self._server = threading.get_ident()
        if not self._polling.acquire(blocking=False):
            self._missed += 1
            if self._missed < PATIENCE or self.loop is not None or len(self._kafka) < MANY:
                return
            # The other one has many reports to serve, and gets Python's lock for few of them: let it come to an end.
            self._missed = 0
            if not self._polling.acquire(timeout=POLL_S):
                return
        self._missed = 0
        try:
            self._poll(0)
        finally:
            self._polling.release()
        if self._calls:
            self._wake.set()

    def wait_for_room(self, timeout: float) -> None:
        """Wait until reports were served, or a moment has passed."""
        if self._is_here():  # a callback sends
            self._poll_here(timeout)
            return
        self.stop_serving()
        with self._room:
            self._room.wait(min(timeout, SLICE_S))

    def _poll_here(self, timeout: float) -> None:
        with self._polling:
            self._poll(max(0.0, min(timeout, POLL_S)))

    def stop_serving(self) -> None:
        """This thread will wait: let the other one serve reports."""
        if self._server == threading.get_ident():
            self._server = None
            self._missed = 0
        self._wake.set()

    @contextmanager
    def polling(self) -> Iterator[None]:
        """While entered, the only one that serves reports is the librdkafka function that this thread calls."""
        with self._guest(), self._polling:
            yield

    @contextmanager
    def _guest(self) -> Iterator[None]:
        with self._mutex:
            self._guests += 1
        try:
            yield
        finally:
            with self._mutex:
                self._guests -= 1
            self._tell_room()
            self._wake.set()

    def flush(self, deadline: float) -> int:
        """Wait until all records are reported and their callbacks have returned; the number of those that are not."""
        if not (len(self._kafka) or self._calls or self._calling):
            return 0
        with self._guest():
            while True:
                remains = deadline - time.monotonic()
                with self._polling:
                    left = self._flush(max(0.0, min(remains, POLL_S)))
                self._wake.set()
                if not left or remains <= 0:
                    break
                self._tell_room()
            if not self._is_here():
                waiter = Waiter()
                self.call_later(waiter)
                if not waiter.wait(deadline - time.monotonic()):
                    left = max(left, len(self._calls), 1)
        return left

    def _flush(self, timeout: float) -> int:
        try:
            return self._kafka.flush(timeout)
        except self._exception as error:
            self.connection.on_fatal(error)
            return len(self._kafka)

    # -- outcomes

    def failure(self, error: "KafkaError", about: str) -> KafkaFailure:
        return self.connection.explain(client_error(error, about))

    def wait(self, outcome: Outcome[Any], timeout: float | None) -> bool:
        """Whether the outcome is known in time."""
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        if self._is_here():  # a callback waits
            while not outcome.done() and time.monotonic() < deadline:
                self._poll_here(deadline - time.monotonic())
            return outcome.done()
        waiter = Waiter()
        self.listeners.add(outcome, waiter)
        try:
            self.stop_serving()
            while not waiter.wait(min(deadline - time.monotonic(), TICK_S)):
                if self.ended is not None:
                    raise self.ended
                if time.monotonic() >= deadline:
                    break
                self._check_report(outcome)
        finally:
            self.listeners.forget(outcome, waiter)
        return outcome.done()

    def _check_report(self, outcome: Outcome[Any]) -> None:
        """Ctrl-C may end a thread that serves reports in the middle of one."""
        with self._polling:
            lost = not outcome.done() and not len(self._kafka)
        if lost:
            self.listeners.fail(outcome, ClientError("its delivery report was lost, when Ctrl-C was pressed"), 1)

    async def wait_on_loop(self, outcome: Outcome[Any], seconds: float | None) -> bool:
        """The same for a coroutine."""
        known = asyncio.get_running_loop().create_future()

        def tell(_: object) -> None:
            if not known.done():
                known.set_result(None)

        self.listeners.add(outcome, tell)
        self.stop_serving()
        try:
            await asyncio.wait_for(known, seconds)
        except TimeoutError:
            return outcome.done()
        finally:
            self.listeners.forget(outcome, tell)
        return True


def _kafka_exception() -> "type[KafkaException]":
    from confluent_kafka import KafkaException

    return KafkaException


def _call_one(call: Call) -> None:
    function, arguments = call
    try:
        function(*arguments)
    except Exception:
        logger.exception("A callback of a producer raised: %s", getattr(function, "__qualname__", repr(function)))


def _call_all(calls: list[Call]) -> None:
    for call in calls:
        _call_one(call)


_running: set[ReportThread] = set()


def finish_all() -> None:
    """At the end of the process: send what is left, for a while."""
    deadline = time.monotonic() + EXIT_FLUSH_S
    for reports in list(_running):
        left = reports.flush(deadline)
        reports.stop()
        failed = reports.listeners.take_unseen()
        if left:
            logger.error("A producer was not closed, and %d records were not delivered before the process ended.", left)
        elif failed is not None:
            logger.error("A producer was not closed: %s", failed)


def forget_all() -> None:
    """In a child process, which has none of the threads."""
    _running.clear()


atexit.register(finish_all)
