"""The topic's reader and writer on a real broker: fencing, atomicity, records that are too large."""

import threading
import time
import uuid
from collections.abc import Iterator

import pytest

from moldau.client.admin.target import Target
from moldau.services.registry.core.errors import Code, RegistryError
from moldau.services.registry.core.records import Content, NoopKey, Record, SchemaKey, StoredSchema
from moldau.services.registry.topic import Batch, TopicReader, TopicRefused, TopicWriter, WriterLost, ensure_topic
from support.brokers.processes import AnyBroker, CreateTopic
from support.eventually import eventually

NOOP = Record(NoopKey(), None)


def schema(subject: str, text: str = '"string"') -> Record:
    content = Content("AVRO", text)
    return Record(SchemaKey(subject, 1), StoredSchema(subject, 1, 1, content, content.digest()))


class Reading:
    """A reader, and what it has read."""

    def __init__(self, target: Target, topic: str) -> None:
        self.keys: list[object] = []
        self.complete = threading.Event()
        self.reader = TopicReader(target, topic, self._take)
        self.reader.start()

    def _take(self, batch: Batch) -> None:
        self.keys += [record.key for record in batch.records]
        if batch.at_end:
            self.complete.set()


@pytest.fixture
def target(broker: AnyBroker) -> Target:
    return Target(broker.bootstrap)


@pytest.fixture
def name(target: Target) -> str:
    topic = f"_schemas-{uuid.uuid4().hex[:8]}"
    ensure_topic(target, topic)
    return topic


@pytest.fixture
def reading(target: Target, name: str) -> Iterator[Reading]:
    found = Reading(target, name)
    yield found
    found.reader.stop(10)


def test_a_new_writer_fences_the_old_one(target: Target, name: str, reading: Reading) -> None:
    old = TopicWriter(target, name)
    old.append([schema("first")])
    new = TopicWriter(target, name)
    with pytest.raises(WriterLost) as lost:
        old.append([schema("second")])
    assert not lost.value.uncertain or "fenced" in str(lost.value).lower()
    new.append([schema("third")])
    eventually(lambda: SchemaKey("third", 1) in reading.keys, "the new writer's record is read")
    assert reading.keys == [SchemaKey("first", 1), SchemaKey("third", 1)]


def test_a_record_that_is_too_large_leaves_the_writer_as_it_was(target: Target, name: str, reading: Reading) -> None:
    writer = TopicWriter(target, name)
    with pytest.raises(RegistryError) as refused:
        writer.append([schema("small"), schema("large", "x" * 3_000_000)])
    assert refused.value.code is Code.SCHEMA_TOO_LARGE
    writer.append([schema("after")])
    eventually(lambda: reading.keys, "the record after it is read")
    assert reading.keys == [SchemaKey("after", 1)], "records of one decision are written together or not at all"


def test_a_reader_that_starts_while_others_write_is_complete_nevertheless(target: Target, name: str) -> None:
    writer, over = TopicWriter(target, name), threading.Event()

    def write() -> None:
        while not over.is_set():
            writer.append([NOOP])

    writing = threading.Thread(target=write)
    writing.start()
    time.sleep(0.2)
    late = Reading(target, name)
    try:
        assert late.complete.wait(30)
    finally:
        over.set()
        writing.join()
        late.reader.stop(10)


def test_the_topic_has_one_partition(target: Target, create_topic: CreateTopic) -> None:
    with pytest.raises(TopicRefused, match="must have one"):
        ensure_topic(target, create_topic(partitions=2))
    assert ensure_topic(target, create_topic(partitions=1))


def test_without_a_broker_the_reader_says_why() -> None:
    reading = Reading(Target("127.0.0.1:1"), "_schemas")
    eventually(lambda: "127.0.0.1:1" in reading.reader.problem, "the problem is told")
    reading.reader.stop(10)
