"""Throttles: over any stretch of time, throttled replicas get their rate and one second's savings at most."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.replication.throttle import ReplicationThrottle, named


@pytest.mark.parametrize(
    ("setting", "expected"),
    [((), False), (("*",), True), (("3:1",), True), (("3:2",), False), (("1:3",), False), (("0:1", "3:1"), True)],
)
def test_which_replicas_are_named(setting: tuple[str, ...], expected: bool) -> None:
    assert named(setting, 3, 1) is expected


def test_without_a_rate_nobody_waits() -> None:
    throttle = ReplicationThrottle()
    throttle.record(10**12, 0)
    assert not throttle.exceeded(0)


def test_what_went_over_the_limit_is_waited_for() -> None:
    throttle = ReplicationThrottle(1000)
    throttle.record(0, 10_000)
    throttle.record(3000, 10_000)  # one second was saved up
    assert throttle.wait_ms(10_000) == 2001
    assert throttle.exceeded(11_900)
    assert not throttle.exceeded(12_001)


def test_another_rate_counts_at_once() -> None:
    throttle = ReplicationThrottle(10)
    throttle.record(0, 10_000)
    throttle.record(1_000, 10_000)
    assert throttle.wait_ms(10_000) > 90_000
    throttle.rate = 1_000_000
    assert throttle.wait_ms(10_001) == 0


def test_a_rate_of_nothing_stops_everything() -> None:
    throttle = ReplicationThrottle(0)
    throttle.record(1, 0)
    assert throttle.exceeded(10**9)


@given(st.integers(1, 10_000), st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 5_000)), max_size=50))
def test_the_rate_is_kept(rate: int, steps: list[tuple[int, int]]) -> None:
    throttle, now, sent, largest = ReplicationThrottle(rate), 1_000_000, 0, 0
    throttle.record(0, now)
    begun = now
    for passed_ms, size in steps:
        now += passed_ms
        if not throttle.exceeded(now):
            throttle.record(size, now)
            sent, largest = sent + size, max(largest, size)
    allowed = rate * (now - begun + 1000) / 1000
    assert sent <= allowed + largest  # the last one sent may be the one that exceeds it
