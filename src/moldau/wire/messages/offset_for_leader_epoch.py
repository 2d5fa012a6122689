"""OffsetForLeaderEpoch: the end offsets of leader epochs, to find where a log diverged.

Version 3 adds the replica id: -1 is a consumer, -2, the default, a debugging consumer.
"""

from moldau.wire.declare import INT16, INT32, INT64, TOPIC_NAME, Array, message, struct, wire


@struct
class OffsetForLeaderPartition:
    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32)


@struct
class OffsetForLeaderTopic:
    topic: str = wire(TOPIC_NAME)
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(Array(OffsetForLeaderPartition))


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest:
    replica_id: int = wire(INT32, since=3, default=-2, ignorable=True)
    topics: tuple[OffsetForLeaderTopic, ...] = wire(Array(OffsetForLeaderTopic))


@struct
class EpochEndOffset:
    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = wire(TOPIC_NAME)
    partitions: tuple[EpochEndOffset, ...] = wire(Array(EpochEndOffset))


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire(Array(OffsetForLeaderTopicResult))
