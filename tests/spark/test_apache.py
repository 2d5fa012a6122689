"""Our `format("moldau")` on Apache Kafka itself: batch, stream, write, and exactly-once.

All tests of this directory run there with MOLDAU_TEST_BROKER=apache; these do always, where java and its jars are.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from support.brokers.processes import ApacheKafkaProcess
from support.clients.confluent import Record, read, write
from support.clients.raw import RawClient
from support.kafka import jvm
from support.log.batches import CODECS
from support.spark.rows import records, streamed

pytestmark = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafkaProcess]:
    process = ApacheKafkaProcess(tmp_path_factory.mktemp("kafka"))
    process.start()
    yield process
    process.close()


@pytest.fixture
def options(kafka: ApacheKafkaProcess) -> dict[str, str]:
    where = {"kafka.bootstrap.servers": kafka.bootstrap, "startingOffsets": "earliest", "includeHeaders": "true"}
    return {**where, "kafka.isolation.level": "read_committed"}


def made(kafka: ApacheKafkaProcess, topic: str, partitions: int) -> str:
    with RawClient(kafka.bootstrap) as client:
        client.create_topic(topic, partitions, {})
    return topic


def fill(kafka: ApacheKafkaProcess, topic: str, first: int, count: int, codec: str = "none") -> None:
    written = [
        {"key": b"%d" % number, "value": b"v" * (number % 50) or None, "headers": [("n", None), ("n", b"%d" % number)]}
        for number in range(first, first + count)
    ]
    write(kafka.bootstrap, topic, written, compression_type=codec)


def test_batches(spark: Any, kafka: ApacheKafkaProcess, topic: str, options: dict[str, str]) -> None:
    made(kafka, topic, 3)
    for number, codec in enumerate(CODECS):
        fill(kafka, topic, number * 100, 100, codec)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "aborted")
    assert producer.flush(60) == 0
    producer.abort_transaction(60)
    found = records(spark.read.format("moldau").options(**options, subscribe=topic).load())
    assert found == read(kafka.bootstrap, topic)
    assert len(found) == len(CODECS) * 100


def test_streams(spark: Any, kafka: ApacheKafkaProcess, topic: str, options: dict[str, str], checkpoint: str) -> None:
    made(kafka, topic, 3)
    found: list[Record] = []
    for part in range(2):
        fill(kafka, topic, part * 100, 100)
        batches = streamed(spark, {**options, "subscribe": topic, "maxOffsetsPerTrigger": "60"}, checkpoint)
        assert sum(map(len, batches)) == 100
        found += [record for batch in batches for record in batch]
    assert sorted(found) == sorted(read(kafka.bootstrap, topic))


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_writing(
    spark: Any, kafka: ApacheKafkaProcess, topic: str, options: dict[str, str], checkpoint: str, delivery: str
) -> None:
    source, target = made(kafka, f"{topic}-in", 3), made(kafka, f"{topic}-out", 3)
    for part in range(2):
        fill(kafka, source, part * 100, 100)
        frame = spark.readStream.format("moldau").options(**options, subscribe=source).load()
        writer = frame.select("key", "value", "headers").writeStream.format("moldau")
        query = (
            writer.options(**{"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, "delivery": delivery})
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert _contents(read(kafka.bootstrap, target)) == _contents(read(kafka.bootstrap, source))


def _contents(found: list[Record]) -> list[tuple[object, ...]]:
    return sorted((record.key or b"", record.value or b"", record.headers) for record in found)
