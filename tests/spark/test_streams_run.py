"""Programs of Streams on a broker: from topics to topics, exactly once, over restarts and changes."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.spark.pipelines.directory import PipelineDirectory, pipeline_directory
from moldau.streams import Streams, Tumbling, seconds
from moldau.streams import json as as_json
from support.brokers.processes import AnyBroker
from support.clients.confluent import Record
from support.clients.raw import RawClient
from support.eventually import eventually

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

from moldau.streams.compiler.running import (
    MissingTopics,
    NotRunnable,
    ProgramChanged,
    execute_reset,
    plan_reset,
    start_queries,
)

Send = Callable[..., None]
Stored = Callable[..., list[Record]]


class Running:
    """Runs programs on the shared broker, with one directory."""

    def __init__(self, spark: Any, broker: AnyBroker, directory: PipelineDirectory) -> None:
        self.spark, self.bootstrap, self.directory = spark, broker.bootstrap, directory
        self.queries: list[Any] = []

    def start(self, app: Streams) -> None:
        self.queries = start_queries(app.topology, self.spark, self.bootstrap, self.directory)

    def stop(self) -> None:
        for query in self.queries:
            query.stop()


@pytest.fixture
def running(spark: Any, broker: AnyBroker, tmp_path: Path, topic: str) -> Iterator[Running]:
    runs = Running(spark, broker, pipeline_directory(str(tmp_path), topic))
    yield runs
    runs.stop()


@pytest.fixture
def topics(broker: AnyBroker, topic: str) -> dict[str, str]:
    """Fresh topics for orders, users, results and dead letters."""
    names = {name: f"{topic}-{name}" for name in ("orders", "users", "revenue", "broken")}
    with RawClient(broker.bootstrap) as client:
        for name in names.values():
            client.create_topic(name, 2, {})
    return names


def revenue(name: str, topics: dict[str, str], aggregate: str = "sum(amount)") -> Streams:
    app = Streams(name)
    orders = app.stream(topics["orders"], value=as_json("user string, amount double, at timestamp"), time="at")
    users = app.table(topics["users"], value=as_json("country string"))
    app.dead_letters(topics["broken"])
    joined = orders.filter("amount > 0").join(users, on="user")
    joined.group_by("country").windowed(Tumbling(seconds(60))).aggregate(total=aggregate, n="count(*)").to(
        topics["revenue"]
    )
    return app


def order(user: str, amount: float, second: int) -> dict[str, Any]:
    """Later than the rows of users: an order before its user finds none."""
    value = {"user": user, "amount": amount, "at": f"2030-11-18T10:00:{second:02}Z"}
    return {"key": b"1", "value": json.dumps(value).encode()}


def newest(records: list[Record]) -> dict[str, Any]:
    return {json.loads(each.key or b"null")["key"]: json.loads(each.value or b"null") for each in records}


def test_a_program_runs_and_goes_on_after_a_restart(
    running: Running, produce: Send, consume: Stored, topics: dict[str, str], topic: str
) -> None:
    produce(
        topics["users"],
        [{"key": b"ann", "value": b'{"country": "CZ"}'}, {"key": b"bob", "value": b'{"country": "SK"}'}],
    )
    running.start(revenue(topic, topics))
    produce(topics["orders"], [order("ann", 10, 1), order("bob", 5, 2), order("ann", -1, 3), {"value": b"{"}])

    def totals() -> dict[str, Any]:
        return newest(consume(topics["revenue"]))

    eventually(lambda: len(totals()) == 2, "the first results", totals)
    assert totals() == {"CZ": {"total": 10.0, "n": 1}, "SK": {"total": 5.0, "n": 1}}
    (letter,) = consume(topics["broken"])
    assert letter.value == b"{"
    running.stop()
    produce(topics["orders"], [order("ann", 2.5, 4)])
    running.start(revenue(topic, topics))
    eventually(lambda: totals()["CZ"]["n"] == 2, "the result after the restart", totals)
    assert totals() == {"CZ": {"total": 12.5, "n": 2}, "SK": {"total": 5.0, "n": 1}}
    (window,) = {each.key for each in consume(topics["revenue"]) if b"CZ" in (each.key or b"")}
    assert json.loads(window or b"")["start"] == "2030-11-18T10:00:00.000000Z"
    running.stop()

    with pytest.raises(ProgramChanged, match=r"total=sum\(amount\).* and is .*total=avg\(amount\)"):
        running.start(revenue(topic, topics, "avg(amount)"))
    plan = plan_reset(running.directory)
    assert plan.topics == (f"{topic}-aggregate-1-repartition",)
    assert len(plan.checkpoints) == 2
    execute_reset(running.directory, plan, running.bootstrap)
    assert plan_reset(running.directory).checkpoints == ()


def test_what_cannot_run_is_refused_before_it_starts(running: Running, topics: dict[str, str], topic: str) -> None:
    app = Streams(topic)
    app.stream(topics["orders"]).to(f"{topic}-nowhere")
    with pytest.raises(MissingTopics, match=f"do not exist: {topic}-nowhere"):
        running.start(app)
    app = Streams(topic)
    left, right = (app.table(topics[name], value=as_json(f"{name} string")) for name in ("orders", "users"))
    left.join(right, on="orders").to(topics["revenue"])
    with pytest.raises(NotRunnable, match="foreign key"):
        running.start(app)
