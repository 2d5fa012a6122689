"""Restart and kill -9 in the middle of production: every acknowledged record is there, once and in order.

The producers are idempotent and keep on trying while the broker is away. What is on disk is spoiled by hand where a
power cut would spoil it.
"""

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from support.brokers.disk import partition_directory, segments, stored_batches
from support.brokers.processes import BrokerProcess, StartBroker
from support.clients.raw import RawClient
from support.kafka import jvm
from support.log.batches import Written, batch, plain_values, read_batches

TOPIC = "survivor"
PARTITIONS = 2
ENOUGH = 2000  # records acknowledged before and after each interruption
PATIENCE = 90
WAYS: dict[str, Callable[[BrokerProcess], None]] = {
    "SIGTERM": BrokerProcess.stop,
    "kill -9": BrokerProcess.kill,
}


class SteadyProducer:
    """Numbers 0, 1, 2, … to the partitions in turn, from a thread of its own, until told to stop."""

    def __init__(self, bootstrap: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "batch.num.messages": 50,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.max.ms": 200,
            "queue.buffering.max.messages": 5000,
        }
        self.producer = Producer(settings)
        self.acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.errors: list[KafkaError] = []
        self.sent = 0
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.ending.is_set():
            try:
                value = str(self.sent).encode()
                self.producer.produce(TOPIC, value, partition=self.sent % PARTITIONS, on_delivery=self.delivered)
                self.sent += 1
                self.producer.poll(0)
            except BufferError:
                self.producer.poll(0.05)
        self.producer.flush(PATIENCE)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[message.partition()].append(int(message.value()))
        else:
            self.errors.append(error)

    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def wait_for_more(self, many: int = ENOUGH) -> None:
        """Until so many more records are acknowledged."""
        wanted, deadline = self.count() + many, time.monotonic() + PATIENCE
        while self.count() < wanted:
            assert time.monotonic() < deadline, f"{self.count()} of {wanted} acknowledged; {self.errors[:3]}"
            assert not self.errors, self.errors[:3]
            time.sleep(0.01)


@contextmanager
def producing(broker: BrokerProcess) -> Iterator[SteadyProducer]:
    producer = SteadyProducer(broker.bootstrap)
    producer.thread.start()
    try:
        yield producer
    finally:
        producer.ending.set()
        producer.thread.join()


def read_all(broker: BrokerProcess, partition: int) -> list[int]:
    """Every value of the partition, by raw fetches, so that nothing is filtered out."""
    found: list[int] = []
    with RawClient(broker.bootstrap) as client:
        end = client.list_offset(TOPIC, -1, partition).offset
        while len(found) < end:
            batches = client.fetched(TOPIC, len(found), partition)
            assert batches, (len(found), end)
            for each in batches:
                assert each.base_offset == len(found), "no gap and no overlap between batches"
                found += [int(value or b"-1") for value in plain_values(each)]
    return found


def create(broker: BrokerProcess, partitions: int = PARTITIONS, **configs: str) -> None:
    with RawClient(broker.bootstrap) as client:
        client.create_topic(TOPIC, partitions, {name.replace("_", "."): value for name, value in configs.items()})


@pytest.mark.parametrize("way", WAYS)
def test_every_acknowledged_record_is_there_once_and_in_order(start_broker: StartBroker, way: str) -> None:
    own = start_broker()
    create(own)
    with producing(own) as producer:
        for _ in range(3):
            producer.wait_for_more()
            WAYS[way](own)
            own.start()
        producer.wait_for_more()
    assert not producer.errors, producer.errors[:3]
    for partition in range(PARTITIONS):
        everything = list(range(partition, producer.sent, PARTITIONS))
        assert producer.acknowledged[partition] == everything, "the producer was told of each, in order"
        assert read_all(own, partition) == everything


@pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")
@pytest.mark.parametrize("way", WAYS)
def test_a_java_producer_goes_on_after_an_interruption(start_broker: StartBroker, tmp_path: Path, way: str) -> None:
    """Kafka's own console producer, idempotent by default, is fed numbers while the broker goes and comes back."""
    own = start_broker()
    create(own, partitions=1)
    total, half = 20_000, 10_000
    settings = ["delivery.timeout.ms=120000", "linger.ms=2", "reconnect.backoff.max.ms=200"]
    options = [part for setting in settings for part in ("--command-property", setting)]
    command = [str(jvm.java()), "-Xmx256m", "-cp", str(jvm.classpath())]
    tool = ["org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", own.bootstrap, "--topic", TOPIC]
    with (tmp_path / "producer.log").open("w") as log:
        feeder = subprocess.Popen([*command, *tool, *options], stdin=subprocess.PIPE, stdout=log, stderr=log, text=True)
    assert feeder.stdin is not None
    feeder.stdin.writelines(f"{number}\n" for number in range(half))
    feeder.stdin.flush()
    with RawClient(own.bootstrap) as client:
        while client.list_offset(TOPIC, -1).offset == 0:
            time.sleep(0.02)
    WAYS[way](own)
    own.start()
    feeder.stdin.writelines(f"{number}\n" for number in range(half, total))
    feeder.stdin.close()
    assert feeder.wait(PATIENCE) == 0, (tmp_path / "producer.log").read_text()[-2000:]
    assert read_all(own, 0) == list(range(total))


def test_producer_state_survives_a_restart(start_broker: StartBroker) -> None:
    """A duplicate is known, a gap is refused and ids are not handed out again, after SIGTERM and after kill -9."""
    own = start_broker()
    create(own, partitions=1)
    with RawClient(own.bootstrap) as client:
        who = client.new_producer()
        for sequence in range(7):
            assert client.produce(TOPIC, batch(producer=who, sequence=sequence)).base_offset == sequence
    handed_out = {who.id}
    for way in WAYS.values():
        way(own)
        own.start()
        with RawClient(own.bootstrap) as client:
            client.wait_for_topic(TOPIC, 1)
            again = client.produce(TOPIC, batch(producer=who, sequence=6))
            assert (again.error_code, again.base_offset) == (0, 6)
            assert client.produce(TOPIC, batch(producer=who, sequence=8)).error_code == 45
            newer = client.new_producer().id
            assert newer not in handed_out
            handed_out.add(newer)
            assert client.list_offset(TOPIC, -1).offset == 7


def test_topics_ids_configs_and_cluster_id_survive(start_broker: StartBroker) -> None:
    own = start_broker()
    create(own, partitions=3, retention_ms="123456")

    def state() -> tuple[object, ...]:
        with RawClient(own.bootstrap) as client:
            client.wait_for_topic(TOPIC, 3)
            found = client.metadata(TOPIC)
            return found.topic_id, len(found.partitions), client.configs(TOPIC)["retention.ms"], client.cluster_id()

    before = state()
    assert before[2] == "123456"
    for way in WAYS.values():
        way(own)
        own.start()
        assert state() == before


def test_the_log_start_survives(start_broker: StartBroker) -> None:
    own = start_broker()
    create(own, partitions=1)
    with RawClient(own.bootstrap) as client:
        for _ in range(5):
            client.produce(TOPIC, batch())
        assert client.delete_records(TOPIC, 3) == 3
    own.restart()
    with RawClient(own.bootstrap) as client:
        client.wait_for_topic(TOPIC, 1)
        assert (client.list_offset(TOPIC, -2).offset, client.list_offset(TOPIC, -1).offset) == (3, 5)


# -- spoiled files


def write_some(broker: BrokerProcess, count: int = 20) -> Path:
    """Some batches in a topic of one partition; its segment file."""
    create(broker, partitions=1)
    with RawClient(broker.bootstrap) as client:
        for number in range(count):
            assert client.produce(TOPIC, batch(Written(str(number).encode()))).error_code == 0
    return segments(partition_directory(broker, TOPIC))[-1]


def cut(file: Path, by: int) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - by)


def spoil(file: Path, by: int) -> None:
    """Turn a bit, that far before the end."""
    with file.open("r+b") as opened:
        opened.seek(-by, 2)
        byte = opened.read(1)[0]
        opened.seek(-by, 2)
        opened.write(bytes([byte ^ 1]))


TORN = {
    "half a batch": (lambda file: cut(file, 30), 19),
    "half a header": (lambda file: file.write_bytes(file.read_bytes() + bytes(7)), 20),
    "a bad checksum": (lambda file: spoil(file, 1), 19),
    "zeroes at the end": (lambda file: file.write_bytes(file.read_bytes() + bytes(5000)), 20),
    "two batches gone in the middle": (lambda file: spoil(file, 75), 18),
}


@pytest.mark.parametrize("damage", TORN)
def test_a_torn_tail_is_cut_off_and_told(start_broker: StartBroker, on_apache: bool, damage: str) -> None:
    own = start_broker()
    segment = write_some(own)
    own.kill()
    spoiling, left = TORN[damage]
    spoiling(segment)
    whole = segment.stat().st_size
    said_before = len(own.log_text())
    own.start()
    with RawClient(own.bootstrap) as client:
        client.wait_for_topic(TOPIC, 1)
        assert client.list_offset(TOPIC, -1).offset == left
        assert client.produce(TOPIC, batch(Written(str(left).encode()))).base_offset == left
    assert read_all(own, 0) == list(range(left + 1))
    if not on_apache:  # its log is not kept
        told = [line for line in own.log_text()[said_before:].splitlines() if f"{TOPIC}-0" in line and "runcat" in line]
        assert len(told) == 1, told
        kept = sum(found.size for found in read_batches(segment.read_bytes())[:left])
        assert re.search(rf"\b{whole - kept:,}\b|\b{whole - kept}\b", told[0]), (told[0], whole - kept)


def test_a_clean_stop_skips_recovery(start_broker: StartBroker, on_apache: bool) -> None:
    """Kafka's marker is there after SIGTERM and gone while the broker runs; nothing is checked or cut."""
    own = start_broker()
    segment = write_some(own)
    marker = segment.parent.parent / ".kafka_cleanshutdown"
    assert not marker.exists()
    own.stop()
    assert marker.exists()
    said_before = len(own.log_text())
    own.start()
    assert not marker.exists()
    assert read_all(own, 0) == list(range(20))
    if not on_apache:
        said = own.log_text()[said_before:]
        assert "runcat" not in said
        assert "Recover" not in said
        assert "recover" not in said


def test_lost_indexes_are_rebuilt(start_broker: StartBroker) -> None:
    own = start_broker()
    segment = write_some(own)
    own.kill()
    for kind in (".index", ".timeindex"):
        segment.with_suffix(kind).unlink(missing_ok=True)
    own.start()
    assert read_all(own, 0) == list(range(20))
    with RawClient(own.bootstrap) as client:
        assert client.list_offset(TOPIC, 0).offset == 0
    assert len(stored_batches(own, TOPIC)) == 20
