"""The records of __consumer_offsets, byte for byte what Kafka's own classes write."""

import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from moldau.base.coordination import Record
from moldau.groups import records as r
from moldau.wire.codec import MalformedMessage, UnsupportedVersion
from moldau.wire.declare import replace
from support.kafka import jvm

HERE = Path(__file__).parent
PRINTED = {name: rest for name, *rest in (line.split() for line in (HERE / "records_by_kafka.txt").open())}
TOPIC = UUID("01234567-89ab-cdef-1234-56789abcdef0")

OFFSET_KEY = r.OffsetCommitKey(group="g", topic="t", partition=5)
OFFSET = r.OffsetCommitValue(offset=7, leader_epoch=3, metadata="čau", commit_timestamp=1_700_000_000_000)
GROUP_KEY = r.GroupMetadataKey(group="g")
FIRST = r.MemberMetadata(
    member_id="m-1",
    group_instance_id="i",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout=300_000,
    session_timeout=45_000,
    subscription=b"\1\2",
    assignment=b"\3",
)
SECOND = r.MemberMetadata(
    member_id="m-2",
    client_id="",
    client_host="/::1",
    rebalance_timeout=1,
    session_timeout=2,
    subscription=b"",
    assignment=b"",
)
GROUP = r.GroupMetadataValue(
    protocol_type="consumer",
    generation=4,
    protocol="range",
    leader="m-1",
    current_state_timestamp=1_700_000_000_001,
    members=(FIRST, SECOND),
)
EMPTY = replace(GROUP, protocol_type="", generation=0, protocol=None, leader=None, members=())
MEMBER_KEY = r.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
MEMBER = r.ConsumerGroupMemberMetadataValue(
    instance_id=None,
    rack_id="r",
    client_id="c",
    client_host="/127.0.0.1",
    subscribed_topic_names=("a", "b"),
    subscribed_topic_regex=None,
    rebalance_timeout_ms=300_000,
    server_assignor="uniform",
    classic_member_metadata=None,
)
CLASSIC = r.ClassicMemberMetadata(
    session_timeout_ms=45_000, supported_protocols=(r.ClassicProtocol(name="range", metadata=b"\1\2"),)
)
RACKS = r.PartitionRacks(partition=1, racks=("r",))

# By the names that RecordsByKafka.java gives them: what we write as Kafka does.
WRITTEN = {
    "offset": Record(OFFSET_KEY, OFFSET),
    "offset-of-topic-id": Record(OFFSET_KEY, replace(OFFSET, topic_id=TOPIC)),
    "offset-that-expires": Record(OFFSET_KEY, replace(OFFSET, leader_epoch=-1, expire_timestamp=1_700_000_000_002)),
    "offset-gone": Record(OFFSET_KEY, None),
    "group-3": Record(GROUP_KEY, GROUP),
    "group-empty": Record(GROUP_KEY, EMPTY),
    "group-gone": Record(GROUP_KEY, None),
    "consumer-group": Record(
        r.ConsumerGroupMetadataKey(group_id="g"), r.ConsumerGroupMetadataValue(epoch=9, metadata_hash=-2)
    ),
    "consumer-group-plain": Record(r.ConsumerGroupMetadataKey(group_id="g"), r.ConsumerGroupMetadataValue(epoch=9)),
    "partition-metadata": Record(
        r.ConsumerGroupPartitionMetadataKey(group_id="g"),
        r.ConsumerGroupPartitionMetadataValue(
            topics=(r.TopicMetadata(topic_id=TOPIC, topic_name="t", num_partitions=2, partition_metadata=(RACKS,)),)
        ),
    ),
    "member": Record(MEMBER_KEY, MEMBER),
    "member-classic": Record(MEMBER_KEY, replace(MEMBER, classic_member_metadata=CLASSIC)),
    "member-untagged": Record(
        MEMBER_KEY,
        replace(
            MEMBER,
            instance_id="i",
            subscribed_topic_regex="a.*",
            classic_member_metadata=r.NO_CLASSIC_METADATA,
        ),
    ),
    "target": Record(
        r.ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        r.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=9, assignment_timestamp=1_700_000_000_003),
    ),
    "target-member": Record(
        r.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        r.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(r.TargetTopicPartitions(topic_id=TOPIC, partitions=(0, 2)),)
        ),
    ),
    "current": Record(
        r.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        r.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=9,
            previous_member_epoch=8,
            state=1,
            assigned_partitions=(
                r.CurrentTopicPartitions(topic_id=TOPIC, partitions=(0, 2), assignment_epochs=(8, 9)),
            ),
            partitions_pending_revocation=(r.CurrentTopicPartitions(topic_id=TOPIC, partitions=(1,)),),
        ),
    ),
    "regex": Record(
        r.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="a.*"),
        r.ConsumerGroupRegularExpressionValue(topics=("aa", "ab"), version=3, timestamp=1_700_000_000_004),
    ),
}

# What older brokers wrote, and we read.
UNSTAMPED = replace(GROUP, current_state_timestamp=-1, members=(replace(FIRST, group_instance_id=None), SECOND))
UNTIMED = tuple(replace(member, rebalance_timeout=-1) for member in UNSTAMPED.members)
READ = WRITTEN | {
    "offset-0": Record(OFFSET_KEY, replace(OFFSET, leader_epoch=-1)),
    "offset-2": Record(OFFSET_KEY, replace(OFFSET, leader_epoch=-1)),
    "offset-3": Record(OFFSET_KEY, OFFSET),
    "offset-legacy": Record(OFFSET_KEY, replace(OFFSET, leader_epoch=-1)),
    "group-0": Record(GROUP_KEY, replace(UNSTAMPED, members=UNTIMED)),
    "group-1": Record(GROUP_KEY, UNSTAMPED),
    "group-2": Record(GROUP_KEY, replace(UNSTAMPED, current_state_timestamp=GROUP.current_state_timestamp)),
    "group-4": Record(GROUP_KEY, GROUP),
}


def printed(name: str) -> tuple[bytes, bytes | None]:
    key, value = PRINTED[name]
    return bytes.fromhex(key), None if value == "-" else bytes.fromhex(value)


@pytest.mark.parametrize("name", WRITTEN)
def test_records_are_written_as_kafka_writes_them(name: str) -> None:
    assert r.encode(WRITTEN[name]) == printed(name)


@pytest.mark.parametrize("name", READ)
def test_records_of_kafka_are_read(name: str) -> None:
    assert r.decode(*printed(name)) == READ[name]


def test_every_kind_is_compared() -> None:
    assert {type(record.key) for record in WRITTEN.values()} == {key for key, _, _ in r.KINDS}
    assert set(READ) == set(PRINTED) - {"share-group"}


@pytest.mark.parametrize("kind", [9, 11, 17, 99, -1])
def test_kinds_that_we_do_not_have_are_skipped(kind: int) -> None:
    assert r.decode(kind.to_bytes(2, "big", signed=True) + b"\0\1g", b"\0\0whatever") is None
    assert r.decode(*printed("share-group")) is None


def test_a_newer_version_of_a_known_kind_is_refused() -> None:
    key, value = printed("group-4")
    assert value is not None
    with pytest.raises(UnsupportedVersion):
        r.decode(key, b"\0\5" + value[2:])


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\2", b"\0\2\0\5g"])
def test_broken_bytes_are_refused(key: bytes) -> None:
    with pytest.raises(MalformedMessage):
        r.decode(key, None)
    with pytest.raises(MalformedMessage):
        r.decode(b"\0\2\0\1g", key)


def test_kafkas_classes_still_print_the_same() -> None:
    if jvm.classpath() is None:
        pytest.skip(jvm.why_missing())
    source = str(HERE / "RecordsByKafka.java")
    made = subprocess.run(
        [str(jvm.java()), "-cp", str(jvm.classpath()), "-Dstdout.encoding=UTF-8", source],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert made.stdout == (HERE / "records_by_kafka.txt").read_text()
