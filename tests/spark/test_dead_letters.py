"""Dead letters exactly once: a task that runs again writes none again, wherever the first attempt ended."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.wire.dead_letters import Origin, origin_in
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.confluent import Record
from support.eventually import eventually
from support.spark.process import SparkProcess

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

from moldau.spark.cluster import QueryFailed
from moldau.spark.options import read_options
from moldau.spark.source.dead_letters_once import DeadLettersOnce
from moldau.spark.source.plan import OffsetRange, ReadTask
from moldau.spark.source.task import read_task
from moldau.spark.value_formats import Rejected

Send = Callable[..., None]
Stored = Callable[..., list[Record]]

QUERY = "0b4a6c5e"
PATIENCE_S = 400


class Attempts:
    """Attempts of tasks of one query that reject every record of a range of a topic."""

    def __init__(self, broker: AnyBroker, topic: str, dead: str) -> None:
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "decode": "json"}
        options |= {"deadLetters": dead, "delivery": "exactly-once"}
        self.options = read_options(options, stream=True)
        self.topic = topic

    def begin(self, start: int, end: int, number: int = 0) -> DeadLettersOnce:
        task = ReadTask(OffsetRange(self.topic, 0, start, end), None, number)
        letters = DeadLettersOnce(self.options, task, QUERY)
        for batch in read_task(self.options, task):
            letters.take(batch, [Rejected(row, "why") for row in range(batch.num_rows)])
        return letters

    def finish(self, start: int, end: int, number: int = 0) -> None:
        self.begin(start, end, number).__exit__(None, None, None)


@pytest.fixture
def attempts(broker: AnyBroker, create_topic: CreateTopic, produce: Send) -> Attempts:
    topic, dead = create_topic(), create_topic(partitions=2)
    produce(topic, [{"value": b"%d" % number} for number in range(30)])
    return Attempts(broker, topic, dead)


def origins(letters: list[Record]) -> Counter[int]:
    """Offsets of the records that the dead letters come from."""
    found: list[Origin | None] = [origin_in(each.headers or ()) for each in letters]
    return Counter(each.offset for each in found if each is not None)


def test_a_repeated_task_writes_no_dead_letters_again(attempts: Attempts, consume: Stored) -> None:
    dead = str(attempts.options.dead_letters)
    for _ in range(2):
        attempts.finish(0, 10)
        attempts.finish(10, 20, number=1)
    assert origins(consume(dead)) == Counter(range(20))
    attempts.finish(20, 30)
    assert origins(consume(dead)) == Counter(range(30))


def test_an_attempt_that_ends_in_the_middle_leaves_nothing(attempts: Attempts, consume: Stored) -> None:
    dead = str(attempts.options.dead_letters)
    attempts.begin(0, 10).close()  # its process was killed
    attempts.begin(0, 10).__exit__(ValueError, ValueError(), None)
    assert not consume(dead)
    attempts.finish(0, 10)
    assert origins(consume(dead)) == Counter(range(10))


def test_an_attempt_that_is_overtaken_writes_nothing(attempts: Attempts, consume: Stored) -> None:
    late = attempts.begin(0, 10)
    attempts.finish(0, 10)
    with pytest.raises(QueryFailed, match=rf"reads {attempts.topic}-0 was fenced while it wrote dead letters"):
        late.__exit__(None, None, None)
    assert origins(consume(str(attempts.options.dead_letters))) == Counter(range(10))


class Split:
    """A topic whose good records go to one topic and the others, one in ten, to another."""

    def __init__(self, broker: AnyBroker, create_topic: CreateTopic, produce: Send, directory: Path) -> None:
        self.source, self.target, self.dead = create_topic(partitions=2), create_topic(), create_topic()
        self.checkpoint = directory / "checkpoint"
        self.columns = ["key", "string(value.id) AS value"]
        where = {"kafka.bootstrap.servers": broker.bootstrap, "delivery": "exactly-once"}
        decodes = {"decode": "json", "valueSchema": "id bigint", "deadLetters": self.dead}
        self.reads = {**where, **decodes, "subscribe": self.source, "startingOffsets": "earliest"}
        self.writes = {**where, "topic": self.target}
        self._produce = produce
        self._sent = 0

    def send(self, count: int) -> None:
        numbers = range(self._sent, self._sent + count)
        rows = [(n, b"%d?" % n if n % 10 == 0 else b'{"id": %d}' % n) for n in numbers]
        self._produce(self.source, [{"value": value, "partition": n // 10 % 2} for n, value in rows])
        self._sent += count

    def good(self) -> Counter[bytes]:
        return Counter(b"%d" % n for n in range(self._sent) if n % 10)

    def bad(self) -> Counter[bytes]:
        return Counter(b"%d?" % n for n in range(0, self._sent, 10))

    def forget_commit(self) -> None:
        """As if the driver had died before Spark noted that the last batch is done."""
        last = max(int(each.name) for each in (self.checkpoint / "offsets").iterdir() if each.name.isdigit())
        for name in (f"{last}", f".{last}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def check(self, consume: Stored) -> None:
        assert values(consume(self.dead)) == self.bad()
        assert values(consume(self.target)) == self.good()
        letters = [origin_in(letter.headers or ()) for letter in consume(self.dead)]
        assert {each.topic for each in letters if each} == {self.source}


@pytest.fixture
def split(broker: AnyBroker, create_topic: CreateTopic, produce: Send, tmp_path: Path) -> Split:
    return Split(broker, create_topic, produce, tmp_path)


def values(records: list[Record]) -> Counter[bytes]:
    return Counter(each.value or b"" for each in records)


def test_a_query_that_repeats_a_batch(spark: Any, split: Split, consume: Stored) -> None:
    def run() -> None:
        frame = spark.readStream.format("moldau").options(**split.reads).load().selectExpr(*split.columns)
        asked = {**split.writes, "checkpointLocation": str(split.checkpoint)}
        writing = frame.writeStream.format("moldau").options(**asked).trigger(availableNow=True)
        writing.start().awaitTermination()

    split.send(120)
    run()
    split.forget_commit()
    split.send(60)
    run()
    split.check(consume)


@pytest.mark.skipif(not os.environ.get("MOLDAU_FULL"), reason="make spark kills the query of the test above")
def test_a_killed_query_that_repeats_a_batch(
    split: Split, consume: Stored, tmp_path: Path, python_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 of driver, JVM and workers; Spark has not noted the last batch, whose dead letters are written."""
    monkeypatch.setenv("PYTHONPATH", python_path)

    def run(master: str) -> SparkProcess:
        driver = SparkProcess(tmp_path / "driver.log", master=master)
        asked = {"source": split.reads, "sink": split.writes, "format": "moldau"}
        driver.ask("copy", **asked, columns=split.columns, checkpoint=str(split.checkpoint))
        return driver

    def is_copied() -> bool:
        return values(consume(split.target)) >= split.good() and values(consume(split.dead)) >= split.bad()

    split.send(120)
    driver = run("local[2]")
    try:
        eventually(is_copied, "everything is copied", driver.tail, PATIENCE_S)
    finally:
        driver.kill()
    split.forget_commit()
    split.send(60)
    driver = run("local[1]")
    try:
        driver.ask("finish")
    finally:
        driver.kill()
    split.check(consume)
