"""TxnOffsetCommit: commit offsets of a group as part of a transaction.

Version 2 adds leader epochs, 3 the member, to fence older generations (KIP-447). 5 adds the group to the transaction
without AddOffsetsToTxn (KIP-890).
"""

from moldau.wire.declare import (
    GROUP_ID,
    INT16,
    INT32,
    INT64,
    STRING,
    TOPIC_NAME,
    TRANSACTIONAL_ID,
    Array,
    message,
    struct,
    wire,
)


@struct
class TxnOffsetCommitPartition:
    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=2, default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable=0, default="")


@struct
class TxnOffsetCommitTopic:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[TxnOffsetCommitPartition, ...] = wire(Array(TxnOffsetCommitPartition))


@message(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitRequest:
    transactional_id: str = wire(TRANSACTIONAL_ID)
    group_id: str = wire(GROUP_ID)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    generation_id: int = wire(INT32, since=3, default=-1)  # -1: not a member
    member_id: str = wire(STRING, since=3, default="")
    group_instance_id: str | None = wire(STRING, nullable=3, since=3, default=None)
    topics: tuple[TxnOffsetCommitTopic, ...] = wire(Array(TxnOffsetCommitTopic))


@struct
class TxnOffsetCommitPartitionResponse:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16, default=0)


@struct
class TxnOffsetCommitTopicResponse:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[TxnOffsetCommitPartitionResponse, ...] = wire(Array(TxnOffsetCommitPartitionResponse))


@message(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[TxnOffsetCommitTopicResponse, ...] = wire(Array(TxnOffsetCommitTopicResponse))
