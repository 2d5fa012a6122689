"""The records of `__consumer_offsets` in the formats of Kafka 4.3.

A key is two bytes of record type and its fields; a value is two bytes of version and its fields, or None (a tombstone).
Unknown types (of share and streams groups) decode to None and are skipped. `classic`, `consumer` and `offsets` define
what the records mean.
"""

from struct import Struct
from typing import Final, TypeVar
from uuid import UUID

from moldau.base.coordination import Record
from moldau.wire.codec import MalformedMessage
from moldau.wire.codec import decode as read
from moldau.wire.codec import encode as write
from moldau.wire.declare import (
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID_,
    Array,
    layout_of,
    message,
    struct,
    wire,
)
from moldau.wire.primitives import ZERO_UUID, Buffer

V = TypeVar("V")

# Committed offsets


@message(key=1, versions=(0, 0), flexible=None)
class OffsetCommitKey:
    group: str = wire(STRING)
    topic: str = wire(STRING)
    partition: int = wire(INT32)


@message(key=1, versions=(0, 4), flexible=4)
class OffsetCommitValue:
    offset: int = wire(INT64)
    leader_epoch: int = wire(INT32, since=3, default=-1, ignorable=True)
    metadata: str = wire(STRING)
    commit_timestamp: int = wire(INT64)
    expire_timestamp: int = wire(INT64, since=1, until=1, default=-1, ignorable=True)
    topic_id: UUID = wire(UUID_, since=4, tag=0, default=ZERO_UUID, ignorable=True)


# Classic groups


@message(key=2, versions=(0, 0), flexible=None)
class GroupMetadataKey:
    group: str = wire(STRING)


@struct
class MemberMetadata:
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable=3, since=3, default=None, ignorable=True)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    rebalance_timeout: int = wire(INT32, since=1, default=-1, ignorable=True)
    session_timeout: int = wire(INT32)
    subscription: bytes = wire(BYTES)
    assignment: bytes = wire(BYTES)


@message(key=2, versions=(0, 4), flexible=4)
class GroupMetadataValue:
    protocol_type: str = wire(STRING)
    generation: int = wire(INT32)
    protocol: str | None = wire(STRING, nullable=0)
    leader: str | None = wire(STRING, nullable=0)
    current_state_timestamp: int = wire(INT64, since=2, default=-1, ignorable=True)
    members: tuple[MemberMetadata, ...] = wire(Array(MemberMetadata))


# Groups of the consumer protocol (KIP-848)


@message(key=3, versions=(0, 0), flexible=None)
class ConsumerGroupMetadataKey:
    group_id: str = wire(STRING)


@message(key=3, versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue:
    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64, tag=0, default=0)


@message(key=4, versions=(0, 0), flexible=None)
class ConsumerGroupPartitionMetadataKey:
    """Of Kafka 4.0. Later versions have a hash in ConsumerGroupMetadataValue and write tombstones of these."""

    group_id: str = wire(STRING)


@struct
class PartitionRacks:
    partition: int = wire(INT32)
    racks: tuple[str, ...] = wire(Array(STRING))


@struct
class TopicMetadata:
    topic_id: UUID = wire(UUID_)
    topic_name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    partition_metadata: tuple[PartitionRacks, ...] = wire(Array(PartitionRacks))


@message(key=4, versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue:
    topics: tuple[TopicMetadata, ...] = wire(Array(TopicMetadata))


@message(key=5, versions=(0, 0), flexible=None)
class ConsumerGroupMemberMetadataKey:
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class ClassicProtocol:
    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int = wire(INT32)
    supported_protocols: tuple[ClassicProtocol, ...] = wire(Array(ClassicProtocol))


NO_CLASSIC_METADATA: Final = ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=())


@message(key=5, versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue:
    """A member of the consumer protocol has `classic_member_metadata=None`.

    The None is written: without the tag Kafka reads an empty value.
    """

    instance_id: str | None = wire(STRING, nullable=0)
    rack_id: str | None = wire(STRING, nullable=0)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: tuple[str, ...] = wire(Array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, nullable=0)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    server_assignor: str | None = wire(STRING, nullable=0)
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        ClassicMemberMetadata, nullable=0, tag=0, default=NO_CLASSIC_METADATA
    )


@message(key=6, versions=(0, 0), flexible=None)
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = wire(STRING)


@message(key=6, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(INT32)
    assignment_timestamp: int = wire(INT64, tag=0, default=0)


@message(key=7, versions=(0, 0), flexible=None)
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class TargetTopicPartitions:
    topic_id: UUID = wire(UUID_)
    partitions: tuple[int, ...] = wire(Array(INT32))


@message(key=7, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: tuple[TargetTopicPartitions, ...] = wire(Array(TargetTopicPartitions))


@message(key=8, versions=(0, 0), flexible=None)
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class CurrentTopicPartitions:
    topic_id: UUID = wire(UUID_)
    partitions: tuple[int, ...] = wire(Array(INT32))
    assignment_epochs: tuple[int, ...] | None = wire(Array(INT32), nullable=0, tag=0, default=())  # by partition


@message(key=8, versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(INT32)
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)
    assigned_partitions: tuple[CurrentTopicPartitions, ...] = wire(Array(CurrentTopicPartitions))
    partitions_pending_revocation: tuple[CurrentTopicPartitions, ...] = wire(Array(CurrentTopicPartitions))


@message(key=16, versions=(0, 0), flexible=None)
class ConsumerGroupRegularExpressionKey:
    group_id: str = wire(STRING)
    regular_expression: str = wire(STRING)


@message(key=16, versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue:
    topics: tuple[str, ...] = wire(Array(STRING))
    version: int = wire(INT64)
    timestamp: int = wire(INT64)


# Key, value, and the version in which the value is written.
KINDS: Final[tuple[tuple[type[object], type[object], int], ...]] = (
    (OffsetCommitKey, OffsetCommitValue, 4),  # 1 with an expiration: see `value_version`
    (GroupMetadataKey, GroupMetadataValue, 3),
    (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 0),
    (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, 0),
    (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 0),
    (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, 0),
    (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 0),
    (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 0),
    (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 0),
)

OFFSET_COMMIT: Final = 1
LEGACY_OFFSET_COMMIT: Final = 0  # of brokers before 0.9; the rest is the same

_TYPES: Final = {layout_of(key).key: (key, value) for key, value, _ in KINDS} | {
    LEGACY_OFFSET_COMMIT: (OffsetCommitKey, OffsetCommitValue)
}
_VERSIONS: Final = {value: version for _, value, version in KINDS}
_PREFIX: Final = Struct(">h")


def value_version(value: object) -> int:
    """The version in which Kafka 4.3 writes this value."""
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != -1:
        return 1  # the only version with the field
    return _VERSIONS[type(value)]


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The record's key and value as bytes."""
    key, value = record
    if isinstance(key, bytes):  # committed offsets are packed already: see `offsets/packed.py`
        assert value is None or isinstance(value, bytes)
        return key, value
    packed = _PREFIX.pack(layout_of(type(key)).key) + write(key, 0)
    if value is None:
        return packed, None
    version = value_version(value)
    return packed, _PREFIX.pack(version) + write(value, version)


def decode(key: Buffer, value: Buffer | None) -> Record | None:
    """The record of these bytes, or None for an unknown type, which Kafka skips, too.

    Raises UnsupportedVersion for a newer version of a known type and MalformedMessage for broken bytes: skipping either
    would load half a group.
    """
    kind = _prefix(key)
    known = _TYPES.get(kind)
    if known is None:
        return None
    key_class, value_class = known
    # Bytes behind the known fields are ignored, as in Kafka: a newer version may add some.
    found = read(key_class, 0, key, _PREFIX.size, exact=False)
    if value is None:
        return Record(found, None)
    return Record(found, decode_value(value_class, value))


def decode_value(cls: type[V], value: Buffer) -> V:
    return read(cls, _prefix(value), value, _PREFIX.size, exact=False)


def _prefix(data: Buffer) -> int:
    if len(data) < _PREFIX.size:
        raise MalformedMessage("A record of __consumer_offsets is too short for its type or version.")
    number: int = _PREFIX.unpack_from(data)[0]
    return number
