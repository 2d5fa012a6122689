"""Commits of offsets: asked for by any thread, issued in order by the poll thread, retried in order.

librdkafka calls back with what it was given, so an outcome is matched with its commit by content. A commit that failed
for a passing reason is tried again for the partitions of which no later commit was issued.
"""

import collections
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.partitions import named, plain
from moldau.client.errors import ClientError, KafkaFailure, TimedOut, client_error

if TYPE_CHECKING:
    from confluent_kafka import Consumer as KafkaConsumer
    from confluent_kafka import KafkaError
    from confluent_kafka import TopicPartition as KafkaPartition

logger = logging.getLogger(__name__)

RETRY_S = 0.2
RETRYING_S = 30.0  # longest time for which a commit is tried again
WAIT_S = 60.0  # longest wait for the outcome of a commit
# Errors that pass: librdkafka calls some of them not retriable, because it leaves the decision to the application.
PASSING = {
    "REBALANCE_IN_PROGRESS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NETWORK_EXCEPTION",
    "REQUEST_TIMED_OUT",
    "UNSTABLE_OFFSET_COMMIT",
    "TRANSPORT",
    "TIMED_OUT",
    "TIMED_OUT_QUEUE",
    "WAIT_COORD",
}


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, the next one to read, with a text of the user's."""

    offset: Offset
    metadata: str = ""
    leader_epoch: int | None = None


Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Commit:
    """One commit, with its outcome when it has one."""

    def __init__(self, number: int, offsets: Offsets, now: float) -> None:
        self.number = number
        self.left = dict(offsets)  # partitions without an outcome
        self.until = now + RETRYING_S
        self.failure: Exception | None = None
        self._over = threading.Event()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def settle(self, partitions: Iterable[TopicPartition], failure: Exception | None = None) -> None:
        self.failure = self.failure or failure
        for tp in list(partitions):
            self.left.pop(tp, None)
        if not self.left:
            self._over.set()

    def wait(self, timeout: float = WAIT_S) -> None:
        """Wait for the outcome; raise its error."""
        if not self._over.wait(timeout):
            raise TimedOut(f"no outcome of a commit of {named(self.left)} within {timeout:.0f} s")
        if self.failure is not None:
            raise self.failure


class Commits:
    """Commits that are asked for, in flight, or waiting to be tried again."""

    def __init__(self, answered: Callable[[Offsets, ClientError | None], None] | None = None) -> None:
        self._asked: collections.deque[Commit] = collections.deque()
        self._in_flight: list[Commit] = []
        self._retries: list[tuple[float, Commit]] = []
        self._latest: dict[TopicPartition, int] = {}  # number of the latest commit that was issued
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._answered = answered
        self._failing = False

    def ask(self, offsets: Offsets) -> Commit:
        """Let the poll thread commit these; from any thread."""
        with self._lock:
            commit = Commit(next(self._numbers), offsets, time.monotonic())
            if not offsets:
                commit.settle(())
            else:
                self._asked.append(commit)
            return commit

    @property
    def pending(self) -> bool:
        return bool(self._asked or self._in_flight or self._retries)

    # ── the poll thread ─────────────────────────────────────────────────────────────────────────────────────────────

    def issue(self, consumer: "KafkaConsumer") -> None:
        """Issue what was asked for, and retries that are due."""
        while self._asked:
            self._issue(consumer, self._asked.popleft())
        if self._retries:
            now = time.monotonic()
            due = [commit for when, commit in self._retries if when <= now]
            self._retries = [(when, commit) for when, commit in self._retries if when > now]
            for commit in due:
                self._drop_superseded(commit)
                if not commit.over:
                    self._issue(consumer, commit)

    def answer(self, error: "KafkaError | None", partitions: list["KafkaPartition"]) -> None:
        """librdkafka's outcome of a commit."""
        content = dict(zip(plain(partitions), ((each.offset, each.metadata or "") for each in partitions), strict=True))
        for commit in self._in_flight:
            if {tp: (each.offset, each.metadata) for tp, each in commit.left.items()} == content:
                self._in_flight.remove(commit)
                self._settle(commit, error, partitions)
                return

    def flush(self, consumer: "KafkaConsumer", offsets: Offsets, timeout: float) -> None:
        """Commit these and all that is pending, and wait: for callbacks of librdkafka, inside of which it cannot poll.

        Errors are logged: nobody can act on them here.
        """
        self.ask(offsets)
        waiting = sorted([*self._in_flight, *(commit for _, commit in self._retries), *self._asked], key=_number)
        self._asked.clear()
        self._in_flight.clear()
        self._retries.clear()
        until = time.monotonic() + timeout
        merged = {tp: each for commit in waiting for tp, each in commit.left.items()}
        while merged:
            answers, error = _commit_and_wait(consumer, merged)
            failures = _failures(error, answers, merged)
            passing = {tp for tp, failure in failures.items() if failure.name in PASSING}
            for commit in waiting:
                self._report(commit, {tp: each for tp, each in failures.items() if tp not in passing})
                commit.settle([tp for tp in commit.left if tp not in failures])
            if committed := {tp: each for tp, each in merged.items() if tp not in failures}:
                self._tell(committed, None)
            merged = {tp: each for tp, each in merged.items() if tp in passing}
            if merged and time.monotonic() + RETRY_S >= until:
                for commit in waiting:
                    self._report(commit, {tp: failures[tp] for tp in merged})
                return
            if merged:
                time.sleep(RETRY_S)

    def abandon(self, failure: Exception) -> None:
        """Let all waiters know that there will be no outcome."""
        for commit in [*self._asked, *self._in_flight, *(commit for _, commit in self._retries)]:
            commit.settle(list(commit.left), failure)
        self._asked.clear()
        self._in_flight.clear()
        self._retries.clear()

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _issue(self, consumer: "KafkaConsumer", commit: Commit) -> None:
        from confluent_kafka import KafkaException

        for tp in commit.left:
            self._latest[tp] = max(commit.number, self._latest.get(tp, 0))
        self._in_flight.append(commit)
        try:
            consumer.commit(offsets=_listed(commit.left), asynchronous=True)
        except KafkaException as refused:
            self._in_flight.remove(commit)
            self._settle(commit, refused.args[0], [])

    def _settle(self, commit: Commit, error: "KafkaError | None", answers: list["KafkaPartition"]) -> None:
        offsets = dict(commit.left)
        failures = _failures(error, answers, offsets)
        commit.settle([tp for tp in offsets if tp not in failures])
        if not failures:
            if self._failing:
                self._failing = False
                logger.info("Commits succeed again")
            self._tell(offsets, None)
            return
        passing = {tp for tp, failure in failures.items() if failure.name in PASSING}
        self._report(commit, {tp: each for tp, each in failures.items() if tp not in passing})
        self._drop_superseded(commit)
        if commit.over:
            return
        now = time.monotonic()
        if now >= commit.until:
            self._report(commit, {tp: failures[tp] for tp in commit.left})
        else:
            self._retries.append((now + RETRY_S, commit))

    def _drop_superseded(self, commit: Commit) -> None:
        commit.settle([tp for tp in commit.left if self._latest.get(tp, 0) > commit.number])

    def _report(self, commit: Commit, failures: Mapping[TopicPartition, ClientError]) -> None:
        concerned = {tp: failures[tp] for tp in commit.left if tp in failures}
        if not concerned:
            return
        failure = next(iter(concerned.values()))
        if not self._failing:
            self._failing = True
            logger.warning("Commit of %s failed: %s; its records may be read again", named(concerned), failure)
        self._tell({tp: commit.left[tp] for tp in concerned}, failure)
        commit.settle(concerned, failure)

    def _tell(self, offsets: Offsets, failure: ClientError | None) -> None:
        if self._answered is not None:
            self._answered(offsets, failure)


def _number(commit: Commit) -> int:
    return commit.number


def _listed(offsets: Offsets) -> list["KafkaPartition"]:
    from confluent_kafka import TopicPartition as KafkaPartition

    return [
        KafkaPartition(
            tp.topic, tp.partition, each.offset, each.metadata, -1 if each.leader_epoch is None else each.leader_epoch
        )
        for tp, each in offsets.items()
    ]


def _commit_and_wait(consumer: "KafkaConsumer", offsets: Offsets) -> tuple[list["KafkaPartition"], "KafkaError | None"]:
    from confluent_kafka import KafkaException

    try:
        return consumer.commit(offsets=_listed(offsets), asynchronous=False), None
    except KafkaException as failed:
        return [], failed.args[0]


def _failures(
    error: "KafkaError | None", answers: list["KafkaPartition"], offsets: Offsets
) -> dict[TopicPartition, KafkaFailure]:
    """The errors of single partitions, or else the one of all."""
    failed = [each for each in answers if each.error is not None]
    found = {tp: client_error(each.error) for tp, each in zip(plain(failed), failed, strict=True) if each.error}
    if error is None or found:
        return found
    failure = client_error(error)
    return dict.fromkeys(offsets, failure)
