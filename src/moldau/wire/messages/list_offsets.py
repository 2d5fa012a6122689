"""ListOffsets: offsets by timestamp, or by a special timestamp (earliest, latest, …).

Version 2 adds the isolation level, 4 leader epochs, 7 to 9 and 11 special timestamps, 10 a timeout for remote storage.
"""

from moldau.wire.declare import INT8, INT16, INT32, INT64, TOPIC_NAME, Array, message, struct, wire


@struct
class ListOffsetsPartition:
    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=4, default=-1, ignorable=True)
    timestamp: int = wire(INT64)


@struct
class ListOffsetsTopic:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[ListOffsetsPartition, ...] = wire(Array(ListOffsetsPartition))


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsRequest:
    replica_id: int = wire(INT32)
    isolation_level: int = wire(INT8, since=2, default=0)
    topics: tuple[ListOffsetsTopic, ...] = wire(Array(ListOffsetsTopic))
    timeout_ms: int = wire(INT32, since=10, default=0, ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, default=-1)
    offset: int = wire(INT64, default=-1)
    leader_epoch: int = wire(INT32, since=4, default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(Array(ListOffsetsPartitionResponse))


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsResponse:
    throttle_time_ms: int = wire(INT32, since=2, default=0, ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire(Array(ListOffsetsTopicResponse))
