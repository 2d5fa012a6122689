"""Commits keep their order: a retry never overtakes a later commit of the same partition.

librdkafka is a recorder here: a test decides how each commit ends.
"""

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from moldau.base.ids import TopicPartition
from moldau.client.consumer import commits as module
from moldau.client.consumer.commits import Commits, OffsetAndMetadata, Offsets
from moldau.client.errors import ClientError, Closed, KafkaFailure, TimedOut

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LOADING = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
ILLEGAL = KafkaError(KafkaError.ILLEGAL_GENERATION)


class Recorder:
    """librdkafka's consumer: remembers commits, and fails those that are waited for with `errors`."""

    def __init__(self) -> None:
        self.issued: list[list[KafkaPartition]] = []
        self.errors: list[KafkaError | None] = []

    def commit(self, offsets: list[KafkaPartition], asynchronous: bool) -> list[KafkaPartition] | None:
        self.issued.append(offsets)
        if asynchronous:
            return None
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise KafkaException(error)
        return offsets

    def offsets(self) -> list[dict[int, int]]:
        return [{each.partition: each.offset for each in issued} for issued in self.issued]


class Answer:
    """librdkafka's outcome for one partition; its own class does not let a test set the error."""

    def __init__(self, tp: TopicPartition, offset: int, error: KafkaError | None = None) -> None:
        self.topic, self.partition, self.offset, self.error = *tp, offset, error
        self.metadata = None


@pytest.fixture
def consumer() -> Recorder:
    return Recorder()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    return Commits()


def at(**offsets: int) -> Offsets:
    return {{"a": A, "b": B}[name]: OffsetAndMetadata(offset) for name, offset in offsets.items()}


def test_a_commit_is_over_when_librdkafka_says_so(commits: Commits, consumer: Recorder) -> None:
    commit = commits.ask({A: OffsetAndMetadata(3, "text")})
    commits.issue(consumer)
    assert not commit.over
    with pytest.raises(TimedOut, match="t-0"):
        commit.wait(0)
    commits.answer(None, consumer.issued[0])
    commit.wait(0)
    assert not commits.pending


def test_a_failed_commit_is_issued_again(commits: Commits, consumer: Recorder) -> None:
    commit = commits.ask(at(a=3))
    commits.issue(consumer)
    commits.answer(LOADING, consumer.issued[0])
    commits.issue(consumer)
    assert consumer.offsets() == [{0: 3}, {0: 3}]
    commits.answer(None, consumer.issued[1])
    commit.wait(0)


def test_a_retry_is_dropped_when_a_later_commit_was_issued(commits: Commits, consumer: Recorder) -> None:
    first = commits.ask(at(a=3, b=30))
    second = commits.ask(at(a=5))
    commits.issue(consumer)
    commits.answer(LOADING, consumer.issued[0])
    commits.issue(consumer)
    assert consumer.offsets() == [{0: 3, 1: 30}, {0: 5}, {1: 30}]
    commits.answer(None, consumer.issued[2])
    first.wait(0)
    commits.answer(None, consumer.issued[1])
    second.wait(0)


def test_an_error_that_does_not_pass_is_raised(commits: Commits, consumer: Recorder) -> None:
    commit = commits.ask(at(a=3))
    commits.issue(consumer)
    commits.answer(ILLEGAL, consumer.issued[0])
    with pytest.raises(KafkaFailure, match="ILLEGAL_GENERATION"):
        commit.wait(0)
    assert not commits.pending


def test_errors_of_single_partitions(commits: Commits, consumer: Recorder) -> None:
    """One partition is committed, one is tried again: the outcome waits for both."""
    commit = commits.ask(at(a=3, b=30))
    commits.issue(consumer)
    commits.answer(None, [Answer(A, 3), Answer(B, 30, LOADING)])  # type: ignore[list-item]
    assert not commit.over
    commits.issue(consumer)
    assert consumer.offsets()[1] == {1: 30}
    commits.answer(None, consumer.issued[1])
    commit.wait(0)


def test_flush_commits_the_latest_of_all_that_is_pending(commits: Commits, consumer: Recorder) -> None:
    in_flight = commits.ask(at(a=3, b=30))
    commits.issue(consumer)
    asked = commits.ask(at(a=5))
    commits.flush(consumer, at(b=31), 1)
    assert consumer.offsets() == [{0: 3, 1: 30}, {0: 5, 1: 31}]
    in_flight.wait(0)
    asked.wait(0)
    commits.answer(ILLEGAL, consumer.issued[0])  # late, and of no interest any more
    assert not commits.pending


def test_flush_tries_again(commits: Commits, consumer: Recorder) -> None:
    consumer.errors = [LOADING, None]
    commits.flush(consumer, at(a=3), 1)
    assert consumer.offsets() == [{0: 3}, {0: 3}]


def test_flush_gives_up_in_time_and_tells(commits: Commits, consumer: Recorder) -> None:
    waiting = commits.ask(at(a=3))
    consumer.errors = [LOADING]
    commits.flush(consumer, {}, 0)
    with pytest.raises(KafkaFailure, match="COORDINATOR_LOAD_IN_PROGRESS"):
        waiting.wait(0)


def test_waiters_learn_that_the_consumer_was_closed(commits: Commits, consumer: Recorder) -> None:
    in_flight = commits.ask(at(a=3))
    commits.issue(consumer)
    asked = commits.ask(at(b=3))
    commits.abandon(Closed("closed"))
    for commit in (in_flight, asked):
        with pytest.raises(Closed):
            commit.wait(0)


def test_nothing_to_commit_is_over_at_once(commits: Commits) -> None:
    commits.ask({}).wait(0)
    assert not commits.pending


def test_outcomes_are_told(consumer: Recorder) -> None:
    told: list[tuple[Offsets, ClientError | None]] = []
    commits = Commits(lambda offsets, failure: told.append((offsets, failure)))
    commits.ask(at(a=3))
    commits.ask(at(b=4))
    commits.issue(consumer)
    commits.answer(None, consumer.issued[0])
    commits.answer(ILLEGAL, consumer.issued[1])
    (first, none), (second, failure) = told
    commits.flush(consumer, at(a=5), 1)
    assert told[2] == (at(a=5), None)
    assert (first, none, second) == (at(a=3), None, at(b=4))
    assert failure is not None
    assert failure.name == "ILLEGAL_GENERATION"
