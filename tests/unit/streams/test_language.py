"""The language: operators without state, tables, values and times, and what is refused when a program is built."""

import xml.etree.ElementTree as Xml
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pydantic
import pytest

from moldau.streams import (
    Streams,
    StreamsError,
    TopologyRefused,
    Tumbling,
    json,
    minutes,
    processing_time,
    raw,
    seconds,
    spark_sql,
    string,
)
from moldau.streams.interpreter.driver import NoSuchTopic, PoisonRecord
from moldau.streams.operators.values import WrongValue
from moldau.streams.topology import building
from moldau.streams.topology.queries import queries_of

ORDER = json("user string, amount double")
AT = datetime(2026, 11, 18, 10, tzinfo=UTC)


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Basket:
    user: str
    items: list[Item]
    note: str | None = None
    tags: dict[str, int] = field(default_factory=dict)


class Payment(pydantic.BaseModel):
    user: str
    amount: float
    paid_at: datetime | None = None


def values(test: Any, topic: str) -> list[Any]:
    return [result.value for result in test.read(topic)]


def test_key1_is_three_as_a_stream_and_two_as_a_table() -> None:
    app = Streams("sums")
    numbers = app.stream("numbers", value=json("bigint"))
    numbers.group_by_key().aggregate("sum(value)").to("as-stream")
    numbers.to_table().group_by("key").aggregate("sum(value)").to("as-table")
    test = app.test()
    test.send("numbers", "key1", 1)
    test.send("numbers", "key1", 2)
    assert test.table("as-stream") == {"key1": 3}
    assert test.table("as-table") == {"key1": 2}


def test_operators_without_state() -> None:
    app = Streams("plain")
    orders = app.stream("orders", value=ORDER)
    seen: list[Any] = []
    ended: list[Any] = []
    orders.filter("amount > 1").filter_not("user = 'bob'").to("filtered")
    orders.filter(lambda order: order["amount"] > 1).filter(lambda key, order: key == "1").to("python")
    orders.map_values(user="upper(user)", double="amount * 2").select_key("user").to("sql")
    orders.map_values("user || '!'").to("text")
    orders.map_values({"on": "user"}).to("dictionary")
    orders.map(lambda key, order: (order["user"], len(key)), returns="int").to("mapped")
    orders.flat_map(lambda order: [(order["user"], n) for n in range(int(order["amount"]))], returns="int").to("flat")
    orders.flat_map_values(lambda order: list(order["user"]), returns="string").to("letters")
    orders.peek(seen.append).repartition().for_each(lambda key, order: ended.append(key))
    test = app.test()
    test.send("orders", "1", {"user": "ann", "amount": 2})
    test.send("orders", "2", {"user": "bob", "amount": 3.5})
    assert values(test, "filtered") == values(test, "python") == [{"user": "ann", "amount": 2.0}]
    assert [(each.key, each.value) for each in test.read("sql")] == [
        ("ANN", {"user": "ANN", "double": 4.0}),
        ("BOB", {"user": "BOB", "double": 7.0}),
    ]
    assert values(test, "text") == ["ann!", "bob!"]
    assert values(test, "dictionary") == [{"on": "ann"}, {"on": "bob"}]
    assert [(each.key, each.value) for each in test.read("mapped")] == [("ann", 1), ("bob", 1)]
    assert values(test, "flat") == [0, 1, 0, 1, 2]
    assert values(test, "letters") == list("annbob")
    assert len(seen) == 2
    assert ended == ["1", "2"]


def test_a_condition_that_is_null_keeps_nothing() -> None:
    app = Streams("plain")
    orders = app.stream("orders", value=ORDER)
    orders.filter("amount > 1").to("more")
    orders.filter_not("amount > 1").to("less")
    test = app.test()
    test.send("orders", "1", {"user": "ann"})
    test.send("orders", "2", None)
    assert values(test, "more") == values(test, "less") == []


def test_branches_take_each_record_once() -> None:
    app = Streams("branches")
    parts = app.stream("orders", value=ORDER).branch(
        large="amount > 100", ann=lambda order: order["user"] == "ann", rest=None
    )
    parts.large.to("large")
    parts["ann"].to("ann")
    large, _, rest = parts
    rest.merge(large).to("others")
    test = app.test()
    for user, amount in (("ann", 500), ("ann", 5), ("bob", 5)):
        test.send("orders", user, {"user": user, "amount": amount})
    assert [each["amount"] for each in values(test, "large")] == [500.0]
    assert [each["amount"] for each in values(test, "ann")] == [5.0]
    assert [each["user"] for each in values(test, "others")] == ["ann", "bob"]
    with pytest.raises(AttributeError, match="there are large, ann, rest"):
        _ = parts.small


def test_tables_delete_rows_that_are_filtered_out() -> None:
    app = Streams("tables")
    users = app.table("users", value=json("name string, age int"))
    adults = users.filter("age >= 18")
    adults.map_values("upper(name)").to("adults")
    adults.to_stream().filter("name is not null").to("changes")
    test = app.test()
    test.send("users", "1", {"name": "ann", "age": 20})
    test.send("users", "2", {"name": "bob", "age": 20})
    test.send("users", "2", {"name": "bob", "age": 2})
    test.send("users", None, {"name": "nobody", "age": 50})
    assert test.table("adults") == {"1": "ANN"}
    assert [each["name"] for each in values(test, "changes")] == ["ann", "bob"]


def test_the_table_aggregation_of_the_documentation() -> None:
    app = Streams("profiles")
    app.table("users", value=json("region string, size int")).group_by("region").aggregate("sum(size)").to("sizes")
    test = app.test()
    rows = (
        ("alice", "E", 5),
        ("bob", "A", 3),
        ("charlie", "A", 7),
        ("alice", "A", 5),
        ("charlie", None, 0),
        (None, "E", 5),
    )
    for key, region, size in (*rows, ("bob", "E", 3)):
        test.send("users", key, None if region is None else {"region": region, "size": size})
    assert [(each.key, each.value) for each in test.read("sizes")] == [
        ("E", 5), ("A", 3), ("A", 10), ("E", 0), ("A", 15), ("A", 8), ("A", 5), ("E", 3),
    ]  # fmt: skip


def test_table_aggregates_with_functions_and_reduce() -> None:
    app = Streams("profiles")
    groups = app.table("users", value=json("region string, size int")).group_by("region")
    groups.aggregate(lambda: 0, lambda row, kept: kept + row["size"], lambda row, kept: kept - row["size"]).to("sums")
    scores = app.table("scores", value=json("int"))
    scores.group_by("'all'").reduce(lambda kept, row: kept + row, lambda kept, row: kept - row).to("reduced")
    test = app.test()
    for size in (5, 7):
        test.send("users", "a", {"region": "E", "size": size})
        test.send("scores", "a", size)
        test.send("scores", "b", size)
    assert (test.table("sums"), test.table("reduced")) == ({"E": 7}, {"all": 14})


def test_reduce_and_cogroup() -> None:
    app = Streams("groups")
    clicks, buys = app.stream("clicks", value=string), app.stream("buys", value=json("double"))
    clicks.group_by_key().reduce(lambda kept, value: kept + value).to("reduced")
    both = (
        clicks.group_by_key()
        .cogroup(lambda click, kept: kept + 1)
        .cogroup(buys.group_by_key(), lambda buy, kept: kept + buy)
    )
    both.aggregate(lambda: 0.0).to("scores")
    test = app.test()
    test.send("clicks", "a", "x")
    test.send("clicks", "a", "y")
    test.send("buys", "a", 2.5)
    assert (test.table("reduced"), test.table("scores")) == ({"a": "xy"}, {"a": 4.5})


def test_several_keys_are_a_struct() -> None:
    app = Streams("keys")
    orders = app.stream("orders", value=ORDER)
    orders.group_by("user", size="if(amount > 10, 'large', 'small')").count().to("counts")
    test = app.test()
    test.send("orders", "1", {"user": "ann", "amount": 50})
    assert test.read("counts")[0] == ({"user": "ann", "size": "large"}, 1, ())


def test_dataclasses_and_pydantic_models() -> None:
    app = Streams("models")
    baskets = app.stream("baskets", value=json(Basket))
    payments = app.stream("payments", value=Payment)

    def total(basket: Basket) -> int:
        return sum(item.count for item in basket.items)

    def doubled(payment: Payment) -> Payment:
        return payment.model_copy(update={"amount": payment.amount * 2})

    baskets.map_values(total).to("totals")
    payments.map_values(doubled).filter("amount > 3").to("doubled")
    test = app.test()
    test.send("baskets", "1", Basket("ann", [Item("pen", 2), Item("ink")]))
    test.send("payments", "1", Payment(user="ann", amount=2, paid_at=AT))
    assert values(test, "totals") == [3]
    assert values(test, "doubled") == [{"user": "ann", "amount": 4.0, "paid_at": AT}]


def test_an_aggregate_may_be_a_dataclass() -> None:
    @dataclass
    class Seen:
        count: int = 0
        longest: str = ""

    def add(word: str, seen: Seen) -> Seen:
        return Seen(seen.count + 1, max(seen.longest, word, key=len))

    app = Streams("models")
    app.stream("words", value=string).group_by_key().aggregate(Seen, add, returns=Seen).to("seen")
    test = app.test()
    for word in ("a", "ccc", "bb"):
        test.send("words", "k", word)
    assert test.table("seen") == {"k": {"count": 3, "longest": "ccc"}}


def test_what_a_function_returns_is_checked() -> None:
    app = Streams("wrong")
    words = app.stream("words", value=string)
    words.map_values(lambda word: len(word), returns="string").to("lengths")
    with pytest.raises(WrongValue, match="what <lambda> returned to map_values-1: 3 is not a string"):
        app.test().send("words", "k", "abc")


def test_the_time_of_records() -> None:
    app = Streams("times")
    app.stream("of-value", value=json("ms bigint"), time="timestamp_millis(ms)").map_values("timestamp").to("a")
    app.stream("of-record", value=string).map_values("timestamp").to("b")
    app.stream("of-clock", value=string, time=processing_time).map_values("timestamp").to("c")
    test = app.test()
    test.send("of-value", "k", {"ms": 60_000})
    test.send("of-record", "k", "x", timestamp=AT)
    test.advance(minutes(5))
    test.send("of-clock", "k", "x", timestamp=AT)
    assert values(test, "a") == [datetime.fromtimestamp(60, UTC)]
    assert values(test, "b") == [AT]
    assert values(test, "c") == [test.now]


def test_poison_goes_to_the_dead_letters_or_stops() -> None:
    def program() -> Streams:
        app = Streams("poison")
        app.stream("orders", value=json("user string NOT NULL, amount double, at timestamp"), time="at").to("good")
        return app

    poison = {
        b"{": "not JSON",
        b"\xff": "not UTF-8 at byte 0",
        b"[]": "is not an object",
        b'{"amount": 1}': "user: no value, and it must have one",
        b'{"user": "a", "amount": "1"}': 'amount: "1" is not a number',
        b'{"user": "a", "amount": NaN}': "NaN is not JSON",
        b'{"user": "a", "user": "b"}': "user is there twice",
        b'{"user": "a", "at": "today"}': "at: 'today' is not a timestamp",
        b'{"user": "a"}': "it has no time",
    }
    for data, reason in poison.items():
        with pytest.raises(PoisonRecord, match="record 0 of orders does not match its schema") as stopped:
            program().test().send("orders", "1", data)
        assert reason in str(stopped.value)
    app = program()
    app.dead_letters("broken")
    test = app.test()
    for data in poison:
        test.send("orders", "1", data)
    test.send("orders", "1", {"user": "a", "at": AT})
    letters = test.read("broken")
    assert [each.value for each in letters] == list(poison)
    assert dict(letters[3].headers)["moldau.offset"] == b"3"
    assert dict(letters[0].headers)["moldau.reason"].startswith(b"not JSON")
    assert len(test.read("good")) == 1


def test_a_topic_between_two_parts_of_a_program() -> None:
    app = Streams("chain")
    app.stream("in", value=string).map_values("upper(value)").to("middle")
    app.stream("middle", value=string).map_values("value || '!'").to("out")
    test = app.test()
    test.send("in", "k", "a")
    assert values(test, "out") == ["A!"]


def test_a_program_that_feeds_itself_does_not_run_for_ever() -> None:
    app = Streams("circle")
    app.stream("in", value=string).to("in")
    with pytest.raises(StreamsError, match="the program feeds itself"):
        app.test().send("in", "k", "a")


def test_what_only_spark_can_do_points_to_it() -> None:
    app = Streams("spark")
    app.stream("in", value=json("xs array<double>")).map_values(spark_sql("array_max(value.xs)", "double")).to("out")
    with pytest.raises(StreamsError, match='engine="spark"'):
        app.test()


def test_unknown_topics_of_a_test() -> None:
    app = Streams("topics")
    app.stream("orders", value=string).to("out")
    test = app.test()
    with pytest.raises(NoSuchTopic, match="did you mean orders"):
        test.send("order", "k", "a")
    with pytest.raises(NoSuchTopic, match="does not write to topic orders"):
        test.read("orders")


def app_of_the_guide() -> Streams:
    app = Streams("revenue")
    orders = app.stream("orders", value=json("user string, amount double, at timestamp"), time="at")
    users = app.table("users", value=json("name string, country string"))
    joined = orders.filter("amount > 0").join(users, on="user")
    joined.group_by("country").windowed(Tumbling(minutes(1))).aggregate(total="sum(amount)", n="count(*)").to("revenue")
    joined.to("joined")
    return app


def test_queries_are_cut_between_operators_with_state() -> None:
    app = app_of_the_guide()
    first, second = queries_of(app.topology)
    assert (first.name, second.name) == ("revenue-join-1", "revenue-aggregate-1")
    assert [outlet.internal.topic if outlet.internal else outlet.node.name for outlet in first.outlets] == [
        "revenue-aggregate-1-repartition",
        "to-2",
    ]
    assert [each.topic for each in second.inputs] == ["revenue-aggregate-1-repartition"]


def test_a_topology_is_described_as_text_and_as_a_picture() -> None:
    app = app_of_the_guide()
    text = app.describe()
    for line in (
        "revenue: 2 queries",
        "query revenue-join-1",
        "← stream-1  amount > 0",
        "topic users as a table",
        "← select_key-1, table-1  [state]",
        "writes revenue-aggregate-1-repartition",
        "total=sum(amount), n=count(*) in Tumbling(1min, grace 1min)",
        "{key string, start timestamp, end timestamp} → {total double, n bigint}",
    ):
        assert line in text
    picture = Xml.fromstring(app.svg())
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"orders", "users", "revenue", "join-1", "amount > 0"} <= set(texts)


def test_every_operator_has_a_description() -> None:
    app = Streams("all")
    a, b = (app.stream(name, value=ORDER) for name in "ab")
    t, u = (app.table(name, value=json(f"{name} string")) for name in "tu")
    g = app.global_table("g", value=json("x string"))
    a.branch(big="amount > 1", rest=None).rest.join(g, on="user").to("1")
    a.join(b, lambda one, other: "x", returns="string", within=(seconds(1), seconds(2))).to("2")
    a.group_by_key().cogroup(lambda v, n: n + 1).windowed(Tumbling(seconds(1))).aggregate(lambda: 0).to("3")
    t.join(u, on="t").filter_not("t = 'x'").group_by("u").count().to("4")
    t.outer_join(u).to_stream().flat_map_values(lambda v: [v["t"]], returns="string").for_each(print)
    text = app.describe()
    for part in ("the rest", "within -1s/+2s, grace 2s", "on user", "not t = 'x'", "for_each-1", "as a global table"):
        assert part in text


def test_a_program_has_a_bounded_number_of_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MAX_NODES", 5)
    stream = Streams("large").stream("in", value=string)
    for _ in range(4):
        stream = stream.filter("true")
    with pytest.raises(TopologyRefused, match="at most 5 operators"):
        stream.filter("true")


REFUSED = {
    "the name of an application": lambda app: Streams("my app"),
    "is not the name of a topic": lambda app: app.stream("a b"),
    "is read already, as a stream": lambda app: (app.stream("a"), app.table("a")),
    "raw, string or json(…)": lambda app: app.stream("a", value="user string"),
    "json(…) takes a schema as text": lambda app: json(int),
    "no type strng": lambda app: json("user strng"),
    "is a bigint, not a timestamp": lambda app: app.stream("a", value=json("at bigint"), time="at"),
    "Declare the field as timestamp": lambda app: app.stream("a", value=json("at string"), time="at"),
    "no field amout; did you mean amount?": lambda app: app.stream("a", value=ORDER).filter("amout > 0"),
    "a condition is true or false": lambda app: app.stream("a", value=ORDER).filter("amount"),
    "is not a condition in SQL": lambda app: app.stream("a").filter(3),
    "it gets 1, or 2 with the key first": lambda app: app.stream("a").filter(lambda a, b, c: True),
    "is not known: give it as returns=": lambda app: app.stream("a").map_values(lambda value: 1),
    "which has no type in a topic": lambda app: app.stream("a").map_values(lambda value: 1, returns=set),
    "null has no type": lambda app: app.stream("a").map_values("null"),
    "either one expression or function": lambda app: app.stream("a").map_values(),
    "field X is there twice": lambda app: app.stream("a").map_values(x="1", X="2"),
    "name the key that is not a field": lambda app: app.stream("a", value=ORDER).group_by("user", "amount + 1"),
    "name at least one key": lambda app: app.stream("a").group_by(),
    "must be the last branch": lambda app: app.stream("a").branch(rest=None, big="true"),
    "name at least one branch": lambda app: app.stream("a").branch(),
    "Make them alike": lambda app: app.stream("a").merge(app.stream("b", value=string)),
    "name the streams to merge with": lambda app: app.stream("a").merge(),
    "becomes one with to_stream()": lambda app: app.stream("a").merge(app.table("b")),
    "cannot be written as string": lambda app: app.stream("a", value=ORDER).to("b", value=string),
    "the name filter-1 is taken": lambda app: app.stream("a").filter("true").filter("true", as_="filter-1"),
    "belongs to another application": lambda app: app.stream("a").merge(Streams("other").stream("b")),
    "max cannot forget a row": lambda app: app.table("a", value=ORDER).group_by("user").aggregate("max(amount)"),
    "give subtract": lambda app: app.table("a").group_by("key").aggregate(lambda: 0, lambda row, n: n),
    "amount has a value per record": lambda app: app.stream("a", value=ORDER).group_by_key().aggregate(total="amount"),
    "give either one aggregate": lambda app: app.stream("a").group_by_key().aggregate(),
    "give add, a function": lambda app: app.stream("a").group_by_key().aggregate(lambda: 0),
    "the first argument is a function too": lambda app: app.stream("a").group_by_key().aggregate("count(*)", len),
    "writes nothing": lambda app: app.topology,
    "is for dead letters and is read": lambda app: (app.stream("a").to("b"), app.dead_letters("a"), app.topology),
    "for dead letters and for the results": lambda app: (app.stream("a").to("b"), app.dead_letters("b"), app.topology),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_is_refused_when_it_is_built(reason: str) -> None:
    with pytest.raises((TopologyRefused, ValueError)) as refused:
        REFUSED[reason](Streams("refused"))
    assert reason in str(refused.value)


def test_formats_of_topics() -> None:
    app = Streams("formats")
    app.stream("raw", key=raw, value=raw).to("raw-out")
    app.stream(
        "json", key=json("bigint"), value=json("d date, b binary, x decimal(5,2), f float, m map<string,int>")
    ).to("out")
    test = app.test()
    test.send("raw", b"\xff", b"\x00")
    test.send("json", 5, b'{"d": "2026-11-18", "b": "AQI=", "x": "1.5", "f": 1, "m": {"a": 1}, "more": []}')
    assert test.read("raw-out") == [(b"\xff", b"\x00", ())]
    (result,) = test.read("out")
    assert (result.key, str(result.value["x"]), result.value["b"]) == (5, "1.50", b"\x01\x02")
    assert (result.value["m"], result.value["f"], str(result.value["d"])) == ({"a": 1}, 1.0, "2026-11-18")
