"""Programs for differential tests: the interpreter and Spark, fed the same batches, must give the same results.

Each reads the streams `a` and `b` and the tables `t` and `u`, and writes `out`.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from moldau.streams import (
    Context,
    Hopping,
    Processor,
    Session,
    Sliding,
    Streams,
    Tumbling,
    Value,
    final,
    json,
    seconds,
)

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
VALUE: Final = json("n int, x double, s string")
ROW: Final = json("name string, score bigint")


class Sent(NamedTuple):
    topic: str
    key: str | None
    value: Any
    second: float


Batches: TypeAlias = list[list[Sent]]
Build: TypeAlias = Callable[[Streams], None]


def a(app: Streams) -> Any:
    return app.stream("a", value=VALUE)


def b(app: Streams) -> Any:
    return app.stream("b", value=VALUE)


def t(app: Streams) -> Any:
    return app.table("t", value=ROW)


def u(app: Streams) -> Any:
    return app.table("u", value=ROW)


def expressions(app: Streams) -> None:
    a(app).filter("n > 1 and (s is not null or x < 5)").filter_not("s like 'b%'").map_values(
        n="n * 2 - 1",
        half="n / 2",
        rest="n % 3",
        text="upper(s) || ':' || cast(x as string)",
        part="substring(s, -2, 1)",
        size="case when x > 5 then 'large' when x > 2 then 'middle' end",
        least="least(n, x, 4)",
        rounded="round(x, 1)",
        seen="s in ('ab', 'cd', null)",
        hour="hour(timestamp)",
        who="coalesce(key, 'nobody')",
        ms="unix_millis(timestamp)",
    ).select_key("n").to("out")


def functions(app: Streams) -> None:
    parts = a(app).branch(large="n > 5", named=lambda value: bool(value and value["s"]), rest=None)
    letters = parts.named.flat_map_values(lambda value: list(value["s"]), returns="string")
    counted = parts.large.map(lambda key, value: (value["s"], len(str(key))), returns="int")
    letters.merge(counted.map_values("cast(value as string)"), parts.rest.map_values("'rest'")).to("out")


def several_outputs(app: Streams) -> None:
    counts = a(app).group_by("s", even="n % 2 = 0").count()
    counts.filter("value > 1").to("out")
    counts.to_stream().map_values("value * 10").to("out")


def sums(app: Streams) -> None:
    a(app).group_by_key().aggregate(
        n="count(*)", total="sum(n)", mean="avg(x)", low="min(s)", high="max(x) - min(x)"
    ).to("out")


def tumbling(app: Streams) -> None:
    windows = a(app).group_by_key().windowed(Tumbling(seconds(10), grace=seconds(5)))
    windows.aggregate(n="count(*)", total="sum(n) / count(*)", who="upper(key)").to("out")


def tumbling_final(app: Streams) -> None:
    a(app).group_by("s").windowed(Tumbling(seconds(10), grace=seconds(5)), emit=final).count().to("out")


def hopping(app: Streams) -> None:
    windows = a(app).group_by_key().windowed(Hopping(seconds(12), advance=seconds(4), grace=seconds(3)), emit=final)
    windows.aggregate("sum(x)").to("out")


def sessions(app: Streams) -> None:
    a(app).group_by_key().windowed(Session(seconds(4), grace=seconds(3))).aggregate(n="count(*)", high="max(n)").to(
        "out"
    )


def sessions_final(app: Streams) -> None:
    a(app).group_by_key().windowed(Session(seconds(4), grace=seconds(3)), emit=final).count().to("out")


def sliding(app: Streams) -> None:
    a(app).group_by_key().windowed(Sliding(seconds(5), grace=seconds(3)), emit=final).count().to("out")


def python_aggregate(app: Streams) -> None:
    windows = a(app).group_by_key().windowed(Tumbling(seconds(10), grace=seconds(5)))
    windows.aggregate(list, lambda value, kept: [*kept, value["n"]], returns="array<int>").to("out")


def reduce(app: Streams) -> None:
    a(app).map_values("coalesce(s, '-')").group_by_key().reduce(lambda kept, value: kept + value).to("out")


def lookup(app: Streams) -> None:
    a(app).left_join(t(app), n="n", name="upper(name)", key="key").to("out")


def lookup_then_windows(app: Streams) -> None:
    joined = a(app).join(t(app), n="n", name="name")
    joined.group_by("name").windowed(Tumbling(seconds(10), grace=seconds(5))).aggregate("sum(n)").to("out")


def tables(app: Streams) -> None:
    t(app).outer_join(u(app), left="left.name", right="right.score").to("out")


def tables_left(app: Streams) -> None:
    t(app).filter("score > 2").left_join(u(app), lambda row, other: str(other and other["score"]), returns="string").to(
        "out"
    )


def grouped_table(app: Streams) -> None:
    t(app).group_by("name").aggregate(n="count(*)", total="sum(score)").to("out")


def streams_inner(app: Streams) -> None:
    a(app).join(b(app), one="left.n", other="right.n", within=seconds(5), grace=seconds(10)).to("out")


def streams_outer(app: Streams) -> None:
    a(app).outer_join(b(app), one="left.n", other="right.n", within=(seconds(2), seconds(5)), grace=seconds(3)).to(
        "out"
    )


def streams_python(app: Streams) -> None:
    joiner = lambda one, other: f"{one['n']} {other and other['n']}"  # noqa: E731 - as users write it
    a(app).left_join(b(app), joiner, returns="string", within=seconds(5), grace=seconds(3)).to("out")


def global_table(app: Streams) -> None:
    names = app.global_table("t", value=ROW)
    a(app).left_join(names, on="s", n="n", name="name").to("out")


def cogrouped(app: Streams) -> None:
    one, other = a(app).group_by_key(), b(app).group_by_key()
    both = one.cogroup(lambda value, kept: kept + 1).cogroup(other, lambda value, kept: kept + 100)
    both.aggregate(lambda: 0).to("out")


class Silence(Processor):
    """Says how many records there were before a pause of six seconds."""

    count = Value()
    due = Value()

    def process(self, value: Any, context: Context) -> None:
        if self.due.get() is not None:
            context.cancel(self.due.get())
        self.count.set(self.count.get(0) + 1)
        self.due.set(context.time + seconds(6))
        context.timer(self.due.get())

    def on_timer(self, time: datetime, context: Context) -> None:
        context.forward(self.count.get())
        self.count.clear()


def processor(app: Streams) -> None:
    a(app).process(Silence, returns="int", grace=seconds(3)).to("out")


PROGRAMS: Final[dict[str, Build]] = {
    each.__name__: each
    for each in (
        expressions,
        functions,
        several_outputs,
        sums,
        tumbling,
        tumbling_final,
        hopping,
        sessions,
        sessions_final,
        sliding,
        python_aggregate,
        reduce,
        lookup,
        lookup_then_windows,
        tables,
        tables_left,
        grouped_table,
        streams_inner,
        streams_outer,
        streams_python,
        global_table,
        cogrouped,
        processor,
    )
}


def random_batches(seed: int, batches: int = 5, records: int = 8) -> Batches:
    """Records of few keys, out of order and some of them late; batches mostly go forward in time."""
    chance = random.Random(seed)
    sent: Batches = []
    for number in range(batches):
        batch = []
        for _ in range(chance.randint(1, records)):
            key = chance.choice(["k", "l", "m", None] if chance.random() < 0.2 else ["k", "l", "m"])
            second = max(1.0, number * 8 + chance.randint(-10, 10) + chance.choice([0, 0.25]))
            topic = chance.choice("aaabbtu")
            batch.append(Sent(topic, key, _value(chance, topic), second))
        sent.append(batch)
    return sent


def _value(chance: random.Random, topic: str) -> Any:
    if chance.random() < 0.15:
        return None
    if topic in "ab":
        text = chance.choice(["ab", "bc", "cd", "k", "l", "ähm", None])
        return {"n": chance.randint(0, 9), "x": chance.choice([0.5, 2.25, 7.0, 1e9]), "s": text}
    return {"name": chance.choice(["red", "blue"]), "score": chance.randint(0, 5)}


def run(build: Build, batches: Batches, **engine: Any) -> list[list[str]]:
    """What each batch gave, without order."""
    app = Streams("program")
    build(app)
    test = app.test(**engine)
    try:
        return play(test, app, batches)
    finally:
        test.close()


def play(test: Any, app: Streams, batches: Batches) -> list[list[str]]:
    read = {source.topic for source in app.topology.sources}
    given = []
    for batch in batches:
        with test.batch():
            for each in batch:
                if each.topic in read:
                    test.send(each.topic, each.key, each.value, timestamp=BEGIN + timedelta(seconds=each.second))
        given.append(sorted(f"{result.key} → {result.value}" for result in test.read("out")))
    return given
