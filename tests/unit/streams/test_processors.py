"""The processor API: stores of one key, their time to live, timers by the time of records, and what is forwarded."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moldau.streams import (
    Context,
    Mapped,
    Processor,
    Streams,
    StreamsError,
    TopologyRefused,
    Tumbling,
    Value,
    Values,
    minutes,
    seconds,
    string,
)
from moldau.streams.topology.processors import MAX_TIMERS

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Silence(Processor):
    """Says when a key has been silent for ten seconds."""

    last = Value()
    due = Value()

    def process(self, value: Any, context: Context) -> None:
        if self.due.get():
            context.cancel(self.due.get())
        self.last.set(value)
        self.due.set(context.time + seconds(10))
        context.timer(self.due.get())

    def on_timer(self, time: datetime, context: Context) -> None:
        context.forward(f"{context.key} is silent since {self.last.get()}")
        self.last.clear()
        self.due.clear()


def driver(processor: type[Processor], **more: Any) -> Any:
    app = Streams("processors")
    app.stream("in", value=string).process(processor, returns="string", **more).to("out")
    return app.test()


def send(test: Any, key: str, value: str, second: float) -> list[tuple[Any, Any]]:
    test.send("in", key, value, timestamp=BEGIN + timedelta(seconds=second))
    return [(result.key, result.value) for result in test.read("out")]


def test_timers_wait_for_the_time_of_records() -> None:
    test = driver(Silence)
    assert send(test, "a", "one", 0) == send(test, "a", "two", 9) == send(test, "b", "x", 18) == []
    assert send(test, "b", "y", 19) == [("a", "a is silent since two")]
    assert send(test, "a", "z", 40) == [("b", "b is silent since y")]


def test_the_grace_lets_timers_wait_longer() -> None:
    test = driver(Silence, grace=seconds(5))
    assert send(test, "a", "one", 0) == send(test, "b", "x", 14) == []
    assert send(test, "b", "y", 15) == [("a", "a is silent since one")]


class Shops(Processor):
    shops = Mapped(ttl=minutes(1))
    all = Values()

    def process(self, value: str, context: Context) -> None:
        self.shops.put(value, len(self.all))
        self.all.add(value)
        context.forward(f"{sorted(self.shops.items())} of {len(self.all)}: {''.join(self.all)}", key=value)
        self.shops.remove("c")


def test_stores_keep_values_by_key_and_forget_them_after_their_time() -> None:
    test = driver(Shops)
    assert send(test, "k", "a", 0) == [("a", "[('a', 0)] of 1: a")]
    assert send(test, "k", "c", 30) == [("c", "[('a', 0), ('c', 1)] of 2: ac")]
    assert send(test, "l", "b", 59) == [("b", "[('b', 0)] of 1: b")]
    assert send(test, "k", "b", 60) == [("b", "[('b', 2)] of 3: acb")]


class Greedy(Processor):
    def process(self, value: Any, context: Context) -> None:
        for second in range(MAX_TIMERS + 1):
            context.timer(context.time + seconds(second))


class Wrong(Processor):
    def process(self, value: Any, context: Context) -> None:
        context.forward(3)


@pytest.mark.parametrize(("processor", "reason"), [(Greedy, f"{MAX_TIMERS} timers"), (Wrong, "3 is not a string")])
def test_what_a_processor_may_not_do(processor: type[Processor], reason: str) -> None:
    with pytest.raises(StreamsError, match=reason):
        send(driver(processor), "k", "a", 0)


class Empty(Processor):
    pass


def test_what_is_no_processor_is_refused() -> None:
    stream = Streams("refused").stream("in", value=string)
    for given, reason in ((len, "a class derived from Processor"), (Empty, r"no process\(self, value, context\)")):
        with pytest.raises(TopologyRefused, match=reason):
            stream.process(given, returns="string")  # type: ignore[arg-type]
    windows = stream.group_by_key().windowed(Tumbling(seconds(1))).count().to_stream()
    with pytest.raises(TopologyRefused, match="select_key first"):
        windows.process(Silence, returns="string")
