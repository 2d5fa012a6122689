"""Apache Kafka as the oracle: its dump tool reads our files, and we read a directory that its broker wrote."""

import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from moldau.log.checkpoints import read_topic_id
from moldau.log.directory import LogDirectory
from moldau.log.log import Log
from moldau.log.markers import Marker, encode_marker
from moldau.log.settings import LogConfig
from moldau.wire.batch import TRANSACTIONAL, read_header
from support.brokers.processes import ApacheKafkaProcess
from support.clients import confluent
from support.kafka import jvm
from support.log.logs import NOW, append, batch, open_log, segment_files

pytestmark = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing())
RECORDS = 3000


def dump(*arguments: str) -> str:
    done = jvm.run("org.apache.kafka.tools.DumpLogSegments", *arguments)
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


def test_kafkas_dump_tool_reads_our_transactions(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for producer_id in (1, 2):
        append(log, batch(2, producer_id=producer_id, epoch=0, sequence=0, attributes=TRANSACTIONAL))
    for producer_id, commit in ((1, False), (2, True)):
        marker = encode_marker(producer_id, 0, Marker(commit, 3), NOW)
        log.append(read_header(marker), marker, 0, NOW)
    log.close()
    text = dump("--deep-iteration", "--files", str(segment_files(tmp_path)[0]))
    assert "endTxnMarker: ABORT coordinatorEpoch: 3" in text
    assert "endTxnMarker: COMMIT coordinatorEpoch: 3" in text
    text = dump("--files", str(segment_files(tmp_path)[0].with_suffix(".txnindex")))
    assert "producerId: 1 firstOffset: 0 lastOffset: 4 lastStableOffset: 2" in text
    assert text.count("producerId") == 1


def fill(address: str) -> None:
    admin = confluent.admin(address)
    [created] = admin.create_topics([NewTopic("orders", 1, 1)], operation_timeout=60).values()
    created.result(60)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "compression.type": "lz4"})
    for number in range(RECORDS):
        producer.produce("orders", os.urandom(500), key=str(number))
        if number % 50 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_that_kafka_wrote_opens(tmp_path: Path, clean: bool) -> None:
    node = ApacheKafkaProcess(tmp_path, {"log.segment.bytes": 1 << 20})
    node.start()
    try:
        fill(node.bootstrap)
    finally:
        if clean:
            node.stop()
        else:
            node.kill()
    directory = LogDirectory.open(node.data)
    directory.ensure_owner(directory.cluster_id, 1)
    assert directory.clean == clean
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
    assert log.segments.batch_of_max_timestamp() is not None
    log.close()
    directory.close(clean=True)
