"""What follows when a handler raises: waits, topics, headers. No broker."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.ids import Millis, TopicPartition
from moldau.client.consumer.retries import (
    REASON_BYTES,
    STACK_BYTES,
    Backoff,
    Forward,
    GiveUp,
    Retry,
    TryAgain,
    judge,
    origin_of,
    wait_s,
)
from moldau.client.errors import DeserializationFailed, InvalidUse
from moldau.client.message import Message
from moldau.wire.dead_letters import DUE, Origin

NOW = Millis(1_700_000_000_000)
QUICK = Backoff(first=0.5, factor=3.0, most=10.0)
WITH_TOPICS = Retry(times=2, backoff=QUICK, topic="orders.retry", dead="orders.dead")


def message(topic: str = "orders", headers: Sequence[tuple[str, bytes | None]] = ()) -> Message[Any, Any]:
    return Message.of(topic, 3, 17, key=b"k", value=b"v", headers=list(headers), timestamp=1_600_000_000_000)


def raised(error: Exception) -> Exception:
    """The error as an `except` has it: with a traceback."""
    try:
        raise error
    except Exception as caught:  # noqa: BLE001  # whichever it is
        return caught


def text(verdict: object) -> dict[str, str]:
    assert isinstance(verdict, Forward)
    return {name: (value or b"").decode() for name, value in verdict.headers if name.startswith("moldau.")}


def forwarded(verdict: object, topic: str) -> Message[Any, Any]:
    """The message as the consumer of its next topic gets it."""
    assert isinstance(verdict, Forward)
    assert verdict.topic == topic
    return Message.of(topic, 0, 99, key=b"k", value=b"v", headers=verdict.headers)


def test_a_back_off_grows_up_to_its_most() -> None:
    assert [QUICK.delay(attempts) for attempts in range(1, 6)] == [0.5, 1.5, 4.5, 10.0, 10.0]
    assert Backoff(first=0, most=0).delay(7) == 0
    assert Backoff(first=1, factor=1.0).delay(10**9) == 1


@given(st.floats(0, 100), st.floats(1, 1e300), st.floats(0, 1e6), st.integers(1, 10**9), st.integers(0, 1000))
def test_a_back_off_never_shrinks(first: float, factor: float, more: float, attempts: int, later: int) -> None:
    backoff = Backoff(first, factor, first + more)
    assert first <= backoff.delay(attempts) <= backoff.delay(attempts + later) <= backoff.most


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": -1.0},
        {"first": float("nan")},
        {"first": 2.0, "most": 1.0},
        {"factor": 0.5},
        {"most": float("inf")},
        {"factor": float("nan")},
    ],
)
def test_a_back_off_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidUse):
        Backoff(**wrong)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"times": -1}, "times"),
        ({"topic": ""}, "empty"),
        ({"dead": ""}, "empty"),
        ({"topic": "t", "keep_order": True}, "does not keep order"),
        ({"topic": "t", "dead": "t"}, "both"),
        ({"retry_on": (KeyboardInterrupt,)}, "subclasses of Exception"),
        ({"retry_on": ("ValueError",)}, "subclasses of Exception"),
    ],
)
def test_a_retry_that_makes_no_sense_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidUse, match=told):
        Retry(**wrong)


def test_without_retry_the_first_exception_ends_the_run() -> None:
    assert judge(None, message(), 1, ValueError(), NOW) == GiveUp()


def test_in_place_with_growing_waits_and_then_the_end() -> None:
    retry = Retry(times=2, backoff=QUICK, keep_order=True)
    verdicts = [judge(retry, message(), failures, ValueError(), NOW) for failures in (1, 2, 3)]
    assert verdicts == [TryAgain(0.5), TryAgain(1.5), GiveUp()]


def test_exceptions_of_other_kinds_end_the_run() -> None:
    retry = Retry(retry_on=ConnectionError, dead="orders.dead")
    assert judge(retry, message(), 1, ConnectionResetError(), NOW) == TryAgain(0.1)
    assert judge(retry, message(), 1, ValueError(), NOW) == GiveUp()


def test_a_record_goes_to_the_retry_topic_and_in_the_end_to_the_dead_letters() -> None:
    own = [("tier", b"gold"), ("empty", None), ("tier", b"\xff")]
    first = judge(WITH_TOPICS, message(headers=own), 1, raised(ValueError("no such customer: č")), NOW)
    assert isinstance(first, Forward)
    assert first.headers[:3] == own
    told = text(first)
    stack = told.pop("moldau.stack")
    assert "Traceback" in stack
    assert "in raised" in stack
    assert told == {
        "moldau.reason": "ValueError: no such customer: č",
        "moldau.topic": "orders",
        "moldau.partition": "3",
        "moldau.offset": "17",
        "moldau.timestamp": "1600000000000",
        "moldau.attempt": "1",
        "moldau.due": str(NOW + 500),
    }
    second = judge(WITH_TOPICS, forwarded(first, "orders.retry"), 1, raised(KeyError("x")), NOW)
    told = text(second)
    assert (told["moldau.reason"], told["moldau.attempt"], told["moldau.due"]) == (
        "KeyError: 'x'",
        "2",
        str(NOW + 1500),
    )
    third = judge(WITH_TOPICS, forwarded(second, "orders.retry"), 1, raised(OSError("gone")), NOW)
    assert isinstance(third, Forward)
    assert third.topic == "orders.dead"
    told = text(third)
    assert told["moldau.attempt"] == "3"
    assert (told["moldau.topic"], told["moldau.offset"], told["moldau.timestamp"]) == ("orders", "17", "1600000000000")
    assert DUE not in told
    assert [name for name, _ in third.headers] == [
        *("tier", "empty", "tier", "moldau.reason", "moldau.topic", "moldau.partition", "moldau.offset"),
        *("moldau.timestamp", "moldau.attempt", "moldau.stack"),
    ]


def test_a_dead_letter_that_is_sent_to_its_topic_again_is_a_new_record() -> None:
    dead = judge(Retry(times=0, dead="orders.dead"), message(), 1, ValueError(), NOW)
    assert isinstance(dead, Forward)
    again = Message.of("orders", 1, 5, headers=dead.headers, timestamp=9)
    told = text(judge(WITH_TOPICS, again, 1, ValueError(), NOW))
    assert (told["moldau.attempt"], told["moldau.partition"], told["moldau.offset"]) == ("1", "1", "5")
    assert origin_of(again, "orders.retry") == Origin("orders", 1, 5, 9)


def test_without_a_topic_for_dead_letters_the_last_exception_ends_the_run() -> None:
    retry = Retry(times=1, topic="orders.retry")
    first = judge(retry, message(), 1, ValueError(), NOW)
    assert judge(retry, forwarded(first, "orders.retry"), 1, ValueError(), NOW) == GiveUp()


def test_a_message_that_cannot_be_read_is_not_tried_again() -> None:
    unreadable = DeserializationFailed("value", TopicPartition("orders", 3), 17, "not JSON")
    retry = Retry(times=5, topic="orders.retry", dead="orders.dead", retry_on=ConnectionError)
    verdict = judge(retry, message(), 1, unreadable, NOW)
    assert isinstance(verdict, Forward)
    assert verdict.topic == "orders.dead"
    assert text(verdict)["moldau.attempt"] == "1"
    assert judge(Retry(times=5), message(), 1, unreadable, NOW) == GiveUp()
    of_another = DeserializationFailed("value", TopicPartition("prices", 0), 17, "not JSON")
    assert isinstance(judge(Retry(times=5), message(), 1, of_another, NOW), TryAgain)


def test_long_reasons_and_stacks_are_cut() -> None:
    def deep(left: int) -> None:
        if not left:
            raise ValueError("č" * 100_000 + "\ud800 the end")
        deep(left - 1)

    with pytest.raises(ValueError, match="the end") as caught:
        deep(200)
    verdict = judge(Retry(times=0, dead="orders.dead"), message(), 1, caught.value, NOW)
    told = text(verdict)
    assert told["moldau.reason"].startswith("ValueError: čč")
    assert len(told["moldau.reason"].encode()) in (REASON_BYTES, REASON_BYTES - 1)
    assert told["moldau.stack"].endswith("\\ud800 the end\n")
    assert len(told["moldau.stack"].encode()) <= STACK_BYTES


def test_only_records_of_the_retry_topic_are_not_due() -> None:
    due = [("moldau.due", str(NOW + 2500).encode())]
    assert wait_s(WITH_TOPICS, message("orders.retry", due), NOW) == 2.5
    assert wait_s(WITH_TOPICS, message("orders.retry", due), Millis(NOW + 2500)) == 0
    assert wait_s(WITH_TOPICS, message("orders.retry", due), Millis(NOW + 99999)) == 0
    assert wait_s(WITH_TOPICS, message("orders", due), NOW) == 0
    assert wait_s(None, message("orders.retry", due), NOW) == 0


def test_foreign_headers_in_a_retry_topic_do_no_harm() -> None:
    """Neither a clock that is wrong by years nor what others write makes a record wait for ever."""
    assert wait_s(WITH_TOPICS, message("orders.retry", [("moldau.due", str(NOW * 2).encode())]), NOW) == QUICK.most
    odd = message("orders.retry", [("moldau.due", b"soon"), ("moldau.attempt", b"\xff"), ("moldau.offset", b"?")])
    assert wait_s(WITH_TOPICS, odd, NOW) == 0
    assert origin_of(odd, "orders.retry") == Origin("orders.retry", 3, 17, 1_600_000_000_000)
    assert text(judge(WITH_TOPICS, odd, 1, ValueError(), NOW))["moldau.attempt"] == "1"
    assert wait_s(WITH_TOPICS, message("orders.retry", [("moldau.due", None)]), NOW) == 0
