"""PollLoop: the thread that owns librdkafka's consumer. It polls whatever the body does, so membership never depends
on how long a message takes.

librdkafka's Python binding lets one thread at a time into a consumer, and another one may wait for long. So all calls
are made here, and other threads send functions (`call`).
"""

import collections
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.buffers import Run
from moldau.client.consumer.commits import Commits, OffsetAndMetadata
from moldau.client.consumer.handover import Handover
from moldau.client.consumer.options import ConsumerOptions
from moldau.client.consumer.partitions import for_librdkafka, neighbours
from moldau.client.consumer.rebalances import COMMIT_S, Rebalances
from moldau.client.consumer.subscriptions import PATTERN, Subscription
from moldau.client.errors import AuthenticationFailed, Closed, KafkaFailure, NotAuthorized, client_error
from moldau.client.settings import build

if TYPE_CHECKING:
    from confluent_kafka import Consumer as KafkaConsumer
    from confluent_kafka import KafkaError
    from confluent_kafka import Message as KafkaMessage
    from confluent_kafka import TopicPartition as KafkaPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
Call: TypeAlias = tuple[Callable[["KafkaConsumer"], object], "Future[Any] | None"]

CHUNK = 1000  # most messages that are handed over at once
POLL_S = 0.05  # longest poll, and so the longest wait of a call from another thread
BUSY_POLL_S = 0.002  # while calls come
BUSY_S = 1.0
ROOM_S = 1.0  # how long a full buffer is waited for before partitions are paused, which drops what is prefetched
CLOSE_S = 10.0
REPEAT_S = 60.0  # a problem that lasts is logged this often

PASSING = {"_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT"}


class PollLoop:
    """Polls, hands messages over, commits, and pauses partitions while the buffer is full."""

    def __init__(
        self,
        options: ConsumerOptions,
        handover: Handover,
        commits: Commits,
        rebalances: Rebalances,
        committable: Callable[[], dict[TopicPartition, OffsetAndMetadata]],
        subscription: Subscription,
    ) -> None:
        self._options = options
        self._handover = handover
        self._commits = commits
        self._rebalances = rebalances
        self._committable = committable
        self._subscription = subscription
        self._calls: collections.deque[Call] = collections.deque()
        self._busy_until = 0.0
        self._full_since: float | None = None
        self._throttled = False
        self._one_topic = len(options.topics) == 1 and not options.topics[0].startswith(PATTERN)
        self._average = 0  # bytes of a message, lately
        self._fetched: dict[TopicPartition, Offset] = {}  # after the last message that came
        self._next_commit = 0.0
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}  # asked for by this loop
        self._unreachable = False
        self.all_down = False  # librdkafka says that no broker can be reached
        self._silent_until: dict[tuple[str, str], float] = {}
        self._stopping = False
        self._ended = False
        self._close_by = 0.0
        self._consumer: KafkaConsumer | None = None
        self._thread: threading.Thread | None = None
        self._withheld = False  # whether somebody else fetches
        rebalances.paused = lambda partitions: partitions if self._throttled or self._withheld else ()
        rebalances.meanwhile = self._serve_waiting
        rebalances.released = self._forget

    # ── any thread ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        from confluent_kafka import Consumer as KafkaConsumer

        configuration = {**self._options.configuration, "error_cb": self._error, "on_commit": self._commits.answer}
        self._consumer = build(KafkaConsumer, configuration)
        self._thread = threading.Thread(target=self._run, name="moldau-consumer", daemon=True)
        self._thread.start()

    @property
    def inside(self) -> bool:
        """Whether the caller runs in the poll thread, such as a rebalance listener."""
        return self._thread is not None and threading.get_ident() == self._thread.ident

    @property
    def throttled(self) -> bool:
        """Whether partitions are paused because the buffer is full."""
        return self._throttled

    def call(self, function: Callable[["KafkaConsumer"], T]) -> T:
        """Run it in the poll thread, between two polls, and return its result."""
        if self.inside:
            assert self._consumer is not None
            return function(self._consumer)
        outcome: Future[T] = Future()
        self._calls.append((function, outcome))
        if self._ended:
            self._refuse_calls()
        self.nudge()
        return outcome.result()

    def post(self, function: Callable[["KafkaConsumer"], None]) -> None:
        """Run it in the poll thread, soon; the body gets its errors."""
        self._calls.append((function, None))
        self.nudge()

    def nudge(self) -> None:
        """There is something to do, and more may follow: poll only shortly for a while."""
        self._busy_until = time.monotonic() + BUSY_S
        with self._handover.changed:
            self._handover.changed.notify_all()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """For the user: hand out nothing of these partitions until they are resumed."""
        wanted = set(partitions)
        self._handover.pause(wanted)
        self.post(lambda consumer: consumer.pause(self._owned(wanted)))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = set(partitions)
        self._handover.resume(wanted)
        self.post(lambda consumer: self._resume(consumer, wanted))

    def park(self, partitions: Iterable[TopicPartition]) -> None:
        """For a run that has enough of these partitions: as `pause`, and independent of it."""
        wanted = set(partitions)
        self._handover.park(wanted)
        self.post(lambda consumer: consumer.pause(self._owned(wanted)))

    def unpark(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = set(partitions)
        self._handover.unpark(wanted)
        self.post(lambda consumer: self._resume(consumer, wanted))

    def stop(self, timeout: float) -> None:
        """Ask the thread to commit what is done, to leave the group, and to end."""
        self._rebalances.closing = True
        self._close_by = time.monotonic() + timeout
        self._stopping = True
        self.nudge()

    def join(self, timeout: float) -> bool:
        """Wait for the end of the thread; whether it ended in time."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    # ── the thread ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        consumer = self._consumer
        assert consumer is not None
        try:
            self._subscription.start(consumer)
            while not self._stopping:
                self._step(consumer)
        except Exception as error:  # noqa: BLE001  # the body must learn of it, or it would wait for ever
            failure = _as_client_error(error)
            self._handover.fail(failure)
            self._keep_answering(consumer, failure)
        finally:
            self._end(consumer)

    def _keep_answering(self, consumer: "KafkaConsumer", failure: Exception) -> None:
        """After a failure: calls are still served until the consumer is closed."""
        while not self._stopping:
            self._run_calls(consumer)
            self._commits.abandon(failure)
            with self._handover.changed:
                if not self._calls and not self._stopping:
                    self._handover.changed.wait(POLL_S)

    def _step(self, consumer: "KafkaConsumer") -> None:
        self._run_calls(consumer)
        self._apply_seeks(consumer)
        self._subscription.follow(consumer)
        now = time.monotonic()
        if now >= self._next_commit:
            self._next_commit = now + self._options.commit_interval_s
            self._commit_done()
        self._commits.issue(consumer)
        if self._has_room(consumer, now):
            self._read(consumer, BUSY_POLL_S if now < self._busy_until else POLL_S)

    def _read(self, consumer: "KafkaConsumer", timeout: float) -> None:
        first = consumer.poll(timeout)
        if first is None:
            return
        owner = self._handover.owner(_partition_of(first))
        most = min(CHUNK, self._handover.buffer.room(self._average))
        messages = consumer.consume(most - 1, 0) if most > 1 else []
        # A rebalance inside of consume may have taken the partition of the first message away.
        if self._handover.owner(_partition_of(first)) is owner:
            messages.insert(0, first)
        ends: dict[TopicPartition, Offset] = {}
        runs = self._runs(messages, ends)
        if runs:
            self._average = sum(run.size for run in runs) // len(messages)
            self._fetched |= {run.partition: (run.messages[-1].offset() or 0) + 1 for run in runs}
        if (runs or ends) and self._unreachable:
            self._unreachable = self.all_down = False
            logger.info("Brokers are reachable again")
        self._handover.put(runs)
        for tp, offset in ends.items():
            self._handover.reach_end(tp, offset)

    def _runs(self, messages: list["KafkaMessage"], ends: dict[TopicPartition, Offset]) -> list[Run["KafkaMessage"]]:
        """Messages by partition; the ends that were reached are added to `ends`."""
        from confluent_kafka import KafkaError
        from confluent_kafka import Message as KafkaMessage

        if any(map(KafkaMessage.error, messages)):
            for message in messages:
                if (error := message.error()) is None:
                    continue
                if error.code() == KafkaError._PARTITION_EOF:
                    ends[_partition_of(message)] = message.offset() or 0
                else:
                    self._trouble(error, message)
            messages = [message for message in messages if message.error() is None]
        runs = []
        start = 0
        for count in neighbours(messages, one_topic=self._one_topic):
            part = messages[start : start + count]
            runs.append(Run(_partition_of(part[0]), part, sum(map(len, part))))
            start += count
        return runs

    def _has_room(self, consumer: "KafkaConsumer", now: float) -> bool:
        """Whether to poll: always, but first the body gets a moment to make room."""
        buffer = self._handover.buffer
        if self._withheld:
            return True
        if self._throttled:
            if buffer.half_empty:
                self._throttled = False
                self._resume(consumer, self._handover.assignment())
            return True
        if not buffer.full:
            self._full_since = None
            return True
        if self._full_since is None:
            self._full_since = now
        left = self._full_since + min(ROOM_S, self._options.max_poll_interval_s / 3) - now
        if left > 0:
            waits = self._commits.pending  # for a callback, which only a poll brings, with one message more
            self._handover.wait_for_room(BUSY_POLL_S if waits else min(left, POLL_S))
            return waits
        self._full_since = None
        self._throttled = True
        consumer.pause(for_librdkafka(self._handover.assignment()))
        return True

    def _resume(self, consumer: "KafkaConsumer", partitions: set[TopicPartition]) -> None:
        """Resume partitions, and seek to where they are: librdkafka would notice only within a second.

        Those that are paused for another reason stay so.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as KafkaPartition

        if self._throttled or self._withheld:
            return
        partitions = partitions - self._handover.kept_back()
        consumer.resume(self._owned(partitions))
        sought = self._handover.due_seeks()
        for tp in partitions & self._fetched.keys():
            if tp not in sought:
                with contextlib.suppress(KafkaException):  # it may not be fetched yet, and then it is noticed
                    consumer.seek(KafkaPartition(tp.topic, tp.partition, self._fetched[tp]))

    def _serve_waiting(self, consumer: "KafkaConsumer") -> None:
        """Inside of a rebalance, which waits for the body: the body may wait for a call or a commit."""
        self._run_calls(consumer)
        self._commits.flush(consumer, {}, COMMIT_S)

    def withhold(self, consumer: "KafkaConsumer") -> None:
        """Fetch nothing until `release`: somebody else does, and this keeps the membership."""
        self._withheld, self._throttled = True, False
        consumer.pause(for_librdkafka(self._handover.assignment()))

    def release(self, consumer: "KafkaConsumer") -> None:
        self._withheld = False
        self._resume(consumer, self._handover.assignment() - self._handover.paused())

    def _run_calls(self, consumer: "KafkaConsumer") -> None:
        while self._calls:
            function, outcome = self._calls.popleft()
            try:
                result = function(consumer)
            except Exception as error:  # noqa: BLE001  # belongs to the caller
                if outcome is None:
                    self._handover.report(_as_client_error(error))
                else:
                    outcome.set_exception(_as_client_error(error))
            else:
                if outcome is not None:
                    outcome.set_result(result)

    def _refuse_calls(self) -> None:
        while self._calls:
            outcome = self._calls.popleft()[1]
            if outcome is not None:
                outcome.set_exception(Closed("the consumer was closed"))

    def _apply_seeks(self, consumer: "KafkaConsumer") -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka import TopicPartition as KafkaPartition

        for tp, offset in self._handover.due_seeks().items():
            if self._throttled or self._withheld or tp in self._handover.kept_back():
                continue  # it can wait, and resuming must not undo it
            self._fetched.pop(tp, None)
            try:
                consumer.seek(KafkaPartition(tp.topic, tp.partition, offset))
            except KafkaException as error:
                # The partition was assigned just now and is not being fetched yet: try again after the next poll.
                if error.args[0].code() == KafkaError._STATE:
                    continue
                self._handover.report(client_error(error))
            self._handover.sought(tp, offset)

    def _commit_done(self) -> None:
        """Commit what is done since the last time."""
        offsets = self._committable()
        changed = {tp: each for tp, each in offsets.items() if self._committed.get(tp) != each}
        self._committed = offsets
        if changed:
            self._commits.ask(changed)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._fetched.pop(tp, None)
            self._committed.pop(tp, None)

    def _owned(self, partitions: set[TopicPartition]) -> list["KafkaPartition"]:
        return for_librdkafka(partitions & self._handover.assignment())

    # ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _error(self, error: "KafkaError") -> None:
        """librdkafka's callback for errors of the whole client."""
        if error.name() in PASSING:
            self.all_down = self.all_down or error.name() == "_ALL_BROKERS_DOWN"
            if not self._unreachable:
                self._unreachable = True
                logger.warning("Brokers are not reachable (%s); goes on when they are back", client_error(error).name)
            return
        self._trouble(error)

    def _trouble(self, error: "KafkaError", message: "KafkaMessage | None" = None) -> None:
        from confluent_kafka import KafkaError

        failure = client_error(error)
        if self._options.group is None and failure.name == "GROUP_AUTHORIZATION_FAILED":
            logger.debug("Ignored, since there is no group: %s", failure)  # librdkafka looks for a coordinator anyway
        elif error.fatal() or error.code() == KafkaError._FATAL:
            self._handover.fail(failure)
        elif isinstance(failure, AuthenticationFailed | NotAuthorized) or error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._handover.report(failure)
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
            logger.error(
                "The poll thread was stopped for longer than max.poll.interval.ms; the group went on without it"
            )
        else:
            self._log(f" {message.topic()}" if message is not None and message.topic() else "", failure)

    def _log(self, topic: str, failure: KafkaFailure) -> None:
        """Log a problem that passes, and not again for a while."""
        now = time.monotonic()
        if now >= self._silent_until.get((topic, failure.name), now):
            self._silent_until[topic, failure.name] = now + REPEAT_S
            logger.warning("Problem while consuming%s: %s; goes on", topic, failure)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _end(self, consumer: "KafkaConsumer") -> None:
        try:
            self._commit_last(consumer)
            self._rebalances.committed = True
            consumer.close()
        except Exception as error:  # noqa: BLE001  # the thread ends in any case
            logger.warning("The consumer did not close cleanly: %s", _as_client_error(error))
        finally:
            self._handover.close()
            self._commits.abandon(Closed("the consumer was closed"))
            self._ended = True
            self._refuse_calls()

    def _commit_last(self, consumer: "KafkaConsumer") -> None:
        self._commits.ask(self._committable())
        while self._commits.pending and time.monotonic() < self._close_by:
            self._commits.issue(consumer)
            consumer.poll(BUSY_POLL_S)


def _partition_of(message: "KafkaMessage") -> TopicPartition:
    return TopicPartition(str(message.topic()), int(message.partition() or 0))


def _as_client_error(error: Exception) -> Exception:
    from confluent_kafka import KafkaException

    return client_error(error) if isinstance(error, KafkaException) else error
