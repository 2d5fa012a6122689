"""Compacted topics on a real broker: they shrink while they are used, and keep the last value of each key."""

import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support.brokers.disk import segments
from support.brokers.processes import BrokerProcess, StartBroker
from support.clients.confluent import read_values
from support.clients.raw import RawClient
from support.eventually import eventually

TOPIC = "tables"
CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "40000",
    "min.cleanable.dirty.ratio": "0.1",
    "file.delete.delay.ms": "0",
}
KEYS = 50
Table = dict[bytes, bytes]


@pytest.fixture
def own(start_broker: StartBroker, on_apache: bool) -> BrokerProcess:
    if on_apache:
        pytest.skip("looks at the files of a Moldau broker")
    broker = start_broker(log_cleaner_backoff_ms=50)
    create(broker)
    return broker


def create(broker: BrokerProcess) -> None:
    with RawClient(broker.bootstrap) as client:
        client.create_topic(TOPIC, 1, CONFIGS)


def directory(broker: BrokerProcess) -> Path:
    return broker.data / f"{TOPIC}-0"


def size(broker: BrokerProcess) -> int:
    return sum(path.stat().st_size for path in segments(directory(broker)))


def unfinished(broker: BrokerProcess) -> list[Path]:
    return [path for path in directory(broker).iterdir() if path.suffix in (".cleaned", ".swap")]


class Writer:
    """An idempotent producer of random keys, and what the table must be in the end."""

    def __init__(self, broker: BrokerProcess) -> None:
        settings = {"enable.idempotence": True, "linger.ms": 5, "batch.num.messages": 20, "message.timeout.ms": 120_000}
        retries = {"reconnect.backoff.max.ms": 200}
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, **settings, **retries})
        self._random = random.Random(7)
        self.table: Table = {}
        self.count = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            key, value = b"key-%d" % self._random.randrange(KEYS), b"%d" % self.count
            self._producer.produce(TOPIC, value, key)
            self.table[key] = value
            self.count += 1
            if self.count % 1000 == 0:
                self._producer.flush(60)
        assert not self._producer.flush(60)


def read(broker: BrokerProcess) -> tuple[Table, list[int]]:
    """The last value of each key, and all offsets, as a consumer from the beginning sees them."""
    settings = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    table: Table = {}
    offsets = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        table[message.key()] = message.value()
        offsets.append(message.offset())
    consumer.close()
    return table, offsets


def test_a_topic_shrinks_while_it_is_used(own: BrokerProcess) -> None:
    writer = Writer(own)
    for _ in range(5):
        writer.write(2000)
        table, offsets = read(own)
        assert table == writer.table
        assert offsets == sorted(set(offsets))
    eventually(lambda: size(own) < 120_000, "the log has shrunk", lambda: size(own))
    table, offsets = read(own)
    assert table == writer.table
    assert offsets[-1] == writer.count - 1
    assert len(offsets) < writer.count / 2
    own.stop()
    own.start()
    assert read(own)[0] == writer.table
    writer.write(2000)
    assert read(own)[0] == writer.table
    checkpoint = (own.data / "cleaner-offset-checkpoint").read_text().split()
    assert checkpoint[2:4] == [TOPIC, "0"]


def test_killed_while_it_cleans(own: BrokerProcess) -> None:
    writer = Writer(own)
    for _ in range(6):
        writer.write(1500)
        eventually(lambda: unfinished(own) or size(own) < 60_000, "it cleans, or has cleaned", lambda: size(own))
        own.kill()
        own.start()
        table, offsets = read(own)
        assert table == writer.table
        assert offsets == sorted(set(offsets))
    eventually(lambda: size(own) < 120_000 and not unfinished(own), "it has cleaned", lambda: size(own))
    assert read(own)[0] == writer.table


def test_a_broker_that_is_killed_takes_its_cleaner_along(start_broker: StartBroker, on_apache: bool) -> None:
    if on_apache:
        pytest.skip("looks at the processes of a Moldau broker")
    own = start_broker(log_cleaner_backoff_ms=50, log_cleaner_io_max_bytes_per_second=20_000)
    create(own)
    writer = Writer(own)
    writer.write(3000)
    [cleaner] = eventually(lambda: children(own), "a cleaner runs")
    own.kill()
    eventually(lambda: not Path(f"/proc/{cleaner}").exists(), "the cleaner has ended")
    own.start()
    assert not unfinished(own)
    assert read(own)[0] == writer.table


def children(broker: BrokerProcess) -> list[int]:
    path = Path(f"/proc/{broker.pid}/task/{broker.pid}/children")
    if not path.exists():
        pytest.skip("needs Linux: lists the broker's processes")
    return [int(number) for number in path.read_text().split()]


def test_aborted_values_are_never_seen(own: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": own.bootstrap, "transactional.id": "tables"})
    producer.init_transactions(30)
    table: dict[str, str] = {}
    for number in range(120):
        producer.begin_transaction()
        committed = number % 3 != 1
        for place in range(20):
            key = f"key-{(number * 7 + place) % KEYS}"
            value = f"{key}:{number}:{committed}" + "x" * 40
            producer.produce(TOPIC, value, key)
            if committed:
                table[key] = value
        if committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        if number % 20 == 19:
            check_committed(own, table)
    eventually(lambda: size(own) < 100_000, "the log has shrunk", lambda: size(own))
    check_committed(own, table)
    own.kill()
    own.start()
    check_committed(own, table)


def check_committed(broker: BrokerProcess, table: dict[str, str]) -> None:
    values = read_values(broker.bootstrap, TOPIC)
    assert not [value for value in values if "False" in value]
    assert {value.partition(":")[0]: value for value in values} == table


def test_committed_offsets_are_compacted_and_kept(start_broker: StartBroker, on_apache: bool) -> None:
    if on_apache:
        pytest.skip("looks at the files of a Moldau broker")
    own = start_broker(
        log_cleaner_backoff_ms=50,
        offsets_topic_num_partitions=1,
        offsets_topic_segment_bytes=1 << 20,
        log_cleaner_min_cleanable_ratio=0.1,
        log_segment_delete_delay_ms=0,
    )
    create(own)
    consumer = Consumer({"bootstrap.servers": own.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    count = 1200
    for number in range(count):
        offset = TopicPartition(TOPIC, 0, number, metadata="m" * 2000)
        consumer.commit(offsets=[offset], asynchronous=0 < number < count - 1)
    offsets = own.data / "__consumer_offsets-0"

    def compacted() -> bool:
        try:
            return sum(path.stat().st_size for path in segments(offsets)) < 1 << 20
        except FileNotFoundError:  # the cleaner replaced a segment since it was listed
            return False

    eventually(compacted, "the commits are compacted")
    for restart in (own.stop, own.kill):
        assert consumer.committed([TopicPartition(TOPIC, 0)], 30)[0].offset == count - 1
        restart()
        own.start()
    assert consumer.committed([TopicPartition(TOPIC, 0)], 30)[0].offset == count - 1
    consumer.close()
