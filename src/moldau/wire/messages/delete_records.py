"""DeleteRecords: advance the log start offsets of partitions. Versions differ in encoding and quota errors only."""

from moldau.wire.declare import INT16, INT32, INT64, TOPIC_NAME, Array, message, struct, wire


@struct
class DeleteRecordsPartition:
    partition_index: int = wire(INT32)
    offset: int = wire(INT64)


@struct
class DeleteRecordsTopic:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[DeleteRecordsPartition, ...] = wire(Array(DeleteRecordsPartition))


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest:
    topics: tuple[DeleteRecordsTopic, ...] = wire(Array(DeleteRecordsTopic))
    timeout_ms: int = wire(INT32)


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16)


@struct
class DeleteRecordsTopicResult:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire(Array(DeleteRecordsPartitionResult))


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[DeleteRecordsTopicResult, ...] = wire(Array(DeleteRecordsTopicResult))
