"""Points and lengths of time, as people write them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.times import read_moment, read_span, read_time, show_span

NOW_MS = 1_700_000_000_000


def test_times() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)
    assert read_time("2026-01-31T12:00:00.250Z") == round(moment.timestamp() * 1000)
    assert read_time("2026-01-31T13:00:00.250+01:00") == round(moment.timestamp() * 1000)
    assert read_time("1700000000000") == 1_700_000_000_000
    assert read_time("2026-01-31") == round(datetime(2026, 1, 31).timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "1.5", "2026-13-01", "٣"])
def test_a_bad_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither milliseconds nor an ISO 8601 time"):
        read_time(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("0s", 0),
        ("PT15M", 900_000),
        ("pt15m", 900_000),
        ("P1DT2H30M4.5S", 95_404_500),
        ("P2D", 172_800_000),
        ("PT0S", 0),
    ],
)
def test_lengths_of_time(text: str, milliseconds: int) -> None:
    assert read_span(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "15", "m", "P", "PT", "P1DT", "1h30m", "-5m", "P1Y", "PT1.5M", "١٥m", "9" * 40 + "d"]
)
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        read_span(text)


@given(st.integers(0, 2**53))
def test_a_time_is_shown_as_it_is_read(milliseconds: int) -> None:
    assert read_span(show_span(milliseconds)) == milliseconds


def test_lengths_are_shown_in_large_units() -> None:
    assert [show_span(each) for each in (0, 1, 90_000, 2_592_000_000)] == ["0d", "1ms", "90s", "30d"]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("10m ago", NOW_MS - 600_000),
        (" 2 h ago ", NOW_MS - 7_200_000),
        ("1d AGO", NOW_MS - 86_400_000),
        ("PT15M ago", NOW_MS - 900_000),
        ("1234567890123", 1_234_567_890_123),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
    ],
)
def test_moments(text: str, milliseconds: int) -> None:
    assert read_moment(text, NOW_MS) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "ago", " ago", "10 ago", "m ago", "yesterday", "-5m ago", "99999d ago", "-1", "1969-01-01T00:00:00Z"]
)
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError, match="nor an age such as '10m ago'"):
        read_moment(text, NOW_MS)
