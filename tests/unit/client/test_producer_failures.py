"""Failures that nobody looked at, and what a producer knows of its connection."""

import logging

import pytest
from confluent_kafka import KafkaError

from moldau.client.errors import AuthenticationFailed, ClientError, DeliveryFailed, KafkaFailure, client_error
from moldau.client.producer import failures
from moldau.client.producer.delivery import MOST_ERRORS
from moldau.client.producer.failures import Connection, UnseenFailures

LINES = "moldau.client.producer"
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
REFUSED = KafkaError(KafkaError._TRANSPORT, "b:1: Connection refused")
WRONG = KafkaError(KafkaError._AUTHENTICATION, "b:1: Authentication failed")


def test_failures_are_counted_until_they_are_taken() -> None:
    unseen = UnseenFailures()
    assert unseen.take() is None
    errors = [ClientError(str(number)) for number in range(MOST_ERRORS + 5)]
    for error in errors:
        unseen.add(error, 1)
    mark = unseen.mark
    found = unseen.take()
    assert found is not None
    assert (found.count, found.errors) == (MOST_ERRORS + 5, errors[:MOST_ERRORS]), "only the first ones are kept"
    assert unseen.mark is not mark, "outcomes from before cannot be discarded any more"
    assert unseen.take() is None


def test_a_failure_that_is_looked_at_is_discarded() -> None:
    unseen, errors = UnseenFailures(), [ClientError("a"), ClientError("b")]
    for error in errors:
        unseen.add(error, 1)
    unseen.discard(errors[0], 1)
    found = unseen.take()
    assert found is not None
    assert (found.count, found.errors) == (1, [errors[1]])


def test_failures_of_many_records_count_as_many() -> None:
    unseen, inner = UnseenFailures(), [ClientError("a"), ClientError("b")]
    unseen.add(DeliveryFailed(7, inner), 7)
    unseen.add(ClientError("c"), 1)
    found = unseen.take()
    assert found is not None
    assert found.count == 8
    assert [str(error) for error in found.errors] == ["a", "b", "c"]


def test_failures_without_a_kept_error_are_told_all_the_same() -> None:
    unseen, first = UnseenFailures(), [ClientError(str(number)) for number in range(MOST_ERRORS)]
    for error in first:
        unseen.add(error, 1)
    unseen.add(ClientError("one more"), 1)
    for error in first:
        unseen.discard(error, 1)
    found = unseen.take()
    assert found is not None
    assert found.count == 1


def test_failures_are_logged_now_and_then(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(failures.time, "monotonic", lambda: now)
    unseen = UnseenFailures()
    for _ in range(5):
        unseen.log(ClientError("a"), 2)
    now += failures.REPEAT_S
    unseen.log(ClientError("b"), 2)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "Records were not delivered: 2 since the last line; this time: a",
        "Records were not delivered: 10 since the last line; this time: b",
    ]


def test_an_outage_is_logged_once_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LINES)
    connection = Connection("b:1")
    for _ in range(2):
        for error in (REFUSED, DOWN, REFUSED, DOWN):
            connection.on_error(error)
        assert connection.unreachable
        assert connection.reason() == ": b:1: Connection refused"
        connection.recovered()
        assert (connection.unreachable, connection.reason()) == (False, "")
    lines = [record.getMessage() for record in caplog.records]
    assert (
        lines
        == [
            "No broker of b:1 can be reached; records wait: b:1: Connection refused",
            "Brokers of b:1 can be reached again.",
        ]
        * 2
    )


def test_a_timeout_is_explained_by_what_prevents_the_connection() -> None:
    connection = Connection("b:1")
    late = client_error(KafkaError(KafkaError._MSG_TIMED_OUT), "t")
    assert connection.explain(late) is late
    connection.on_error(REFUSED)
    connection.on_error(DOWN)
    found = connection.explain(late)
    assert (found.problem, found.retriable) == (
        "t: not delivered within the delivery timeout: b:1: Connection refused",
        True,
    )
    other = KafkaFailure("INVALID_RECORD", "x")
    assert connection.explain(other) is other


def test_a_recent_failure_explains_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka may never tell that all brokers are down."""
    connection = Connection("b:1")
    connection.on_error(REFUSED)
    assert connection.reason() == ": b:1: Connection refused"
    monkeypatch.setattr(failures, "RECENT_S", 0.0)
    assert connection.reason() == ""


def test_records_are_dropped_if_no_broker_accepts_the_credentials() -> None:
    connection, dropped = Connection("b:1"), []
    connection.drop_queued = lambda: dropped.append(True)
    connection.on_error(WRONG)
    assert not dropped, "another broker may accept them"
    connection.on_error(DOWN)
    connection.on_error(WRONG)
    assert len(dropped) == 2
    first = connection.explain(client_error(KafkaError(KafkaError._PURGE_QUEUE)))
    assert (type(first), first.retriable) == (AuthenticationFailed, False)
    assert connection.explain(client_error(KafkaError(KafkaError._PURGE_QUEUE))) is not first, "each has its own error"
    connection.recovered()
    assert not connection.refused()
