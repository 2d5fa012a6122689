"""Kafka's own command line tools against a broker, and its dump tool on the broker's files. Needs java."""

import re
import time
from pathlib import Path

import pytest

from support.brokers.disk import partition_directory, stored_batches
from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.kafka import jvm
from support.log.batches import CODECS

pytestmark = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")


def tool(broker: AnyBroker, name: str, *arguments: str, stdin: str | None = None, code: int = 0) -> str:
    """Run one of org.apache.kafka.tools against the broker; what it printed."""
    done = jvm.run(f"org.apache.kafka.tools.{name}", "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def consume(broker: AnyBroker, topic: str, count: int, *more: str) -> str:
    """The console consumer on one partition, without a group."""
    wanted = ["--topic", topic, "--partition", "0", "--offset", "0", "--max-messages", str(count), *more]
    return tool(broker, "consumer.ConsoleConsumer", *wanted, "--timeout-ms", "30000")


def test_topic_command(broker: AnyBroker, topic: str) -> None:
    tool(broker, "TopicCommand", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=123456")
    told = tool(broker, "TopicCommand", "--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\s+TopicId: \S{{22}}\s+PartitionCount: 2\s+ReplicationFactor: 1", told)
    assert "retention.ms=123456" in told
    assert len(re.findall(r"Partition: \d\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", told)) == 2
    tool(broker, "TopicCommand", "--alter", "--topic", topic, "--partitions", "3")
    deadline = time.monotonic() + 30
    while "PartitionCount: 3" not in tool(broker, "TopicCommand", "--describe", "--topic", topic):
        assert time.monotonic() < deadline
    assert topic in tool(broker, "TopicCommand", "--list").split()
    tool(broker, "TopicCommand", "--delete", "--topic", topic)
    assert topic not in tool(broker, "TopicCommand", "--list").split()
    refused = tool(broker, "TopicCommand", "--create", "--topic", "no good name", code=1)
    assert "Topic name is invalid" in refused or "InvalidTopicException" in refused


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_and_consumer(broker: AnyBroker, create_topic: CreateTopic, codec: str) -> None:
    name = create_topic()
    lines = [f"a value that compresses well, a value that compresses well {number}" for number in range(50)]
    options = ["--topic", name, "--compression-codec", codec, "--reader-property", "parse.headers=true"]
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    stdin = "".join(f"h:1\tkey:{line}\n" for line in lines)
    tool(broker, "ConsoleProducer", *options, *keyed, stdin=stdin)
    shown = ["print.offset=true", "print.headers=true", "print.key=true"]
    formatted = [part for setting in shown for part in ("--formatter-property", setting)]
    told = consume(broker, name, len(lines), *formatted)
    got = [line for line in told.splitlines() if line.startswith("Offset:")]
    assert got == [f"Offset:{number}\th:1\tkey\t{line}" for number, line in enumerate(lines)]
    stored = stored_batches(broker, name)
    assert {found.codec for found in stored} == {CODECS[codec]}
    assert all(found.producer_id >= 0 for found in stored), "Java producers are idempotent by default"


def test_producer_performance(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    told = tool(
        broker,
        "ProducerPerformance",
        "--topic",
        name,
        "--num-records",
        "20000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
    )
    assert "20000 records sent" in told
    offsets = tool(broker, "GetOffsetShell", "--topic", name)
    ends = [int(end) for end in re.findall(rf"{name}:\d:(\d+)", offsets)]
    assert len(ends) == 2
    assert sum(ends) == 20000


def test_get_offset_shell_knows_every_kind(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic()
    tool(broker, "ConsoleProducer", "--topic", name, stdin="a\nb\n")
    kinds = {"earliest": "0", "latest": "2", "earliest-local": "0", "0": "0"}
    for kind, offset in kinds.items():
        assert f"{name}:0:{offset}" in tool(broker, "GetOffsetShell", "--topic", name, "--time", kind)
    assert f"{name}:0:" in tool(broker, "GetOffsetShell", "--topic", name, "--time", "max-timestamp")
    assert "Exception" not in tool(broker, "GetOffsetShell", "--topic", name, "--time", "latest-tiered")


def test_config_command(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic()

    def config(*arguments: str, code: int = 0) -> str:
        entity = ["--bootstrap-server", broker.bootstrap, "--entity-type", "topics", "--entity-name", name]
        done = jvm.run("kafka.admin.ConfigCommand", *entity, *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    config("--alter", "--add-config", "max.message.bytes=5000,cleanup.policy=[compact,delete]")
    deadline = time.monotonic() + 30
    while "max.message.bytes=5000" not in config("--describe"):
        assert time.monotonic() < deadline
    told = config("--describe", "--all")
    assert "cleanup.policy=compact,delete" in told
    assert "retention.ms=604800000 sensitive=false" in told
    config("--alter", "--delete-config", "max.message.bytes")
    assert "max.message.bytes=5000" not in config("--describe")
    assert "InvalidConfigurationException" in config("--alter", "--add-config", "retention.ms=soon", code=1)


def test_delete_records_command(broker: AnyBroker, create_topic: CreateTopic, tmp_path: Path) -> None:
    name = create_topic()
    tool(broker, "ConsoleProducer", "--topic", name, stdin="a\nb\nc\n")
    wanted = tmp_path / "offsets.json"
    wanted.write_text(f'{{"partitions": [{{"topic": "{name}", "partition": 0, "offset": 2}}], "version": 1}}')
    told = tool(broker, "DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f"partition: {name}-0\tlow_watermark: 2" in told
    assert f"{name}:0:2" in tool(broker, "GetOffsetShell", "--topic", name, "--time", "earliest")


def test_log_dirs_command(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic()
    tool(broker, "ConsoleProducer", "--topic", name, stdin="a\n")
    told = tool(broker, "LogDirsCommand", "--describe", "--topic-list", name)
    assert f'"partition":"{name}-0"' in told
    assert int(re.search(r'"size":(\d+)', told).group(1)) == sum(found.size for found in stored_batches(broker, name))
    assert '"error":null' in told


def test_broker_api_versions_command(broker: AnyBroker) -> None:
    told = tool(broker, "BrokerApiVersionsCommand")
    assert "Produce(0): 0 to 13 [usable: 13]" in told
    assert "Fetch(1): 4 to 18 [usable: 18]" in told


def test_cluster_tool(broker: AnyBroker) -> None:
    done = jvm.run("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", broker.bootstrap)
    assert re.search(r"Cluster ID: \S{22}", done.stdout), done.stdout + done.stderr


# -- the dump tool on the files


# The tool takes the first offset of every later segment for a gap after -1: that one is no complaint.
COMPLAINTS = re.compile(
    r"timestamp mismatch.*|Mismatches in.*|isvalid: false|(?<!-)\b\d+ is followed by \d+|\S*Exception.*"
)


def dump(*arguments: str) -> str:
    done = jvm.run("org.apache.kafka.tools.DumpLogSegments", *arguments)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told[-2000:]
    assert COMPLAINTS.findall(told) == []
    return told


def test_dump_log_segments_reads_every_file(start_broker: StartBroker) -> None:
    """Segments, both indexes, the producer snapshot and checkpoints of a broker that was stopped cleanly."""
    own = start_broker()
    tool(own, "TopicCommand", "--create", "--topic", "dump", "--config", "segment.bytes=1048576")
    wanted = ["--topic", "dump", "--num-records", "30000", "--record-size", "100", "--throughput", "-1"]
    tool(own, "ProducerPerformance", *wanted)
    directory = partition_directory(own, "dump")
    own.stop()
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 2, "segment.bytes makes several segments"
    told = dump("--deep-iteration", "--print-data-log", "--files", ",".join(map(str, logs)))
    assert len(re.findall(r"^\| offset: ", told, re.MULTILINE)) == 30000
    for kind in ("index", "timeindex"):
        files = sorted(directory.glob(f"*.{kind}"))
        assert len(files) == len(logs)
        told = dump("--files", ",".join(map(str, files)))
        assert re.search(r"offset: \d+", told)
    snapshots = sorted(directory.glob("*.snapshot"))
    assert snapshots, "a clean stop leaves a producer snapshot"
    told = dump("--files", str(snapshots[-1]))
    assert "producerId: " in told
    assert "29999" in told, "the last sequence and offset of the producer"


def test_dump_log_segments_checks_the_index_of_a_running_broker(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic()
    wanted = ["--topic", name, "--num-records", "5000", "--record-size", "100", "--throughput", "-1"]
    tool(broker, "ProducerPerformance", *wanted)
    log = partition_directory(broker, name) / f"{0:020}.log"
    assert "count: " in dump("--files", str(log))
