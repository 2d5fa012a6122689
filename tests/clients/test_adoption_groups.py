"""Groups and transactions that Apache Kafka left in its directory go on in Moldau. Needs java."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support.brokers.processes import ApacheKafkaProcess, BrokerProcess
from support.kafka import jvm

pytestmark = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")

TOPIC, READ, SHORT = "pages", 40, 10  # records that are read and committed, and those that are left
OPEN_FOR_MS = 5_000
NEVER_MS = 3_600_000  # Kafka would end the transaction itself
SOON_MS = 200
ENDING = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What Kafka leaves after a kill -9: a group of each protocol, a committed transaction and one that is open."""
    kafka = ApacheKafkaProcess(
        tmp_path_factory.mktemp("kafka"),
        {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3", ENDING: NEVER_MS},
    )
    kafka.start()
    try:
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap, "transactional.id": "author", "transaction.timeout.ms": OPEN_FOR_MS}
        )
        producer.init_transactions()
        write(producer, range(READ + SHORT))
        producer.commit_transaction()
        for protocol in PROTOCOLS:
            consumer = reader(kafka.bootstrap, protocol)
            assert len(read(consumer, READ)) == READ
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, READ, f"by {protocol}")], asynchronous=False)
            consumer.close()
        write(producer, range(1000, 1005))
        kafka.kill()
        yield kafka.data
    finally:
        if kafka.process is not None:
            kafka.kill()


def write(producer: Producer, numbers: range) -> None:
    producer.begin_transaction()
    for number in numbers:
        producer.produce(TOPIC, b"%d" % number, partition=0)
    producer.flush()


def reader(bootstrap: str, protocol: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{protocol}-readers",
            "group.protocol": protocol,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    return consumer


def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of {count}"
        if message.error() is None:
            found.append(int(message.value() or b""))
    return found


def test_groups_go_on_and_the_open_transaction_is_ended(directory: Path, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {"group.initial.rebalance.delay.ms": "0", ENDING: SOON_MS})
    shutil.copytree(directory, broker.data)
    broker.start()
    try:
        for protocol in PROTOCOLS:
            consumer = reader(broker.bootstrap, protocol)
            (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
            assert (committed.offset, committed.metadata) == (READ, f"by {protocol}")
            assert read(consumer, SHORT) == list(range(READ, READ + SHORT))
            consumer.close()
        # The transaction times out, its records are aborted, and the same id may write again.
        deadline = time.monotonic() + 60
        consumer = reader(broker.bootstrap, "classic")
        while consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)[1] < READ + SHORT + 7:
            assert time.monotonic() < deadline, "the transaction that Kafka left open is still open"
            time.sleep(0.2)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "author"})
        producer.init_transactions()
        write(producer, range(2000, 2003))
        producer.commit_transaction()
        assert read(consumer, SHORT + 3) == [*range(READ, READ + SHORT), *range(2000, 2003)]
        consumer.close()
        broker.stop()
    finally:
        if broker.process is not None:
            broker.kill()
