"""Joins as Kafka's documentation shows them, and what they do without keys, late and with functions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moldau.streams import KStream, KTable, Streams, TopologyRefused, json, seconds, string
from support.streams.join_tables import (
    DELETED,
    FOREIGN_KEY,
    STREAM_STREAM,
    STREAM_TABLE,
    TABLE_TABLE,
    ForeignKeyStep,
    Step,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
OPERATORS = {"inner": "join", "left": "left_join", "outer": "outer_join"}


def joined(how: str, left: Any, right: Any, **more: Any) -> Any:
    return getattr(left, OPERATORS[how])(right, **more)


def results(app: Streams, steps: tuple[Step, ...]) -> list[tuple[object, ...]]:
    """What each step gave: pairs, or DELETED."""
    test = app.test()
    given = []
    for step in steps:
        test.send(step.side, "k", step.value, timestamp=BEGIN + timedelta(seconds=step.second))
        values = [result.value for result in test.read("joined")]
        given.append(tuple(DELETED if value is None else (value["left"], value["right"]) for value in values))
    return given


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_streams(how: str) -> None:
    app = Streams("joins")
    left, right = (app.stream(side, value=string) for side in ("left", "right"))
    joined(how, left, right, within=seconds(15), grace=seconds(5)).to("joined")
    assert results(app, STREAM_STREAM) == [getattr(step, how) for step in STREAM_STREAM]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_stream_and_a_table(how: str) -> None:
    app = Streams("joins")
    joined(how, app.stream("left", value=string), app.table("right", value=string)).to("joined")
    assert results(app, STREAM_TABLE) == [getattr(step, how) for step in STREAM_TABLE]


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_tables(how: str) -> None:
    app = Streams("joins")
    joined(how, app.table("left", value=string), app.table("right", value=string)).to("joined")
    assert results(app, TABLE_TABLE) == [getattr(step, how) for step in TABLE_TABLE]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_tables_by_a_foreign_key(how: str) -> None:
    app = Streams("joins")
    left, right = app.table("left", value=json("ref string")), app.table("right", value=json("name string"))
    joined(how, left, right, on="ref").to("joined")
    test = app.test()
    for step in FOREIGN_KEY:
        with test.batch():
            send_rows(test, step)
        given = sorted(
            (result.key, DELETED) if result.value is None else (result.key, result.value["ref"], result.value["name"])
            for result in test.read("joined")
        )
        assert given == list(step.inner if how == "inner" else step.outer), step


def send_rows(test: Any, step: ForeignKeyStep) -> None:
    if step.right:
        test.send("right", step.right[0], {"name": step.right[1]})
    if step.left:
        test.send("left", step.left[0], {"ref": step.left[1]})


def test_a_deleted_row_leaves_the_join_by_a_foreign_key() -> None:
    app = Streams("joins")
    left, right = app.table("left", value=json("ref string")), app.table("right", value=json("name string"))
    left.join(right, on="ref").to("joined")
    test = app.test()
    test.send("right", "1", {"name": "one"})
    test.send("left", "a", {"ref": "1"})
    test.send("left", "a", None)
    test.send("right", "1", {"name": "uno"})
    assert [(result.key, result.value) for result in test.read("joined")] == [
        ("a", {"ref": "1", "name": "one"}),
        ("a", None),
    ]


def test_a_record_without_a_key_finds_no_row_but_stays_in_a_left_join() -> None:
    for how, expected in (("inner", []), ("left", [{"left": "A", "right": None}])):
        app = Streams("joins")
        joined(how, app.stream("left", value=string), app.table("right", value=string)).to("joined")
        test = app.test()
        test.send("right", None, "a")
        test.send("left", None, "A")
        assert [result.value for result in test.read("joined")] == expected


def test_a_batch_is_taken_in_the_order_of_time() -> None:
    app = Streams("joins")
    app.stream("left", value=string).left_join(app.table("right", value=string)).to("joined")
    test = app.test()
    with test.batch():
        test.send("left", "k", "late", timestamp=BEGIN + timedelta(seconds=3))
        test.send("right", "k", "a", timestamp=BEGIN + timedelta(seconds=2))
    with test.batch():
        test.send("right", "k", "b", timestamp=BEGIN + timedelta(seconds=5))
        test.send("left", "k", "early", timestamp=BEGIN + timedelta(seconds=4))
    assert [result.value for result in test.read("joined")] == [
        {"left": "late", "right": "a"},
        {"left": "early", "right": "a"},
    ]


def test_a_late_record_of_a_stream_join_is_dropped_and_counted() -> None:
    app = Streams("joins")
    left, right = (app.stream(side, value=string) for side in ("left", "right"))
    left.join(right, within=seconds(10), grace=seconds(2), as_="pairs").to("joined")
    test = app.test()
    for second, side in ((1, "left"), (20, "left"), (2, "right"), (19, "right")):
        test.send(side, "k", f"{side} {second}", timestamp=BEGIN + timedelta(seconds=second))
    assert [result.value for result in test.read("joined")] == [{"left": "left 20", "right": "right 19"}]
    assert test.late == {"pairs": 1}


def test_sides_of_a_window_may_differ() -> None:
    app = Streams("joins")
    left, right = (app.stream(side, value=string) for side in ("left", "right"))
    left.join(right, within=(seconds(0), seconds(5))).to("joined")
    test = app.test()
    for second, side in ((10, "right"), (11, "left"), (14, "right"), (16, "right"), (17, "right")):
        test.send(side, "k", f"{second}", timestamp=BEGIN + timedelta(seconds=second))
    assert [result.value["right"] for result in test.read("joined")] == ["14", "16"]


def test_a_global_table_is_found_by_any_key_and_the_key_stays() -> None:
    app = Streams("joins")
    countries = app.global_table("countries", value=json("name string"))
    app.stream("orders", value=json("country string")).left_join(countries, on="country").to("named")
    test = app.test()
    test.send("countries", "CZ", {"name": "Czechia"})
    test.send("orders", "1", {"country": "CZ"})
    test.send("orders", "2", {"country": "XX"})
    assert [(each.key, each.value["name"]) for each in test.read("named")] == [("1", "Czechia"), ("2", None)]


def test_the_result_of_a_join_is_a_function_or_named_expressions() -> None:
    app = Streams("joins")
    orders = app.stream("orders", value=json("user string, amount double"))
    users = app.table("users", value=json("user string, country string"))
    orders.join(users, amount="amount * 2", country="right.country", who="key", both="left.user || right.user").to(
        "sql"
    )
    orders.join(users, lambda order, user: f"{user['country']}: {order['amount']}", returns="string").to("python")
    orders.join(users, lambda key, order, user: key, returns="string").to("keys")
    test = app.test()
    test.send("users", "a", {"user": "Ann", "country": "CZ"})
    test.send("orders", "a", {"user": "ann", "amount": 2.5})
    (sql,), (python,), (key,) = (test.read(topic) for topic in ("sql", "python", "keys"))
    assert sql.value == {"amount": 5.0, "country": "CZ", "who": "a", "both": "annAnn"}
    assert (python.value, key.value) == ("CZ: 2.5", "a")


def stream(app: Streams, topic: str, **more: Any) -> KStream:
    return app.stream(topic, value=json("user string, amount double"), **more)


def table(app: Streams, topic: str, **more: Any) -> KTable:
    return app.table(topic, value=json("name string, score bigint"), **more)


def on_score(app: Streams) -> KTable:
    return table(app, "a").join(table(app, "b"), on="score")


REFUSED = {
    "give within=minutes": lambda app: stream(app, "a").join(stream(app, "b")),
    "a table has no window": lambda app: stream(app, "a").join(table(app, "b"), within=seconds(1)),
    "Use left_join": lambda app: stream(app, "a").outer_join(table(app, "b")),
    "its key is a string and that of table-1 a bigint": lambda app: stream(app, "a").join(
        table(app, "b", key=json("bigint"))
    ),
    "Use another on=…": on_score,
    'name="left.name"': lambda app: table(app, "a").join(table(app, "b")),
    "name is a field of both sides: write left.name": lambda app: table(app, "a").join(table(app, "b"), x="name"),
    "to_table()": lambda app: table(app, "a").join(stream(app, "b")),
    "select_key on both": lambda app: stream(app, "a").join(stream(app, "b"), on="user"),
    "either a function or named": lambda app: table(app, "a").join(table(app, "b"), lambda a, b: 1, x="1"),
    "is neither a stream nor a table": lambda app: stream(app, "a").join("b"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_join_that_cannot_be_is_refused(reason: str) -> None:
    with pytest.raises(TopologyRefused) as refused:
        REFUSED[reason](Streams("joins"))
    assert reason in str(refused.value)
