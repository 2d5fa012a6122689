"""ConsumerGroupHeartbeat: join, stay in and leave a consumer group (KIP-848).

A member sends all fields when it joins and afterwards only those that changed: null means unchanged. Version 1 adds
subscriptions by regular expression and member ids that clients generate (KIP-1082).
"""

from uuid import UUID

from moldau.wire.declare import (
    GROUP_ID,
    INT16,
    INT32,
    NAME_PATTERN,
    STRING,
    TOPIC_ID,
    TOPIC_NAME,
    Array,
    message,
    struct,
    wire,
)


@struct
class ConsumerGroupTopicPartitions:
    topic_id: UUID = wire(TOPIC_ID)
    partitions: tuple[int, ...] = wire(Array(INT32))


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest:
    group_id: str = wire(GROUP_ID)
    member_id: str = wire(STRING, default="")
    member_epoch: int = wire(INT32)  # 0 joins, -1 leaves, -2 leaves as a static member that will rejoin
    instance_id: str | None = wire(STRING, nullable=0, default=None)
    rack_id: str | None = wire(STRING, nullable=0, default=None)
    rebalance_timeout_ms: int = wire(INT32, default=-1)  # -1: unchanged
    subscribed_topic_names: tuple[str, ...] | None = wire(Array(TOPIC_NAME), nullable=0, default=None)
    subscribed_topic_regex: str | None = wire(NAME_PATTERN, nullable=1, since=1, default=None)
    server_assignor: str | None = wire(STRING, nullable=0, default=None)
    topic_partitions: tuple[ConsumerGroupTopicPartitions, ...] | None = wire(
        Array(ConsumerGroupTopicPartitions), nullable=0, default=None
    )


@struct
class ConsumerGroupAssignment:
    topic_partitions: tuple[ConsumerGroupTopicPartitions, ...] = wire(Array(ConsumerGroupTopicPartitions), default=())


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    member_id: str | None = wire(STRING, nullable=0, default=None)
    member_epoch: int = wire(INT32, default=0)
    heartbeat_interval_ms: int = wire(INT32, default=0)
    assignment: ConsumerGroupAssignment | None = wire(ConsumerGroupAssignment, nullable=0, default=None)
