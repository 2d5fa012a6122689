"""Taking over a directory of Apache Kafka's, in the cases that a single Kafka node on one disk does not show."""

import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from moldau.broker.adoption import adopted
from moldau.broker.stray_partitions import unknown_partitions
from moldau.log.checkpoints import write_topic_id
from moldau.log.directory import DirectoryRefused, LogDirectory
from moldau.metadata.changes import (
    BrokerConfigured,
    Change,
    FeaturesFinalized,
    GroupConfigured,
    ProducerIdsAllocated,
    TopicCreated,
)
from moldau.metadata.image import ClusterImage
from moldau.wire.codec import encode
from moldau.wire.declare import layout_of
from moldau.wire.messages.kraft import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from moldau.wire.records import Record, encode_batch

US, OTHER = 1, 2
TOPIC, BROKER, GROUP = 2, 4, 32
IDS = {name: UUID(int=number) for number, name in enumerate(("here", "there", "both"), start=1)}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[LogDirectory]:
    opened = LogDirectory.open(tmp_path / "data")
    yield opened
    opened.close(clean=False)


def topic(name: str, *replicas: int) -> list[object]:
    """A topic whose partition i is on the i-th of these brokers."""
    parts = [
        PartitionRecord(
            partition_id=index,
            topic_id=IDS[name],
            replicas=(broker,),
            isr=(broker,),
            removing_replicas=(),
            adding_replicas=(),
            leader=broker,
            leader_epoch=4,
            partition_epoch=4,
        )
        for index, broker in enumerate(replicas)
    ]
    return [TopicRecord(name=name, topic_id=IDS[name]), *parts]


def write_log(directory: Path, *records: object, name: str = f"{0:020d}.log", base: int = 0) -> None:
    values = [bytes([1, layout_of(type(record)).key, 0]) + encode(record, 0) for record in records]
    listed = [Record(base + number, 0, None, value) for number, value in enumerate(values)]
    (directory / "__cluster_metadata-0").mkdir(exist_ok=True, parents=True)
    (directory / "__cluster_metadata-0" / name).write_bytes(encode_batch(listed, base_offset=base))


def make_partition(directory: LogDirectory, name: str, index: int) -> None:
    (directory.path / f"{name}-{index}").mkdir()
    write_topic_id(directory.path / f"{name}-{index}", IDS.get(name, UUID(int=99)))


def topics_in(changes: tuple[Change, ...]) -> dict[str, TopicCreated]:
    return {change.topic: change for change in changes if isinstance(change, TopicCreated)}


def test_what_other_nodes_hold_is_said(directory: LogDirectory, caplog: pytest.LogCaptureFixture) -> None:
    write_log(directory.path, *topic("here", US, US), *topic("there", OTHER), *topic("both", OTHER, US))
    for name, index in (("here", 0), ("here", 1), ("both", 1)):
        make_partition(directory, name, index)
    with caplog.at_level(logging.WARNING, "moldau.broker"):
        logging.getLogger("moldau").propagate = True
        taken = topics_in(adopted([directory], None, US))
    assert set(taken) == {"here", "both"}
    assert [state.leader_epoch for state in taken["both"].partitions] == [5, 5]
    assert [record.getMessage() for record in caplog.records] == [
        "1 topics have no replica on this node and are not imported: there",
        "1 partitions have their records on other nodes only and start empty: both-0",
    ]


def test_settings_that_do_not_fit_are_left_out(directory: LogDirectory) -> None:
    settings = [
        ConfigRecord(resource_type=TOPIC, resource_name="here", name="cleanup.policy", value="compact"),
        ConfigRecord(resource_type=TOPIC, resource_name="here", name="of.tomorrow", value="x"),
        ConfigRecord(resource_type=TOPIC, resource_name="here", name="retention.ms", value="soon"),
        ConfigRecord(resource_type=BROKER, resource_name="", name="log.retention.ms", value="5000"),
        ConfigRecord(resource_type=BROKER, resource_name="1", name="message.max.bytes", value="many"),
        ConfigRecord(resource_type=BROKER, resource_name="2", name="message.max.bytes", value="2000"),
        ConfigRecord(resource_type=GROUP, resource_name="g", name="consumer.session.timeout.ms", value="50000"),
        ConfigRecord(resource_type=GROUP, resource_name="g", name="share.session.timeout.ms", value="50000"),
    ]
    write_log(directory.path, *topic("here", US), *settings)
    make_partition(directory, "here", 0)
    changes = adopted([directory], None, US)
    assert topics_in(changes)["here"].config == {"cleanup.policy": "compact"}
    assert [change for change in changes if isinstance(change, BrokerConfigured)] == [
        BrokerConfigured("", {"log.retention.ms": "5000"})
    ]
    assert GroupConfigured("g", {"consumer.session.timeout.ms": "50000"}) in changes


def test_the_metadata_log_may_lie_elsewhere(directory: LogDirectory, tmp_path: Path) -> None:
    write_log(tmp_path / "metadata", *topic("here", US), ProducerIdsRecord(broker_id=1, next_producer_id=3000))
    make_partition(directory, "here", 0)
    changes = adopted([directory], str(tmp_path / "metadata"), US)
    assert topics_in(changes)["here"].config == {}
    assert ProducerIdsAllocated(US, 3000) in changes


def test_features_keep_their_levels(directory: LogDirectory) -> None:
    levels = {"metadata.version": 25, "transaction.version": 1, "share.version": 1}
    records = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
    write_log(directory.path, *topic("here", US), *records)
    make_partition(directory, "here", 0)
    found = [change for change in adopted([directory], None, US) if isinstance(change, FeaturesFinalized)]
    assert found == [FeaturesFinalized({"transaction.version": 1})]


def test_the_log_counts_from_the_newest_snapshot_on(directory: LogDirectory) -> None:
    write_log(directory.path, *topic("there", US), name=f"{0:020d}-{0:010d}.checkpoint")
    write_log(directory.path, *topic("here", US), name=f"{100:020d}-{3:010d}.checkpoint")
    write_log(directory.path, *topic("there", US), base=98)
    write_log(directory.path, *topic("both", US), name=f"{100:020d}.log", base=100)
    make_partition(directory, "here", 0)
    assert set(topics_in(adopted([directory], None, US))) == {"here", "both"}


def test_only_finished_transactions_count(directory: LogDirectory) -> None:
    begin, end, abort = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()
    parts = [begin, *topic("here", US), end, begin, *topic("there", US), abort, begin, *topic("both", US)]
    write_log(directory.path, *parts)
    make_partition(directory, "here", 0)
    assert set(topics_in(adopted([directory], None, US))) == {"here"}


def test_a_torn_end_is_passed_over_and_damage_is_not(directory: LogDirectory) -> None:
    write_log(directory.path, *topic("here", US))
    make_partition(directory, "here", 0)
    segment = directory.path / "__cluster_metadata-0" / f"{0:020d}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:-1])
    assert set(topics_in(adopted([directory], None, US))) == {"here"}
    segment.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DirectoryRefused, match="cannot be read: the checksum"):
        adopted([directory], None, US)


def test_without_metadata_a_missing_partition_or_id_is_refused(directory: LogDirectory) -> None:
    make_partition(directory, "here", 1)
    with pytest.raises(DirectoryRefused, match="topic here lacks its partition 0"):
        adopted([directory], None, US)
    (directory.path / "here-0").mkdir()
    with pytest.raises(DirectoryRefused, match="do not agree on its id"):
        adopted([directory], None, US)


def test_what_is_no_partition_is_not_taken_for_one(directory: LogDirectory) -> None:
    names = (
        "t-0",
        "a-b-12",
        "__cluster_metadata-0",
        "t-00",
        "t-٣",
        "-1",
        "t-1.0f-delete",
        "t-2.0f-stray",
        "t-3.0f-future",
    )
    for name in names:
        (directory.path / name).mkdir()
    (directory.path / "file-0").touch()
    assert set(directory.partitions()) == {("t", 0), ("a-b", 12)}
    assert {path.name for path in unknown_partitions(ClusterImage(), [directory])} == {"t-0", "a-b-12"}
    assert [path.name for path in directory.pending_deletion()] == ["t-1.0f-delete"]
