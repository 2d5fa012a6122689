"""A stream's reader, called as Spark calls it, without Spark: what would take a query of its own for each step."""

import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from support.brokers.processes import AnyBroker, BrokerProcess, CreateTopic
from support.clients.raw import RawClient

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from moldau.base.ids import TopicPartition
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.offsets import committed
from moldau.spark.cluster import QueryFailed
from moldau.spark.datasource import MoldauDataSource
from moldau.spark.options import read_options
from moldau.spark.source.offset_reader import OffsetReader
from moldau.spark.source.stream import StreamReader

Send = Callable[..., None]
KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"


def numbers(*which: int, partition: int = 0) -> list[dict[str, Any]]:
    return [{"value": b"%d" % number, "partition": partition} for number in which]


class Query:
    """What Spark does with a reader: offsets as JSON texts, batches one after the other."""

    def __init__(self, bootstrap: str, **options: object) -> None:
        given = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest"} | options
        source = MoldauDataSource({name: str(value) for name, value in given.items()})
        reader = source.streamReader(_kafka_columns())
        assert isinstance(reader, StreamReader)
        self.reader = reader
        self.at: str | None = None

    def restarted(self, bootstrap: str, **options: object) -> "Query":
        after = Query(bootstrap, **options)
        after.at = self.at
        return after

    def batch(self, limit: ReadLimit | None = None) -> list[int] | None:
        """The values of the next batch; None if there is none."""
        start = self.at or json.dumps(self.reader.initialOffset())
        limit = limit or self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(start=json.loads(start), limit=limit))
        if end == self.at:
            return None
        self.at = end
        return self.run(start, end)

    def run(self, start: str, end: str) -> list[int]:
        tasks = self.reader.partitions(start=json.loads(start), end=json.loads(end))
        batches = (batch for task in tasks for batch in self.reader.read(task))
        return sorted(int(value) for batch in batches for value in batch.column("value").to_pylist())


def _kafka_columns() -> StructType:
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, TimestampType

    types = {
        "binary": BinaryType(),
        "string": StringType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
    }
    found = StructType()
    for column in KAFKA.split(", "):
        name, kind = column.split()
        found = found.add(name, types[kind])
    return found


def test_a_topic_that_was_deleted(
    broker: AnyBroker, raw: RawClient, produce: Send, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """And created anew, with fewer records than before and with more: it is another topic all the same."""
    gone, other = create_topic(), create_topic()
    for name in (gone, other):
        produce(name, numbers(1, 2, 3))
    names = f"{gone},{other}"
    query = Query(broker.bootstrap, subscribe=names)
    assert query.batch() == [1, 1, 2, 2, 3, 3]
    raw.delete_topics([gone])
    with pytest.raises(QueryFailed, match=f"Partition {gone}-0 was deleted.*failOnDataLoss"):
        query.batch()
    lenient = query.restarted(broker.bootstrap, subscribe=names, failOnDataLoss=False)
    produce(other, numbers(4))
    with caplog.at_level(logging.WARNING):
        assert lenient.batch() == [4]
    assert f"Partition {gone}-0 was deleted" in caplog.text
    raw.create_topic(gone)
    produce(gone, numbers(5))
    query = lenient.restarted(broker.bootstrap, subscribe=names)
    assert query.batch() == [5]
    for anew in ([], [6, 7, 8]):
        raw.delete_topics([gone])
        raw.create_topic(gone)
        produce(gone, numbers(*anew))
        with pytest.raises(QueryFailed, match=f"The topic {gone} was deleted and recreated.*failOnDataLoss"):
            query.batch()
        lenient = query.restarted(broker.bootstrap, subscribe=names, failOnDataLoss=False)
        assert lenient.batch() == anew
        assert lenient.batch() is None
        query = lenient.restarted(broker.bootstrap, subscribe=names)


def test_a_batch_that_runs_again_on_another_topic_of_that_name(
    broker: AnyBroker, raw: RawClient, produce: Send, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    produce(topic, numbers(1, 2, 3))
    query = Query(broker.bootstrap, subscribe=topic)
    start = json.dumps(query.reader.initialOffset())
    assert query.batch() == [1, 2, 3]
    assert query.at is not None
    assert query.run(start, query.at) == [1, 2, 3]
    raw.delete_topics([topic])
    with pytest.raises(QueryFailed, match=f"The topic {topic} was deleted.*failOnDataLoss"):
        query.run(start, query.at)
    raw.create_topic(topic)
    produce(topic, numbers(7, 8, 9))
    with pytest.raises(QueryFailed, match=f"The topic {topic} was deleted and recreated.*failOnDataLoss"):
        query.run(start, query.at)
    assert Query(broker.bootstrap, subscribe=topic, failOnDataLoss=False).run(start, query.at) == []


def test_records_that_are_deleted_while_a_batch_waits_for_its_turn(
    broker: AnyBroker, raw: RawClient, produce: Send, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic()
    produce(topic, numbers(*range(10)))
    query = Query(broker.bootstrap, subscribe=topic, maxRecordsPerPartition=4)
    start = json.dumps(query.reader.initialOffset())
    assert query.batch() == list(range(10))
    raw.delete_records(topic, 6)
    assert query.at is not None
    with pytest.raises(
        QueryFailed, match=rf"{topic}-0 \[0, 3\) was deleted: the log start offset is 6.*failOnDataLoss"
    ):
        query.run(start, query.at)
    lenient = Query(broker.bootstrap, subscribe=topic, failOnDataLoss=False)
    with caplog.at_level(logging.WARNING):
        assert lenient.run(start, query.at) == [6, 7, 8, 9]
    assert f"{topic}-0 [3, 6) was deleted" in caplog.text
    raw.delete_records(topic, 10)
    assert lenient.run(start, query.at) == []


def test_limits_and_all_that_is_there_now(broker: AnyBroker, produce: Send, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    options = {"subscribe": topic, "minOffsetsPerTrigger": 4, "maxOffsetsPerTrigger": 8, "maxTriggerDelay": "1h"}
    query = Query(broker.bootstrap, **options)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(8)
    assert Query(broker.bootstrap, subscribe=topic, minOffsetsPerTrigger=4).reader.getDefaultReadLimit() == ReadMinRows(
        4
    )
    assert query.batch() == []
    assert query.batch() is None
    produce(topic, numbers(1, 2))
    assert query.batch() == [1, 2], "the first that has any does not wait"
    produce(topic, numbers(3, 4, 5))
    assert query.batch() is None, "fewer than the least"
    produce(topic, numbers(6, 7, 8, 9, 10, 11, partition=1))
    assert query.batch() == [3, 4, 6, 7, 8, 9, 10], "eight, rounded down for each partition"
    now = query.restarted(broker.bootstrap, **options)
    now.reader.prepareForTriggerAvailableNow()
    produce(topic, numbers(*range(12, 20)))
    assert now.batch() == [5, 11], "no less is too few to end with"
    assert now.batch() is None, "what came later is for the next run"
    everything = now.restarted(broker.bootstrap, **options)
    assert everything.batch(ReadAllAvailable()) == list(range(12, 20)), "a trigger without limits"


def test_new_partitions_begin_at_their_beginning(
    broker: AnyBroker, raw: RawClient, produce: Send, create_topic: CreateTopic, topic: str
) -> None:
    """One that has lost its beginning already is a loss."""
    first = create_topic()
    query = Query(broker.bootstrap, subscribePattern=f"{topic}-.*", startingOffsets="latest")
    assert query.batch() == []
    produce(create_topic(), numbers(1, 2))
    produce(first, numbers(3))
    assert query.batch() == [1, 2, 3]
    third = create_topic()
    produce(third, numbers(4, 5, 6))
    raw.delete_records(third, 1)
    with pytest.raises(QueryFailed, match=f"The log start offset of the new partition {third}-0 is 1, not 0"):
        query.batch()
    lenient = query.restarted(broker.bootstrap, subscribePattern=f"{topic}-.*", failOnDataLoss=False)
    assert lenient.batch() == [5, 6]


def test_progress_is_committed_when_a_batch_is_finished(
    broker: AnyBroker, produce: Send, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic()
    produce(topic, numbers(1, 2, 3))
    query = Query(broker.bootstrap, **{"subscribe": topic, "kafka.group.id": topic, "kafka.max.poll.records": 5})
    with Cluster(broker.bootstrap) as cluster:

        def offset() -> Any:
            found = committed(cluster, topic)
            assert isinstance(found, dict)
            return found[TopicPartition(topic, 0)]

        with caplog.at_level(logging.WARNING):
            query.batch()
        assert "These options have no effect: kafka.max.poll.records" in caplog.text
        assert offset().offset == 0
        assert query.batch() is None
        assert offset().offset == 3


def test_transactions_that_are_open(broker: AnyBroker, create_topic: CreateTopic) -> None:
    """A reader of what is committed waits at the first of them, and passes what is aborted without a word."""
    topic = create_topic()
    committing = Query(broker.bootstrap, **{"subscribe": topic, "kafka.isolation.level": "read_committed"})
    hasty = Query(broker.bootstrap, subscribe=topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    ends = {producer.commit_transaction: [1, 2], producer.abort_transaction: []}
    assert (committing.batch(), hasty.batch()) == ([], [])
    for end, expected in ends.items():
        producer.begin_transaction()
        producer.produce(topic, b"1")
        producer.produce(topic, b"2")
        producer.flush()
        assert committing.batch() is None
        assert hasty.batch() == [1, 2]
        end()
        assert committing.batch() == expected
        assert hasty.batch() == [], "the marker, which is no record"
        assert committing.batch() is None


@pytest.mark.usefixtures("short_waits")
def test_a_group_that_others_use_is_no_reason_to_fail(
    broker: AnyBroker, produce: Send, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic()
    produce(topic, numbers(1, 2, 3))
    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    member.subscribe([topic])
    try:
        assert member.poll(60) is not None
        query = Query(broker.bootstrap, **{"subscribe": topic, "kafka.group.id": topic})
        with caplog.at_level(logging.WARNING):
            assert query.batch() == [1, 2, 3]
        assert f"Could not commit the progress of the query to the group {topic}" in caplog.text
    finally:
        member.close()


def test_the_columns_are_fixed(broker: AnyBroker) -> None:
    source = MoldauDataSource({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "any"})
    with pytest.raises(QueryFailed, match=r"without decode the columns are: key binary.*leave out .schema"):
        source.reader(StructType().add("value", "string"))
    with pytest.raises(QueryFailed, match="the checkpoint was written by format"):
        Query(broker.bootstrap, subscribe="any").reader.latestOffset(start={"any": {"0": 5}}, limit=ReadAllAvailable())


def test_a_checkpoint_of_another_topic(broker: AnyBroker, produce: Send, create_topic: CreateTopic) -> None:
    orders, payments = create_topic(), create_topic()
    produce(orders, numbers(1))
    query = Query(broker.bootstrap, subscribe=orders)
    assert query.batch() == [1]
    sentence = f"^the checkpoint is for {orders}, the query reads {payments}"
    for lenient in (False, True):
        changed = query.restarted(broker.bootstrap, subscribe=payments, failOnDataLoss=not lenient)
        with pytest.raises(QueryFailed, match=sentence) as refused:
            changed.batch()
        assert "failOnDataLoss" not in str(refused.value)
    assert query.at is not None
    with pytest.raises(QueryFailed, match=sentence):  # the batch is repeated, because it was not finished
        changed.run(json.dumps({"offsets": {}, "cuts": {}, "topicIds": {}}), query.at)
    more = query.restarted(broker.bootstrap, subscribe=f"{orders},{payments}")
    produce(payments, numbers(2))
    assert more.batch() == [2]


def test_a_stream_waits_for_a_broker_that_has_answered(own_broker: BrokerProcess) -> None:
    """A request fails after half a second; a batch query, and a stream that has not begun, fail with it."""
    with RawClient(own_broker.bootstrap) as client:
        client.create_topic("orders", 1)
    where = {"kafka.bootstrap.servers": own_broker.bootstrap, "kafka.request.timeout.ms": "500", "subscribe": "orders"}
    stream, batch = (OffsetReader(read_options(where, stream=each)) for each in (True, False))
    found = [reader.partitions() for reader in (stream, batch)]
    own_broker.kill()
    with pytest.raises(QueryFailed, match=own_broker.bootstrap):
        batch.latest(found[1].partitions)
    with pytest.raises(QueryFailed, match=own_broker.bootstrap):
        OffsetReader(read_options(where, stream=True)).partitions()
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(stream.latest, found[0].partitions)]
        own_broker.start()
        waiting.append(threads.submit(batch.latest, found[1].partitions))
        tp = TopicPartition("orders", 0)
        assert [each.result(timeout=120) for each in waiting] == [{tp: 0}, {tp: 0}]
    stream.close()
    batch.close()
