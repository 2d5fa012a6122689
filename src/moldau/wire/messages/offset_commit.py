"""OffsetCommit: commit offsets of a group.

Up to version 4 a request has a retention time; 6 adds leader epochs (KIP-320), 7 static members, 9 members of consumer
groups, with the member epoch in place of the generation (KIP-848). Version 10 has topic ids instead of names: a topic
has its name up to 9 and its id from 10 on, the other is empty.
"""

from uuid import UUID

from moldau.wire.declare import (
    GROUP_ID,
    INT16,
    INT32,
    INT64,
    STRING,
    TOPIC_ID,
    TOPIC_NAME,
    Array,
    message,
    struct,
    wire,
)
from moldau.wire.primitives import ZERO_UUID


@struct
class OffsetCommitPartition:
    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=6, default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable=0, default="")


@struct
class OffsetCommitTopic:
    name: str = wire(TOPIC_NAME, until=9, default="", ignorable=True)
    topic_id: UUID = wire(TOPIC_ID, since=10, default=ZERO_UUID, ignorable=True)
    partitions: tuple[OffsetCommitPartition, ...] = wire(Array(OffsetCommitPartition))


@message(key=8, versions=(2, 10), flexible=8)
class OffsetCommitRequest:
    group_id: str = wire(GROUP_ID)
    generation_id_or_member_epoch: int = wire(INT32, default=-1)  # -1: not a member
    member_id: str = wire(STRING, default="")
    group_instance_id: str | None = wire(STRING, nullable=7, since=7, default=None)
    retention_time_ms: int = wire(INT64, until=4, default=-1, ignorable=True)  # -1: offsets.retention.minutes
    topics: tuple[OffsetCommitTopic, ...] = wire(Array(OffsetCommitTopic))


@struct
class OffsetCommitPartitionResponse:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16, default=0)


@struct
class OffsetCommitTopicResponse:
    name: str = wire(TOPIC_NAME, until=9, default="", ignorable=True)
    topic_id: UUID = wire(TOPIC_ID, since=10, default=ZERO_UUID, ignorable=True)
    partitions: tuple[OffsetCommitPartitionResponse, ...] = wire(Array(OffsetCommitPartitionResponse))


@message(key=8, versions=(2, 10), flexible=8)
class OffsetCommitResponse:
    throttle_time_ms: int = wire(INT32, since=3, default=0, ignorable=True)
    topics: tuple[OffsetCommitTopicResponse, ...] = wire(Array(OffsetCommitTopicResponse))
