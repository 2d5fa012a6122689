"""Apache Kafka as the oracle: its dump tool reads our files, and we read a directory that its broker wrote.

Needs `java` and the class path of a Kafka release in MOLDAU_KAFKA_CLASSPATH.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from log_batches import NOW, append, batch, open_log, segment_files
from moldau.log.checkpoints import read_topic_id
from moldau.log.directory import LogDirectory, identity
from moldau.log.log import Log
from moldau.log.settings import LogConfig

CLASSPATH = os.environ.get("MOLDAU_KAFKA_CLASSPATH", "")
pytestmark = pytest.mark.skipif(
    not (CLASSPATH and shutil.which("java")),
    reason="needs java, and Apache Kafka's jars as a class path in MOLDAU_KAFKA_CLASSPATH",
)
RECORDS = 3000


def dump(*arguments: str) -> str:
    command = ["java", "-cp", CLASSPATH, "org.apache.kafka.tools.DumpLogSegments", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafkas_dump_tool_reads_our_files(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=20_000, index_interval_bytes=500))
    for number in range(150):
        data = batch(3, timestamp=NOW + number * 7 % 50 + number, producer_id=5, epoch=1, sequence=3 * number)
        append(log, data, number // 50)
    log.truncate_to(300, NOW)
    for number in range(150):
        append(log, batch(2, timestamp=NOW + 500 + number, value=b"v" * 50), 7)
    log.close()
    logs = segment_files(tmp_path)
    indexes = [path.with_suffix(suffix) for path in logs for suffix in (".index", ".timeindex")]
    snapshots = sorted((tmp_path / "topic-0").glob("*.snapshot"))

    text = dump("--deep-iteration", "--files", ",".join(map(str, logs)))
    assert text.count("isvalid: true") == 250
    assert text.count("| offset:") == log.end_offset

    text = dump("--files", ",".join(map(str, [*indexes, *snapshots])))
    assert "ismatch" not in text
    assert "out of order" not in text
    assert "not found" not in text
    assert "producerId: 5 producerEpoch: 1" in text

    text = dump("--index-sanity-check", "--files", ",".join(map(str, indexes)))
    assert text.count("passed sanity check") == len(indexes)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class KafkaNode:
    """One node of Apache Kafka (KRaft) with its data under `directory`."""

    def __init__(self, directory: Path) -> None:
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self.data = directory / "data"
        config = directory / "server.properties"
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.data}",
            "log.segment.bytes=1048576",
        ]
        config.write_text("\n".join(lines))
        java = ["java", "-Xmx512m", "-cp", CLASSPATH]
        storage = [*java, "kafka.tools.StorageTool", "format", "-t", "Ka9zHpnTSTOrQmwWq_01Hg", "-c", str(config)]
        subprocess.run(storage, check=True, capture_output=True, timeout=120)
        self.process = subprocess.Popen(
            [*java, "kafka.Kafka", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def stop(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(60)


def fill(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    [created] = admin.create_topics([NewTopic("orders", 1, 1)], operation_timeout=60).values()
    created.result(60)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "compression.type": "lz4"})
    for number in range(RECORDS):
        producer.produce("orders", os.urandom(500), key=str(number))
        if number % 50 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_directory_that_kafka_wrote_opens(tmp_path: Path, how: signal.Signals) -> None:
    node = KafkaNode(tmp_path)
    try:
        fill(node.address)
    finally:
        node.stop(how)
    found = identity(node.data)
    assert found is not None
    directory = LogDirectory.open(node.data, cluster_id=found["cluster.id"], node_id=1)
    assert directory.clean == (how is signal.SIGTERM)
    path = directory.partitions()["orders", 0]
    topic_id = read_topic_id(path)
    assert topic_id is not None
    log = Log.open(
        path,
        path.name,
        LogConfig(),
        clean=directory.clean,
        recovery_point=directory.recovery_points.get(("orders", 0), 0),
        now=int(time.time() * 1000),
        topic_id=topic_id,
    )
    assert (log.start_offset, log.end_offset) == (0, RECORDS)
    assert log.segment_count == 2
    assert sum(header.record_count for header in log.read_headers(0)) == RECORDS
    assert [state.last_sequence for state in log.producers] == [RECORDS - 1]
    assert log.epochs.entries() == [(0, 0)]
    assert log.batch_of_max_timestamp() is not None
    log.close()
    directory.close(clean=True)
