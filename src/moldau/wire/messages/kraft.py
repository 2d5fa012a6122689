"""Records of a KRaft metadata log that the import of a directory of Apache Kafka needs.

A value begins with three varints: frame version, record type and record version.
"""

from typing import get_args
from uuid import UUID

from moldau.wire.codec import MalformedMessage, UnsupportedVersion, decode
from moldau.wire.declare import INT8, INT16, INT32, INT64, STRING, UUID_, Array, layout_of, message, wire
from moldau.wire.primitives import SHORT_READ, read_uvarint

FRAME_VERSION = 1


@message(key=2, versions=(0, 0), flexible=0)
class TopicRecord:
    name: str = wire(STRING)
    topic_id: UUID = wire(UUID_)


@message(key=3, versions=(0, 2), flexible=0)
class PartitionRecord:
    partition_id: int = wire(INT32, default=-1)
    topic_id: UUID = wire(UUID_)
    replicas: tuple[int, ...] = wire(Array(INT32))
    isr: tuple[int, ...] = wire(Array(INT32))
    removing_replicas: tuple[int, ...] = wire(Array(INT32))
    adding_replicas: tuple[int, ...] = wire(Array(INT32))
    leader: int = wire(INT32, default=-1)
    leader_recovery_state: int = wire(INT8, tag=0, default=0)
    leader_epoch: int = wire(INT32, default=-1)
    partition_epoch: int = wire(INT32, default=-1)
    directories: tuple[UUID, ...] = wire(Array(UUID_), since=1, default=())
    eligible_leader_replicas: tuple[int, ...] | None = wire(Array(INT32), nullable=2, tag=1, since=2, default=None)
    last_known_elr: tuple[int, ...] | None = wire(Array(INT32), nullable=2, tag=2, since=2, default=None)


@message(key=4, versions=(0, 0), flexible=0)
class ConfigRecord:
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)


@message(key=5, versions=(0, 2), flexible=0)
class PartitionChangeRecord:
    partition_id: int = wire(INT32, default=-1)
    topic_id: UUID = wire(UUID_)
    isr: tuple[int, ...] | None = wire(Array(INT32), nullable=0, tag=0, default=None)
    leader: int = wire(INT32, tag=1, default=-2)
    replicas: tuple[int, ...] | None = wire(Array(INT32), nullable=0, tag=2, default=None)
    removing_replicas: tuple[int, ...] | None = wire(Array(INT32), nullable=0, tag=3, default=None)
    adding_replicas: tuple[int, ...] | None = wire(Array(INT32), nullable=0, tag=4, default=None)
    leader_recovery_state: int = wire(INT8, tag=5, default=-1)
    directories: tuple[UUID, ...] | None = wire(Array(UUID_), nullable=1, tag=8, since=1, default=None)
    eligible_leader_replicas: tuple[int, ...] | None = wire(Array(INT32), nullable=2, tag=6, since=2, default=None)
    last_known_elr: tuple[int, ...] | None = wire(Array(INT32), nullable=2, tag=7, since=2, default=None)


@message(key=9, versions=(0, 0), flexible=0)
class RemoveTopicRecord:
    topic_id: UUID = wire(UUID_)


@message(key=12, versions=(0, 0), flexible=0)
class FeatureLevelRecord:
    name: str = wire(STRING)
    feature_level: int = wire(INT16)


@message(key=15, versions=(0, 0), flexible=0)
class ProducerIdsRecord:
    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, default=-1)
    next_producer_id: int = wire(INT64)


# KIP-868: a change that does not fit one batch is enclosed in two of these.
@message(key=23, versions=(0, 0), flexible=0)
class BeginTransactionRecord:
    name: str | None = wire(STRING, nullable=0, tag=0, default=None)


@message(key=24, versions=(0, 0), flexible=0)
class EndTransactionRecord:
    pass


@message(key=25, versions=(0, 0), flexible=0)
class AbortTransactionRecord:
    reason: str | None = wire(STRING, nullable=0, tag=0, default=None)


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
)

RECORD_TYPES: dict[int, type[MetadataRecord]] = {layout_of(cls).key: cls for cls in get_args(MetadataRecord)}


def decode_metadata_record(value: bytes) -> MetadataRecord | None:
    """Decode the value of a metadata record; None for types that the import does not need.

    A known type in an unknown version raises UnsupportedVersion: the directory is from a newer Kafka, and without the
    record the import would be incomplete.
    """
    try:
        frame, position = read_uvarint(value, 0)
        kind, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except SHORT_READ:
        raise MalformedMessage("a metadata record ends within its frame") from None
    if frame != FRAME_VERSION:
        raise UnsupportedVersion(f"metadata record with frame version {frame}, not {FRAME_VERSION}")
    cls = RECORD_TYPES.get(kind)
    return None if cls is None else decode(cls, version, value, position)
