"""Exactly once with a real Spark: repeated batches, several sinks, and what stops a query instead of doubling rows."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients import confluent
from support.clients.confluent import Record

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

Consume = Callable[..., list[Record]]


class Pipeline:
    """Files of lines into a topic, a batch for each run, from one checkpoint."""

    def __init__(self, spark: Any, broker: AnyBroker, directory: Path, topic: str) -> None:
        self.spark = spark
        self.topic = topic
        self.input = directory / "in"
        self.checkpoint = directory / "checkpoint"
        self.input.mkdir()
        self.options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "delivery": "exactly-once"}

    def add(self, name: str, count: int) -> None:
        (self.input / f"{name}.txt").write_text("\n".join(f"{name}-{n}" for n in range(count)))

    def lines(self) -> Any:
        return self.spark.readStream.text(str(self.input))

    def run(self, frame: Any = None, **options: object) -> None:
        writing = (self.lines() if frame is None else frame).writeStream.format("moldau")
        self.wait(writing.options(**self.options).options(**options))

    def wait(self, writing: Any) -> None:
        query = writing.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    def forget_commit(self) -> int:
        """As if the driver had died before Spark noted that the last batch is done."""
        batches = [int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit()]
        (self.checkpoint / "commits" / str(max(batches))).unlink()
        (self.checkpoint / "commits" / f".{max(batches)}.crc").unlink(missing_ok=True)
        return max(batches)

    @property
    def query(self) -> str:
        found: str = json.loads((self.checkpoint / "metadata").read_text())["id"]
        return found


@pytest.fixture
def pipeline(spark: Any, broker: AnyBroker, tmp_path: Path, create_topic: CreateTopic) -> Pipeline:
    return Pipeline(spark, broker, tmp_path, create_topic(partitions=3))


def values(records: list[Record]) -> Counter[str]:
    return Counter((record.value or b"").decode() for record in records)


def lines(**files: int) -> Counter[str]:
    return Counter(f"{name}-{n}" for name, count in files.items() for n in range(count))


def failure(action: Callable[[], object]) -> str:
    with pytest.raises(Exception, match=r"\S") as caught:
        action()
    return str(caught.value)


def test_a_repeated_batch_is_written_once(pipeline: Pipeline, consume: Consume) -> None:
    pipeline.add("a", 300)
    pipeline.run()
    pipeline.add("b", 200)
    pipeline.run()
    assert pipeline.forget_commit() == 1
    pipeline.run()
    pipeline.add("c", 100)
    pipeline.run()
    assert values(consume(pipeline.topic)) == lines(a=300, b=200, c=100)


def test_a_repeated_batch_with_other_rows_stops_the_query(pipeline: Pipeline, consume: Consume) -> None:
    pipeline.add("a", 100)
    random = pipeline.lines().selectExpr("string(rand()) as value")
    pipeline.run(random)
    pipeline.forget_commit()
    for _ in range(2):
        said = failure(lambda: pipeline.run(random))
        assert "task 0 of batch 0 has written 100 rows" in said
        assert "is now given 100 rows" in said
        assert "Look for rand() and similar functions" in said
    assert len(consume(pipeline.topic)) == 100


def test_a_repeated_batch_with_fewer_tasks_stops_the_query(pipeline: Pipeline, broker: AnyBroker) -> None:
    """Task 1 of an earlier attempt had written its rows; now there is only task 0, which sees nothing wrong."""
    from moldau.client.direct.metadata import Cluster
    from moldau.client.direct.offsets import commit
    from moldau.spark.sink.control_offsets import ControlOffsets, TaskCommit

    pipeline.add("a", 5)
    pipeline.run()
    control = ControlOffsets(pipeline.query, "sink", pipeline.topic)
    with Cluster(broker.bootstrap) as cluster:
        assert commit(cluster, control.task_group(1), {control.tp: TaskCommit(1, 5, "d").offset()}) is None
    pipeline.add("b", 10)
    for _ in range(2):
        assert "batch 1 now has 1 tasks, but task 1 wrote 5 rows of it before" in failure(pipeline.run)


def test_coalesce_makes_a_batch_one_transaction(pipeline: Pipeline, broker: AnyBroker, consume: Consume) -> None:
    from moldau.client.direct.metadata import Cluster
    from moldau.spark.sink.control_offsets import ControlOffsets

    tasks = []
    spread = pipeline.lines().repartition(3)
    for name, frame in (("a", spread), ("b", spread.coalesce(1))):
        pipeline.add(name, 30)
        pipeline.run(frame)
        with Cluster(broker.bootstrap) as cluster:
            finished = ControlOffsets(pipeline.query, "sink", pipeline.topic).batch_commit(cluster)
        assert finished is not None
        tasks.append((finished.batch, finished.tasks))
    assert tasks == [(0, 3), (1, 1)]
    assert values(consume(pipeline.topic)) == lines(a=30, b=30)


def test_two_sinks_in_one_foreach_batch(pipeline: Pipeline, create_topic: CreateTopic, consume: Consume) -> None:
    import moldau.spark

    other = create_topic(partitions=2)
    everything = moldau.spark.sink(pipeline.options, sinkName="everything")
    short = moldau.spark.sink({**pipeline.options, "topic": other}, sinkName="short")

    def both(frame: Any, batch_id: int) -> None:
        everything(frame, batch_id)
        short(frame.where("length(value) < 4"), batch_id)

    for repeat in (False, True):
        if repeat:
            pipeline.forget_commit()
        else:
            pipeline.add("a", 50)
        pipeline.wait(pipeline.lines().writeStream.foreachBatch(both))
    assert values(consume(pipeline.topic)) == lines(a=50)
    assert values(consume(other)) == lines(a=10)


def test_update_mode(pipeline: Pipeline, consume: Consume) -> None:
    import moldau.spark

    counts = pipeline.lines().groupBy("value").count().selectExpr("value as key", "string(count) as value")
    for _ in range(2):
        pipeline.add("a", 3)
        sink = moldau.spark.sink(pipeline.options, sinkName="counts")
        pipeline.wait(counts.writeStream.outputMode("update").foreachBatch(sink))
        (pipeline.input / "a.txt").rename(pipeline.input / "b.txt")
    found = Counter((record.key, record.value) for record in consume(pipeline.topic))
    assert found == Counter({(f"a-{n}".encode(), count): 1 for n in range(3) for count in (b"1", b"2")})


def test_lost_control_offsets_stop_the_query(pipeline: Pipeline, broker: AnyBroker, consume: Consume) -> None:

    pipeline.add("a", 5)
    pipeline.run()
    group = f"moldau-{pipeline.query}-sink-batches"
    admin = confluent.admin(broker.bootstrap)
    admin.delete_consumer_groups([group])[group].result(60)
    pipeline.add("b", 5)
    assert f"this is batch 1, but there is no offset of the group {group}" in failure(pipeline.run)
    pipeline.run(failOnControlLoss="false")
    pipeline.add("c", 5)
    pipeline.run()
    assert values(consume(pipeline.topic)) == lines(a=5, b=5, c=5)


def test_a_checkpoint_from_a_backup_stops_the_query(pipeline: Pipeline, consume: Consume, tmp_path: Path) -> None:
    pipeline.add("a", 5)
    pipeline.run()
    shutil.copytree(pipeline.checkpoint, tmp_path / "backup")
    for name in ("b", "c"):
        pipeline.add(name, 5)
        pipeline.run()
    shutil.rmtree(pipeline.checkpoint)
    (tmp_path / "backup").rename(pipeline.checkpoint)
    assert "batch 1 is to be written, but batch 2 of this query is already written" in failure(pipeline.run)
    assert values(consume(pipeline.topic)) == lines(a=5, b=5, c=5)


def test_rows_that_name_their_topics(pipeline: Pipeline, create_topic: CreateTopic, consume: Consume) -> None:
    topics = [create_topic(partitions=2), create_topic(partitions=2)]
    named = pipeline.lines().selectExpr(f"if(value < 'b', '{topics[0]}', '{topics[1]}') as topic", "value")
    pipeline.options["controlTopic"] = pipeline.options.pop("topic")
    pipeline.add("a", 20)
    pipeline.add("b", 30)
    pipeline.run(named)
    pipeline.forget_commit()
    pipeline.run(named)
    assert [values(consume(topic)) for topic in topics] == [lines(a=20), lines(b=30)]
    del pipeline.options["controlTopic"]
    pipeline.add("c", 1)
    assert "controlTopic must name a topic for control offsets" in failure(lambda: pipeline.run(named))


def test_what_cannot_be_had(pipeline: Pipeline) -> None:
    import moldau.spark

    with pytest.raises(Exception, match="sinkName must be set with delivery=exactly-once in foreachBatch"):
        moldau.spark.sink(pipeline.options)
    frame = pipeline.spark.range(1).selectExpr("string(id) as value")
    writing = frame.write.format("moldau").options(**pipeline.options).mode("append")
    assert "sinkName must be set" in failure(writing.save)
    assert "exactly-once needs a streaming query" in failure(writing.option("sinkName", "s").save)
    assert "exactly-once needs a streaming query" in failure(
        lambda: moldau.spark.sink(pipeline.options, sinkName="s")(frame, 0)
    )
    pipeline.add("a", 1)
    pipeline.spark.sparkContext.setLocalProperty("spark.speculation", "true")  # as Spark hands its settings to tasks
    try:
        assert "spark.speculation must be off with exactly-once" in failure(pipeline.run)
    finally:
        pipeline.spark.sparkContext.setLocalProperty("spark.speculation", None)
