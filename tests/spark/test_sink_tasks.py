"""Tasks of an exactly-once sink on a real broker, without Spark: attempts that meet, rows that fail, tasks that go."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.confluent import Record

pa = pytest.importorskip("pyarrow", reason="needs PyArrow: pip install '.[spark]'")
pytest.importorskip("pandas", reason="needs pandas: pip install '.[spark]'")

from moldau.spark.cluster import QueryFailed  # noqa: E402
from moldau.spark.options import write_options  # noqa: E402
from moldau.spark.sink.control_offsets import ControlOffsets  # noqa: E402
from moldau.spark.sink.exactly_once import WriteTask, commit_batch, write_exactly_once  # noqa: E402
from moldau.spark.sink.layout import Layout  # noqa: E402

Consume = Callable[..., list[Record]]


class Query:
    def __init__(self, broker: AnyBroker, topic: str) -> None:
        self.control = ControlOffsets(f"query-of-{topic}", "sink", topic)
        self.options = write_options(
            {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "delivery": "exactly-once"}
        )

    def write(self, batch: int, index: int, rows: Iterator[Any]) -> int:
        task = WriteTask(self.control, index, batch, "first run", every_batch=True)
        return write_exactly_once(rows, self.options, Layout(value=0), task)

    def finish(self, batch: int, tasks: int, run: str = "first run") -> None:
        commit_batch(self.options, self.control, batch, tasks, run)


def rows(*names: str) -> Iterator[Any]:
    for name in names:
        yield pa.record_batch([pa.array([f"{name}-{n}".encode() for n in range(100)])], names=["value"])


def expected(*names: str) -> Counter[bytes | None]:
    return Counter(f"{name}-{n}".encode() for name in names for n in range(100))


def found(records: list[Record]) -> Counter[bytes | None]:
    return Counter(record.value for record in records)


@pytest.fixture
def query(broker: AnyBroker, create_topic: CreateTopic) -> Query:
    return Query(broker, create_topic(partitions=3))


def test_a_repeated_task_writes_nothing(query: Query, consume: Consume) -> None:
    assert query.write(0, 0, rows("a", "b")) == 200
    assert query.write(0, 0, rows("b", "a")) == 200
    with pytest.raises(QueryFailed, match=r"has written 200 rows .* before, and is now given 100 rows"):
        query.write(0, 0, rows("a"))
    query.finish(0, 1)
    assert query.write(0, 0, rows("a", "b")) == 200
    with pytest.raises(QueryFailed, match="batch 0 was finished with 1 tasks before, and now has a task 1"):
        query.write(0, 1, rows("a"))
    assert query.write(1, 0, rows("c")) == 100
    assert found(consume(query.control.topic)) == expected("a", "b", "c")


def test_a_task_without_rows_is_remembered_too(query: Query, consume: Consume) -> None:
    assert query.write(0, 0, rows()) == 0
    with pytest.raises(QueryFailed, match="has written 0 rows"):
        query.write(0, 0, rows("a"))
    assert consume(query.control.topic) == []


def test_rows_that_fail_leave_nothing(query: Query, consume: Consume) -> None:
    def broken() -> Iterator[Any]:
        yield from rows("a", "b")
        raise RuntimeError("the query itself failed")

    with pytest.raises(RuntimeError, match="the query itself failed"):
        query.write(0, 0, broken())
    assert query.write(0, 0, rows("a", "c")) == 200
    assert found(consume(query.control.topic)) == expected("a", "c")


def test_of_two_attempts_the_later_one_counts(query: Query, consume: Consume) -> None:
    """The first is held up in the middle, as a worker whose executor was taken for lost."""

    def held_up() -> Iterator[Any]:
        yield from rows("a")
        assert query.write(0, 0, rows("a", "b")) == 200
        yield from rows("b")

    with pytest.raises(
        QueryFailed, match="task 0 of batch 0 was fenced while it wrote, and none of its rows are written"
    ):
        query.write(0, 0, held_up())
    query.finish(0, 1)
    assert found(consume(query.control.topic)) == expected("a", "b")


def test_a_transaction_that_takes_too_long(query: Query, broker: AnyBroker, consume: Consume, short_waits: Any) -> None:
    query.options = write_options(
        {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": query.control.topic,
            "delivery": "exactly-once",
            "kafka.transaction.timeout.ms": "300",
            "kafka.batch.size": "100",
        }
    )

    def slow() -> Iterator[Any]:
        yield from rows("a")
        time.sleep(1)  # it is this long that matters here
        yield from rows("b")

    with pytest.raises(QueryFailed, match=r"it took longer than kafka.transaction.timeout.ms \(300 ms\)"):
        query.write(0, 0, slow())
    assert found(consume(query.control.topic)) == expected()


def test_tasks_that_are_no_more(query: Query, consume: Consume) -> None:
    query.write(0, 0, rows("a"))
    query.write(0, 1, rows("b"))
    with pytest.raises(QueryFailed, match="batch 0 now has 1 tasks, but task 1 wrote 100 rows of it before"):
        query.finish(0, 1)
    query.finish(0, 2)
    query.write(1, 0, rows("c"))
    query.finish(1, 1, run="second run")  # what task 1 has written is of another batch
    assert found(consume(query.control.topic)) == expected("a", "b", "c")


def test_an_offset_of_another_client(query: Query, broker: AnyBroker) -> None:
    from moldau.client.direct.metadata import Cluster
    from moldau.client.direct.offsets import OffsetAndMetadata, commit

    with Cluster(broker.bootstrap) as cluster:
        commit(cluster, query.control.task_group(0), {query.control.tp: OffsetAndMetadata(0, "mine")})
    with pytest.raises(QueryFailed, match="another client has committed an offset of the group moldau-query-of-"):
        query.write(0, 0, rows("a"))
