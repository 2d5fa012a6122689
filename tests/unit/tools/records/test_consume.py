"""Positions as typed, what they mean in a partition, and when reading is done."""

import pytest

from moldau.client.admin.errors import OffsetOutOfRange
from moldau.client.admin.positions import Bounds, Kind, LogPosition, start_offset, stop_offset
from moldau.tools.common.failure import CommandError
from moldau.tools.records.consume import Reading, Span, read_position
from moldau.tools.records.printing import defuse

HELD = Bounds(10, 20)


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("beginning", Kind.BEGINNING, 0),
        ("end", Kind.END, 0),
        ("0", Kind.OFFSET, 0),
        ("42", Kind.OFFSET, 42),
        ("-5", Kind.BEFORE_END, 5),
        ("@1700000000000", Kind.TIME, 1_700_000_000_000),
        ("@1970-01-01T00:00:01Z", Kind.TIME, 1000),
    ],
)
def test_positions(text: str, kind: Kind, number: int) -> None:
    assert read_position(text, "--from") == LogPosition(kind, number)


@pytest.mark.parametrize("text", ["", "x", "1.5", "--5", "-", "@", "@soon", "9223372036854775808", "+3", "٣"])
def test_a_bad_position_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(CommandError, match="--from") as refused:
        read_position(text, "--from")
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "offset"), [("beginning", 10), ("end", 20), ("-3", 17), ("-99", 10), ("10", 10), ("20", 20), ("15", 15)]
)
def test_where_reading_starts(text: str, offset: int) -> None:
    assert start_offset(read_position(text, "--from"), 0, HELD) == offset


@pytest.mark.parametrize("offset", [9, 21])
def test_an_offset_outside_the_partition_is_refused_with_what_it_holds(offset: int) -> None:
    with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is outside partition 4, which holds 10 to 19"):
        start_offset(LogPosition(Kind.OFFSET, offset), 4, HELD)


@pytest.mark.parametrize(
    ("until", "follow", "stop"),
    [
        (None, False, 20),
        (None, True, None),
        (LogPosition(Kind.OFFSET, 15), False, 15),
        (LogPosition(Kind.OFFSET, 99), False, 20),
        (LogPosition(Kind.OFFSET, 99), True, 99),
        (LogPosition(Kind.BEFORE_END, 3), False, 17),
        (LogPosition(Kind.END), True, 20),
        (LogPosition(Kind.TIME, 5), True, None),
    ],
)
def test_where_reading_stops(until: LogPosition | None, follow: bool, stop: int | None) -> None:
    assert stop_offset(until, HELD, follow) == stop


def test_reading_is_done_when_every_partition_is() -> None:
    reading = Reading("t", {0: Span(0, 2), 1: Span(0, 1)})
    assert reading.takes(0, 0, 0)
    assert reading.takes(1, 0, 0)
    assert not reading.takes(1, 1, 0)
    assert not reading.is_done()
    assert reading.takes(0, 1, 0)
    assert reading.is_done()


def test_reading_ends_where_only_markers_are_left() -> None:
    reading = Reading("t", {0: Span(0, 5)})
    assert reading.takes(0, 2, 0)
    reading.reached_end(0, 5)
    assert reading.is_done()


def test_following_goes_past_the_end_and_stops_at_an_offset() -> None:
    reading = Reading("t", {0: Span(0, 8)}, follow=True)
    reading.reached_end(0, 5)
    assert not reading.is_done()
    reading.reached_end(0, 8)
    assert reading.is_done()


def test_a_maximum_counts_over_all_partitions() -> None:
    reading = Reading("t", {0: Span(0, 9), 1: Span(0, 9)}, maximum=2)
    assert reading.takes(0, 0, 0)
    assert reading.takes(1, 0, 0)
    assert not reading.takes(0, 1, 0)
    assert reading.is_done()


def test_a_time_stops_a_partition_at_its_first_later_record() -> None:
    reading = Reading("t", {0: Span(0, None)}, stop=LogPosition(Kind.TIME, 100), follow=True)
    assert reading.takes(0, 0, 99)
    assert not reading.takes(0, 1, 100)
    assert reading.is_done()


def test_a_record_cannot_drive_the_terminal() -> None:
    assert defuse("a\tb\x1b[2J é\x07\u009b".encode()) == "a\tb\ufffd[2J é\ufffd\ufffd".encode()
