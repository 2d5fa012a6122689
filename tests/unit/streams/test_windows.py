"""Windows: which records each kind collects, when results come, and what is late."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.streams import (
    Hopping,
    Session,
    Sliding,
    Streams,
    TopologyRefused,
    Tumbling,
    final,
    json,
    minutes,
    seconds,
    string,
    updates,
)
from moldau.streams.topology.windows import MAX_WINDOWS_PER_RECORD, Window

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


def counting(window: Window, emit: Any = updates) -> Any:
    app = Streams("windows")
    grouped = app.stream("in", value=string).group_by_key()
    grouped.windowed(window, emit=emit).aggregate("count(*)", as_="counts").to("out")
    return app.test()


def seen(test: Any) -> list[tuple[float, float, object]]:
    """Start and end of each result's window, in seconds, and its value."""
    return [
        (
            (each.key["start"] - BEGIN).total_seconds(),
            (each.key["end"] - BEGIN).total_seconds(),
            each.value,
        )
        for each in test.read("out")
    ]


def send(test: Any, *times: float, key: str = "k") -> None:
    for time in times:
        test.send("in", key, "x", timestamp=at(time))


def test_tumbling_windows_update_as_records_come() -> None:
    test = counting(Tumbling(seconds(10)))
    send(test, 1, 9, 10, 2)
    assert seen(test) == [(0, 10, 1), (0, 10, 2), (10, 20, 1), (0, 10, 3)]


def test_a_batch_gives_one_update_for_each_window() -> None:
    test = counting(Tumbling(seconds(10)))
    with test.batch():
        send(test, 1, 9, 10, 2)
    assert seen(test) == [(0, 10, 3), (10, 20, 1)]


def test_final_results_come_when_the_window_closes() -> None:
    test = counting(Tumbling(seconds(10), grace=seconds(5)), final)
    send(test, 1, 12, 3, 14.999)
    assert seen(test) == []
    send(test, 15)
    assert seen(test) == [(0, 10, 2)]
    send(test, 9)
    assert (seen(test), test.late) == ([], {"counts": 1})
    send(test, 100)
    assert seen(test) == [(10, 20, 3)]


def test_suppress_is_the_same_as_final_results() -> None:
    app = Streams("windows")
    counts = app.stream("in", value=string).group_by_key().windowed(Tumbling(seconds(10), grace=seconds(0))).count()
    counts.suppress().to("out")
    test = app.test()
    send(test, 1, 2, 10)
    assert seen(test) == [(0, 10, 2)]


def test_the_grace_is_as_long_as_the_window_if_none_is_given() -> None:
    test = counting(Tumbling(seconds(10)))
    send(test, 1, 19.999, 2, 20, 3)
    assert [value for _, _, value in seen(test)] == [1, 1, 2, 1]
    assert test.late == {"counts": 1}


def test_hopping_windows_overlap() -> None:
    test = counting(Hopping(seconds(10), advance=seconds(5)))
    send(test, 7)
    assert sorted(seen(test)) == [(0, 10, 1), (5, 15, 1)]
    send(test, 11)
    assert sorted(seen(test)) == [(5, 15, 2), (10, 20, 1)]


def test_sessions_grow_and_merge() -> None:
    test = counting(Session(seconds(5)))
    send(test, 0, 4, 12)
    assert seen(test) == [(0, 0, 1), (0, 0, None), (0, 4, 2), (12, 12, 1)]
    send(test, 8)
    assert seen(test) == [(0, 4, None), (12, 12, None), (0, 12, 4)]


def test_a_gap_as_long_as_the_session_still_belongs_to_it() -> None:
    test = counting(Session(seconds(5)), final)
    send(test, 0, 5, 10.001, 100)
    assert seen(test) == [(0, 5, 2), (10.001, 10.001, 1)]


def test_a_late_record_joins_a_session_that_is_open() -> None:
    test = counting(Session(seconds(5), grace=seconds(0)))
    send(test, 10, 14, 9)
    assert [value for *_, value in seen(test)] == [1, None, 2, None, 3]
    send(test, 1)
    assert test.late == {"counts": 1}


def test_sliding_windows_follow_the_records() -> None:
    """The example of Kafka's documentation: a difference of 10 s, records at 8, 9.2 and 12.4 s."""
    test = counting(Sliding(seconds(10)), final)
    for time in (8, 9.2, 12.4):
        test.send("in", "k", "x", timestamp=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=time))
    test.send("in", "k", "x", timestamp=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=100))
    zero = datetime(1970, 1, 1, tzinfo=UTC)
    windows = sorted(((each.key["start"] - zero).total_seconds(), each.value) for each in test.read("out"))
    assert windows == [(0, 2), (2.4, 3), (8.001, 2), (9.201, 1)]


def windows_by_definition(times: list[int], size: int) -> dict[int, int]:
    """Start of each sliding window → records in it."""
    starts = {max(time - size, 0) for time in times} | {time + 1 for time in times}
    counts = {start: sum(start <= time <= start + size for time in times) for start in starts}
    left = {max(time - size, 0) for time in times}
    return {start: count for start, count in counts.items() if count and (start in left or count)}


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(1, 15))
def test_sliding_windows_do_not_depend_on_the_order(times: list[int], size: int) -> None:
    test = counting(Sliding(timedelta(milliseconds=size), grace=seconds(1)))
    zero = datetime(1970, 1, 1, tzinfo=UTC)
    for time in times:
        test.send("in", "k", "x", timestamp=zero + timedelta(milliseconds=time))
    newest = {each.key["start"]: each.value for each in test.read("out")}
    given_ = {round((start - zero).total_seconds() * 1000): value for start, value in newest.items()}
    assert given_ == windows_by_definition(times, size)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=15), st.integers(1, 10))
def test_sessions_do_not_depend_on_the_order(records: list[tuple[str, int]], gap: int) -> None:
    tables = []
    for order in (records, sorted(records, key=lambda each: each[1])):
        test = counting(Session(seconds(gap), grace=minutes(5)))
        for key, time in order:
            send(test, time, key=key)
        tables.append(test.table("out"))
    assert tables[0] == tables[1]


def test_python_functions_in_windows_and_sessions() -> None:
    app = Streams("windows")
    grouped = app.stream("in", value=string).group_by_key()
    adder = {"returns": "array<string>"}
    grouped.windowed(Tumbling(seconds(10))).aggregate(list, lambda value, kept: [*kept, value], **adder).to("out")
    sessions = grouped.windowed(Session(seconds(5)))
    sessions.aggregate(list, lambda value, kept: [*kept, value], merge=lambda a, b: sorted(a + b), **adder).to(
        "sessions"
    )
    test = app.test()
    for second, value in ((1, "a"), (2, "b"), (12, "d"), (7, "c")):
        test.send("in", "k", value, timestamp=at(second))
    assert [value for *_, value in seen(test)] == [["a"], ["a", "b"], ["d"], ["a", "b", "c"]]
    assert list(test.table("sessions").values()) == [["a", "b", "d", "c"]]


def test_the_key_and_the_window_are_known_to_aggregates_and_after_them() -> None:
    app = Streams("windows")
    grouped = app.stream("in", value=json("n int")).group_by_key().windowed(Tumbling(seconds(10)))
    counts = grouped.aggregate(
        total="sum(n)",
        label="key || ':' || cast(count(*) as string)",
        latest="greatest(window.start, max(timestamp))",
    )
    counts.to_stream().map_values(name="key", begins="window.start", total="total", label="label").to("out")
    counts.to_stream().select_key("key").to("plain")
    test = app.test()
    test.send("in", "k", {"n": 3}, timestamp=at(5))
    (result,) = test.read("out")
    assert result.key == {"key": "k", "start": at(0), "end": at(10)}
    assert result.value == {"name": "k", "begins": at(0), "total": 3, "label": "k:1"}
    assert test.read("plain")[0].key == "k"


REFUSED = {
    "a window is Tumbling": lambda grouped: grouped.windowed(minutes(1)),
    "it has windows already": lambda grouped: grouped.windowed(Tumbling(minutes(1))).windowed(Tumbling(minutes(1))),
    "emit is updates or final": lambda grouped: grouped.windowed(Tumbling(minutes(1)), emit="final"),
    "must be at least 1ms": lambda grouped: Tumbling(minutes(0)),
    "is a time span, such as minutes(1)": lambda grouped: Tumbling(60),
    "whole milliseconds": lambda grouped: Tumbling(timedelta(microseconds=1500)),
    "records would be in no window": lambda grouped: Hopping(seconds(5), advance=seconds(6)),
    f"the limit is {MAX_WINDOWS_PER_RECORD}": lambda grouped: Hopping(minutes(1000), advance=seconds(1)),
    "give merge=": lambda grouped: grouped.windowed(Session(seconds(1))).aggregate(lambda: 0, lambda value, n: n + 1),
    "its records are windowed already": lambda grouped: (
        grouped.windowed(Tumbling(seconds(1))).count().to_stream().group_by_key().windowed(Tumbling(seconds(1))).count()
    ),
    "its rows are windows": lambda grouped: grouped.windowed(Tumbling(seconds(1))).count().group_by("value"),
    "only windows close": lambda grouped: grouped.count().suppress(),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_window_that_cannot_be_is_refused(reason: str) -> None:
    with pytest.raises(TopologyRefused) as refused:
        REFUSED[reason](Streams("windows").stream("in", value=string).group_by_key())
    assert reason in str(refused.value)
