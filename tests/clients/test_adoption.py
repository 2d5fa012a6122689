"""A directory that Apache Kafka wrote opens in Moldau, with everything in it: topics, settings, records, producers.

Kafka is filled, asked for everything over the wire, stopped (in order, and by kill -9), and its directory copied.
Moldau starts on a copy and is asked the same. Needs java.
"""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import NewPartitions
from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from support.brokers.processes import ApacheKafkaProcess, BrokerProcess
from support.clients import confluent
from support.clients.raw import RawClient
from support.kafka import jvm
from support.log.batches import CODECS, Producer, Stored, Written, batch, read_batches

pytestmark = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")

TOPIC, BROKER = 2, 4  # kinds of resources
SET, DELETE, APPEND = 0, 1, 2  # IncrementalAlterConfigs
OF_TOPIC = 1  # DescribeConfigs: the value was set for the topic
DUPLICATED = "idempotent"
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "internal.segment.bytes": "2000",
    "delete.retention.ms": "100",
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (1, {}),
    "compacted": (1, COMPACTED),
    "kept": (3, {"retention.ms": "-1", "segment.bytes": "1048576", "leader.replication.throttled.replicas": "*"}),
    "altered": (1, {"retention.ms": "1000000", "max.message.bytes": "100000"}),
    "grown": (1, {}),
    "trimmed": (1, {}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "gone": (2, {"cleanup.policy": "compact"}),
    "again": (2, {"cleanup.policy": "compact"}),
    DUPLICATED: (1, {}),
    "transactional": (1, {}),
    "with-dash-7": (1, {}),
}
KAFKA = {
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True)
class Left:
    """A directory that Kafka left behind, and what Kafka told about it before."""

    directory: Path
    told: dict[str, Any]
    cluster_id: str
    producer: Producer  # of the topic DUPLICATED
    sequence: int  # of its last batch
    last: bytes  # that batch


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Left]]:
    """Kafka's directory after a stop in order, and after kill -9."""
    directory = tmp_path_factory.mktemp("kafka")
    kafka = ApacheKafkaProcess(directory, KAFKA)
    kafka.start()
    try:
        with RawClient(kafka.bootstrap) as client:
            for name, (partitions, configs) in TOPICS.items():
                client.create_topic(name, partitions, configs)
            producer = client.new_producer()
            fill(client, kafka.bootstrap)
            last = resent(client, producer, range(7))
        change(kafka.bootstrap)
        after_stop = describe(kafka, producer, 6, last)
        kafka.stop()
        cleanly = keep(after_stop, kafka.data, directory / "stopped")
        kafka.start()
        with RawClient(kafka.bootstrap) as client:
            client.create_topic("late", 2, {"cleanup.policy": "compact,delete"})
            client.produce("late", batch(Written(b"late")), 1)
            client.delete_topics(["with-dash-7"])
            last = resent(client, producer, range(7, 9))
        after_kill = describe(kafka, producer, 8, last)
        kafka.kill()
        yield {"SIGTERM": cleanly, "kill -9": keep(after_kill, kafka.data, directory / "killed")}
    finally:
        if kafka.process is not None:
            kafka.kill()


def fill(client: RawClient, bootstrap: str) -> None:
    for codec in CODECS.values():
        for partition in range(TOPICS["kept"][0]):
            records = [Written(f"{codec} {number}".encode() * 20, b"key") for number in range(20)]
            assert client.produce("kept", batch(*records, codec=codec), partition).error_code == 0
    for number in range(300):
        assert client.produce("compacted", batch(Written(b"%d" % number, b"%d" % (number % 7)))).error_code == 0
    for name in ("plain", "altered", "grown", "trimmed", "stamped", "gone", "again", "with-dash-7"):
        for number in range(10):
            assert client.produce(name, batch(Written(b"%s %d" % (name.encode(), number), b"key"))).error_code == 0
    assert client.delete_records("trimmed", 4) == 4
    transactional = LibrdkafkaProducer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    transactional.init_transactions()
    for end in (transactional.commit_transaction, transactional.abort_transaction):
        transactional.begin_transaction()
        for number in range(5):
            transactional.produce("transactional", b"%d" % number, partition=0)
        transactional.flush()
        end()


def resent(client: RawClient, producer: Producer, sequences: range) -> bytes:
    """One record per sequence number; the last batch."""
    data = b""
    for number in sequences:
        data = batch(Written(b"%d" % number), producer=producer, sequence=number)
        assert client.produce(DUPLICATED, data).error_code == 0
    return data


def change(bootstrap: str) -> None:
    with RawClient(bootstrap) as client:
        alter(client, TOPIC, "altered", ("retention.ms", DELETE, None), ("cleanup.policy", APPEND, "compact"))
        alter(client, BROKER, "", ("log.retention.ms", SET, "777777777"), ("num.io.threads", SET, "5"))
        admin = confluent.admin(bootstrap)
        admin.create_partitions([NewPartitions("grown", 3)])["grown"].result(60)
        client.wait_for_topic("grown", 3)
        assert client.delete_topics(["gone", "again"]) == [0, 0]
        client.create_topic("again", 1, {"retention.bytes": "123456789"})
        assert client.produce("again", batch(Written(b"second life"))).error_code == 0


def alter(client: RawClient, kind: int, name: str, *changes: tuple[str, int, str | None]) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    asked = resource(resource_type=kind, resource_name=name, configs=configs)
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[asked], validate_only=False), 1).responses[0]
    assert answer.error_code == 0, answer.error_message


def describe(kafka: BrokerProcess, producer: Producer, sequence: int, last: bytes) -> Left:
    wait_for_compaction(kafka.bootstrap)
    with RawClient(kafka.bootstrap) as client:
        return Left(kafka.data, everything(client), client.cluster_id(), producer, sequence, last)


def wait_for_compaction(bootstrap: str) -> None:
    """Gaps in the offsets are worth a test, not worth waiting for long."""
    deadline = time.monotonic() + 30
    with RawClient(bootstrap) as client:
        while len(all_batches(client, "compacted", 0)) > 150 and time.monotonic() < deadline:
            time.sleep(0.2)


def keep(left: Left, source: Path, target: Path) -> Left:
    shutil.copytree(source, target)
    return replace(left, directory=target)


# ── what a client can learn ──


def everything(client: RawClient) -> dict[str, Any]:
    """All topics: id, settings, and for each partition its offsets, epochs and every batch."""
    topics = client.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12).topics
    return {
        topic.name: {
            "id": topic.topic_id,
            "internal": topic.is_internal,
            "configs": own_configs(client, topic.name),
            "partitions": [partition_of(client, topic.name, number) for number in range(len(topic.partitions))],
        }
        for topic in topics
    }


def own_configs(client: RawClient, name: str) -> dict[str, str]:
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=False, include_documentation=False)
    rows = client.ask(request, 4).results[0].configs
    return {row.name: row.value for row in rows if row.config_source == OF_TOPIC}


def partition_of(client: RawClient, name: str, partition: int) -> dict[str, Any]:
    stored = all_batches(client, name, partition)
    epochs = {each.leader_epoch for each in stored}
    latest = max((each.max_timestamp for each in stored), default=0)
    first = client.list_offset(name, -2, partition).offset
    committed = client.fetch(name, first, partition, isolation=1, max_wait_ms=0)
    return {
        "batches": stored,
        "first": first,
        "stable": client.list_offset(name, -1, partition, isolation=1).offset,
        "aborted": [(each.producer_id, each.first_offset) for each in committed.aborted_transactions],
        "end": client.list_offset(name, -1, partition).offset,
        "at the last time": client.list_offset(name, latest, partition).offset if stored else None,
        "epochs": {epoch: end_of_epoch(client, name, partition, epoch) for epoch in epochs},
    }


def all_batches(client: RawClient, name: str, partition: int) -> list[Stored]:
    offset = client.list_offset(name, -2, partition).offset
    end = client.list_offset(name, -1, partition).offset
    stored: list[Stored] = []
    while offset < end:
        found = client.fetched(name, offset, partition)
        assert found, (name, partition, offset, end)
        stored += found
        offset = found[-1].base_offset + found[-1].last_offset_delta + 1
    return stored


def end_of_epoch(client: RawClient, name: str, partition: int, epoch: int) -> tuple[int, int]:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = topic.OffsetForLeaderPartition(partition=partition, current_leader_epoch=-1, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=name, partitions=[asked])])
    found = client.ask(request, 4).topics[0].partitions[0]
    assert found.error_code == 0
    return found.leader_epoch, found.end_offset


# ── Moldau on a copy ──


OpenCopy = Callable[..., BrokerProcess]


@pytest.fixture
def open_copy(tmp_path: Path) -> Iterator[OpenCopy]:
    """Moldau on a copy of a directory, not started yet; killed at the end if the test did not stop it."""
    made: list[BrokerProcess] = []

    def make(left: Left, **settings: object) -> BrokerProcess:
        broker = BrokerProcess(tmp_path, {name.replace("_", "."): value for name, value in settings.items()})
        shutil.copytree(left.directory, broker.data)
        made.append(broker)
        return broker

    yield make
    for broker in made:
        if broker.process is not None:
            broker.kill()


@pytest.fixture(params=["SIGTERM", "kill -9"])
def stopped(request: pytest.FixtureRequest, left: dict[str, Left]) -> Left:
    return left[request.param]


def test_kafka_left_what_the_tests_are_about(left: dict[str, Left]) -> None:
    told = left["kill -9"].told
    metadata = left["kill -9"].directory / "__cluster_metadata-0"
    assert [path for path in metadata.glob("*.checkpoint") if not path.name.startswith("0" * 20)], "no snapshot"
    assert {"late", "__transaction_state", "again"} <= set(told)
    assert not {"gone", "with-dash-7"} & set(told)
    assert left["SIGTERM"].told["compacted"]["partitions"][0]["end"] == 300
    assert [first for _, first in told["transactional"]["partitions"][0]["aborted"]] == [6]
    assert {batch.codec for batch in told["kept"]["partitions"][2]["batches"]} == set(CODECS.values())


def test_everything_is_as_it_was(stopped: Left, open_copy: OpenCopy) -> None:
    broker = open_copy(stopped)
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert client.cluster_id() == stopped.cluster_id
        found = everything(client)
        assert set(found) == set(stopped.told)
        for name, told in stopped.told.items():
            assert found[name] == told, name
    assert "Apache Kafka's metadata log" in broker.log_text()
    broker.stop()
    broker.start()  # and a second time, from Moldau's own metadata
    with RawClient(broker.bootstrap) as client:
        assert everything(client) == stopped.told
    assert broker.log_text().count("Apache Kafka's metadata log") == 1
    broker.stop()


def test_producers_go_on(stopped: Left, open_copy: OpenCopy) -> None:
    """The last batch sent again is a duplicate, the next one is welcome, a gap is not; ids are not given twice."""
    broker = open_copy(stopped)
    broker.start()
    with RawClient(broker.bootstrap) as client:
        sequence = stopped.sequence
        again = client.produce(DUPLICATED, stopped.last)
        assert (again.error_code, again.base_offset) == (0, sequence)
        gap = batch(Written(b"gap"), producer=stopped.producer, sequence=sequence + 5)
        assert client.produce(DUPLICATED, gap).error_code == 45
        following = batch(Written(b"next"), producer=stopped.producer, sequence=sequence + 1)
        assert client.produce(DUPLICATED, following).base_offset == sequence + 1
        ids = {
            found.producer_id
            for topic in stopped.told.values()
            for partition in topic["partitions"]
            for found in partition["batches"]
        }
        assert client.new_producer().id > max(ids)
    broker.stop()


def test_it_is_appended_to_and_kafkas_tool_reads_the_result(stopped: Left, open_copy: OpenCopy) -> None:
    broker = open_copy(stopped)
    broker.start()
    with RawClient(broker.bootstrap) as client:
        for name in ("kept", "plain", "trimmed", "transactional"):
            end = stopped.told[name]["partitions"][0]["end"]
            before = client.metadata(name).partitions[0].leader_epoch
            assert client.produce(name, batch(Written(b"ours"))).base_offset == end
            added = client.fetched(name, end)[-1]
            last = stopped.told[name]["partitions"][0]["batches"][-1]
            assert added.leader_epoch == before > last.leader_epoch, "Moldau leads under an epoch of its own"
            assert end_of_epoch(client, name, 0, last.leader_epoch) == (last.leader_epoch, end)
    broker.stop()
    directories = [broker.data / f"{name}-0" for name in ("kept", "plain", "trimmed", "transactional", DUPLICATED)]
    for suffix in ("log", "index", "timeindex", "txnindex", "snapshot"):
        files = [str(path) for directory in directories for path in sorted(directory.glob(f"*.{suffix}"))]
        deep = ["--deep-iteration", "--print-data-log"] if suffix == "log" else []
        done = jvm.run("org.apache.kafka.tools.DumpLogSegments", *deep, "--files", ",".join(files))
        told = done.stdout + done.stderr
        assert done.returncode == 0, told[-2000:]
        assert not re.findall(r"(?i)mismatch|exception|invalid bytes|isvalid: false", told), told[-2000:]


def test_settings_changed_while_kafka_ran_hold(left: dict[str, Left], open_copy: OpenCopy) -> None:
    broker = open_copy(left["SIGTERM"])
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert client.configs("plain")["retention.ms"] == "777777777"
    broker.stop()


def test_another_node_id_is_told_in_one_line(left: dict[str, Left], open_copy: OpenCopy) -> None:
    broker = open_copy(left["SIGTERM"], node_id=7)
    with pytest.raises(RuntimeError, match="code 1"):
        broker.start()
    broker.process = None
    assert re.fullmatch(
        r"moldau: the log directory \S+ belongs to node 1, not to node 7; start .*node\.id=1\n", broker.log_text()
    )


def test_a_damaged_metadata_log_is_refused_every_time(left: dict[str, Left], open_copy: OpenCopy) -> None:
    broker = open_copy(left["SIGTERM"])
    metadata = broker.data / "__cluster_metadata-0"
    for snapshot in metadata.glob("*.checkpoint"):
        data = bytearray(snapshot.read_bytes())
        data[len(data) // 2] ^= 0xFF
        snapshot.write_bytes(data)
        broken = snapshot
    for _ in range(2):
        with pytest.raises(RuntimeError, match="code 1"):
            broker.start()
        broker.process = None
    lines = broker.log_text().splitlines()
    assert len(lines) == 2, lines
    assert all(re.match(r"moldau: Apache Kafka's metadata log \S+ cannot be read: ", line) for line in lines), lines
    assert broken.exists()


def test_without_the_metadata_log_nothing_is_cleaned(left: dict[str, Left], open_copy: OpenCopy) -> None:
    stopped = left["SIGTERM"]
    broker = open_copy(stopped)
    shutil.rmtree(broker.data / "__cluster_metadata-0")
    for deleted in broker.data.glob("*-delete"):
        shutil.rmtree(deleted)
    broker.start()
    assert "retention and compaction are switched off" in broker.log_text()
    off = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    with RawClient(broker.bootstrap) as client:
        found = everything(client)
        assert {name: topic | {"configs": off} for name, topic in stopped.told.items()} == found
        ids = {batch.producer_id for batch in found[DUPLICATED]["partitions"][0]["batches"]}
        assert client.new_producer().id > max(ids), "an id that the log knows is not given again"
    broker.stop()


def test_directories_of_no_topic_are_left_alone(left: dict[str, Left], open_copy: OpenCopy) -> None:
    """Not taken for a topic's, not removed; if a topic of their name comes, they make room for it and stay readable."""
    stopped = left["SIGTERM"]
    broker = open_copy(stopped)
    shutil.copytree(broker.data / "plain-0", broker.data / "stray-0")
    broker.start()
    assert "1 partition directories belong to no topic and are left as they are" in broker.log_text()
    with RawClient(broker.bootstrap) as client:
        assert "stray" not in everything(client)
        broker.restart()
    assert (broker.data / "stray-0").exists()
    assert broker.log_text().count("stray-0") == 2
    with RawClient(broker.bootstrap) as client:
        client.create_topic("stray", 1)
        assert client.list_offset("stray", -1).offset == 0
        assert client.produce("stray", batch(Written(b"new"))).base_offset == 0
    (aside,) = broker.data.glob("stray-0.*-stray")
    stored = [found for path in sorted(aside.glob("*.log")) for found in read_batches(path.read_bytes())]
    assert len(stored) == len(stopped.told["plain"]["partitions"][0]["batches"])
    broker.stop()
