"""AlterReplicaLogDirs: move replicas to other log directories of a broker. Versions differ in encoding only."""

from moldau.wire.declare import INT16, INT32, STRING, TOPIC_NAME, Array, message, struct, wire


@struct
class AlterReplicaLogDirTopic:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[int, ...] = wire(Array(INT32))


@struct
class AlterReplicaLogDir:
    path: str = wire(STRING)
    topics: tuple[AlterReplicaLogDirTopic, ...] = wire(Array(AlterReplicaLogDirTopic))


@message(key=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsRequest:
    dirs: tuple[AlterReplicaLogDir, ...] = wire(Array(AlterReplicaLogDir))


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = wire(TOPIC_NAME)
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = wire(Array(AlterReplicaLogDirPartitionResult))


@message(key=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[AlterReplicaLogDirTopicResult, ...] = wire(Array(AlterReplicaLogDirTopicResult))
