"""DescribeLogDirs: the replicas of each log directory, and their sizes.

Version 3 adds an error for the whole response, 4 the size of the volume, 5 whether the directory is cordoned.
"""

from moldau.wire.declare import BOOL, INT16, INT32, INT64, STRING, TOPIC_NAME, Array, message, struct, wire


@struct
class DescribableLogDirTopic:
    topic: str = wire(TOPIC_NAME)
    partitions: tuple[int, ...] = wire(Array(INT32))


@message(key=35, versions=(1, 5), flexible=2)
class DescribeLogDirsRequest:
    topics: tuple[DescribableLogDirTopic, ...] | None = wire(Array(DescribableLogDirTopic), nullable=0)


@struct
class DescribeLogDirsPartition:
    partition_index: int = wire(INT32)
    partition_size: int = wire(INT64)
    offset_lag: int = wire(INT64)
    is_future_key: bool = wire(BOOL)


@struct
class DescribeLogDirsTopic:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[DescribeLogDirsPartition, ...] = wire(Array(DescribeLogDirsPartition))


@struct
class DescribeLogDirsResult:
    error_code: int = wire(INT16)
    log_dir: str = wire(STRING)
    topics: tuple[DescribeLogDirsTopic, ...] = wire(Array(DescribeLogDirsTopic))
    total_bytes: int = wire(INT64, since=4, default=-1, ignorable=True)
    usable_bytes: int = wire(INT64, since=4, default=-1, ignorable=True)
    is_cordoned: bool = wire(BOOL, since=5, default=False, ignorable=True)


@message(key=35, versions=(1, 5), flexible=2)
class DescribeLogDirsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=3, default=0, ignorable=True)
    results: tuple[DescribeLogDirsResult, ...] = wire(Array(DescribeLogDirsResult))
