"""The bytes of OffsetCommit records, packed and unpacked by hand, because they are most of the offsets log.

The formats are the ones declared in `records`; tests compare the two. A `PackedPartition` is the part of a record's key
behind the group: topic and partition.
"""

from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple
from uuid import UUID

from moldau.base.coordination import Record
from moldau.base.ids import Epoch, Offset
from moldau.groups import records
from moldau.groups.records import OFFSET_COMMIT, OffsetCommitValue
from moldau.wire.codec import MalformedMessage, UnsupportedVersion
from moldau.wire.primitives import ZERO_UUID, continue_uvarint, uvarint

PackedPartition = bytes  # two bytes of length, the topic, four bytes of partition

TOPIC_END: Final = -4  # partition[:TOPIC_END] is the packed topic
NEWEST_VERSION: Final = 4
EXPIRING_VERSION: Final = 1

_KEY_HEAD: Final = Struct(">hh")  # type, length of the group
_LENGTH: Final = Struct(">h")
_PARTITION: Final = Struct(">i")
_HEAD: Final = Struct(">hqi")  # version, offset, leader epoch
_HEAD_READ: Final = Struct(">xxqiB")  # offset, leader epoch, length of the metadata
_METADATA: Final = 14  # where the length of the metadata is
_TIME: Final = Struct(">q")
_EXPIRING_HEAD: Final = Struct(">hqh")  # version, offset, length of the metadata
_EXPIRING_TAIL: Final = Struct(">qq")  # committed, expires

_NO_METADATA: Final = b"\1"
_NO_TAGS: Final = b"\0"
_TOPIC_ID_TAG: Final = b"\1\0\x10"  # one tag: number 0, 16 bytes
SMALLEST_VALUE: Final = 20  # bytes, of any version


class CommittedOffset(NamedTuple):
    """A committed offset, unpacked."""

    offset: Offset
    leader_epoch: Epoch
    metadata: str
    commit_timestamp: int
    expire_timestamp: int  # -1: none
    topic_id: UUID  # zero: not in the record


# -- keys


def group_prefix(group_id: str) -> bytes:
    """The first bytes of the keys of a group's offsets."""
    raw = group_id.encode()
    return _KEY_HEAD.pack(OFFSET_COMMIT, len(raw)) + raw


def pack_topic(topic: str) -> bytes:
    """The first bytes of the partitions of a topic."""
    raw = topic.encode()
    return _LENGTH.pack(len(raw)) + raw


def pack_partition(topic: bytes, partition: int) -> PackedPartition:
    """A partition of a packed topic."""
    return topic + _PARTITION.pack(partition)


def unpack_topic(packed: bytes) -> str:
    """The topic of a packed topic or partition."""
    return str(packed[2 : 2 + _LENGTH.unpack_from(packed)[0]], "utf-8")


def unpack_partition(packed: PackedPartition) -> int:
    partition: int = _PARTITION.unpack_from(packed, len(packed) + TOPIC_END)[0]
    return partition


def is_offset_key(key: bytes) -> bool:
    return len(key) > 1 and key[0] == 0 and key[1] <= OFFSET_COMMIT  # or the legacy type, which has the same fields


def split_key(key: bytes) -> tuple[str, PackedPartition]:
    """The group and the partition of a record's key."""
    try:
        stop = 4 + (key[2] << 8 | key[3])
        if len(key) != stop + 6 + (key[stop] << 8 | key[stop + 1]):
            raise MalformedMessage("The key of a committed offset has a wrong length.")
        return str(key[4:stop], "utf-8"), key[stop:]
    except (IndexError, UnicodeDecodeError):
        raise MalformedMessage("The key of a committed offset is malformed.") from None


def tombstone(group_id: str, packed: PackedPartition) -> Record:
    return Record(group_prefix(group_id) + packed, None)


# -- values


def value_suffix(now: int, topic_id: UUID) -> bytes:
    """The last bytes of the values of one commit to one topic."""
    return _TIME.pack(now) + (_NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id.bytes)


def pack_value(offset: Offset, leader_epoch: Epoch, metadata: str | None, tail: bytes) -> bytes:
    """A value as Kafka 4.3 writes it."""
    head = _HEAD.pack(NEWEST_VERSION, offset, leader_epoch)
    if not metadata:
        return head + _NO_METADATA + tail
    raw = metadata.encode()
    return head + uvarint(len(raw) + 1) + raw + tail


def pack_expiring_value(offset: Offset, metadata: str | None, now: int, expires: int) -> bytes:
    """A value with an expire timestamp, which OffsetCommit before version 5 may request."""
    raw = (metadata or "").encode()
    return _EXPIRING_HEAD.pack(EXPIRING_VERSION, offset, len(raw)) + raw + _EXPIRING_TAIL.pack(now, expires)


def check_value(value: bytes) -> None:
    """Raise if the value cannot be unpacked later: loading does not unpack values."""
    if len(value) < SMALLEST_VALUE:
        raise MalformedMessage("The value of a committed offset is too short.")
    if value[0] or value[1] > NEWEST_VERSION:
        raise UnsupportedVersion("A committed offset was written by a newer broker in an unknown version.")


def unpack_value(value: bytes) -> CommittedOffset:
    if value[1] != NEWEST_VERSION:
        return _unpack_declared(value)
    try:
        offset, leader_epoch, size = _HEAD_READ.unpack_from(value)
        start = _HEAD_READ.size
        if size > 127:
            size, start = continue_uvarint(value, start, size)
        stop = start + size - 1
        (committed,) = _TIME.unpack_from(value, stop)
    except (struct_error, IndexError):
        raise MalformedMessage("The value of a committed offset is too short.") from None
    tags = value[stop + 8 :]
    if tags == _NO_TAGS:
        topic_id = ZERO_UUID
    elif tags[:3] == _TOPIC_ID_TAG and len(tags) == 19:
        topic_id = UUID(bytes=tags[3:])
    else:  # tags of a newer version
        return _unpack_declared(value)
    return CommittedOffset(offset, leader_epoch, str(value[start:stop], "utf-8"), committed, -1, topic_id)


def commit_time(value: bytes) -> int:
    """The commit timestamp alone."""
    if value[1] == NEWEST_VERSION and value[_METADATA] < 128:
        found: int = _TIME.unpack_from(value, _METADATA + value[_METADATA])[0]
        return found
    return unpack_value(value).commit_timestamp


def has_expiration(value: bytes) -> bool:
    return value[1] == EXPIRING_VERSION


def _unpack_declared(value: bytes) -> CommittedOffset:
    found: OffsetCommitValue = records.decode_value(OffsetCommitValue, value)
    return CommittedOffset(
        found.offset,
        found.leader_epoch,
        found.metadata,
        found.commit_timestamp,
        found.expire_timestamp,
        found.topic_id,
    )
