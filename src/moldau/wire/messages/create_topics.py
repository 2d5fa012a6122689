"""CreateTopics: create topics, with a number of partitions or an explicit assignment, and configs.

Version 4 allows -1 partitions and replication factor for the default of the broker; 5 returns the configs of the new
topic; 7 its id.
"""

from uuid import UUID

from moldau.wire.declare import BOOL, INT8, INT16, INT32, STRING, TOPIC_ID, TOPIC_NAME, Array, message, struct, wire
from moldau.wire.primitives import ZERO_UUID


@struct
class CreatableReplicaAssignment:
    partition_index: int = wire(INT32)
    broker_ids: tuple[int, ...] = wire(Array(INT32))


@struct
class CreatableTopicConfig:
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)


@struct
class CreatableTopic:
    name: str = wire(TOPIC_NAME)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: tuple[CreatableReplicaAssignment, ...] = wire(Array(CreatableReplicaAssignment))
    configs: tuple[CreatableTopicConfig, ...] = wire(Array(CreatableTopicConfig))


@message(key=19, versions=(2, 7), flexible=5)
class CreateTopicsRequest:
    topics: tuple[CreatableTopic, ...] = wire(Array(CreatableTopic))
    timeout_ms: int = wire(INT32, default=60000)
    validate_only: bool = wire(BOOL, default=False)


@struct
class CreatableTopicConfigs:
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8, default=-1)
    is_sensitive: bool = wire(BOOL)


@struct
class CreatableTopicResult:
    name: str = wire(TOPIC_NAME)
    topic_id: UUID = wire(TOPIC_ID, since=7, default=ZERO_UUID, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    topic_config_error_code: int = wire(INT16, tag=0, since=5, default=0, ignorable=True)
    num_partitions: int = wire(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = wire(INT16, since=5, default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire(
        Array(CreatableTopicConfigs), nullable=5, since=5, default=(), ignorable=True
    )


@message(key=19, versions=(2, 7), flexible=5)
class CreateTopicsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[CreatableTopicResult, ...] = wire(Array(CreatableTopicResult))
