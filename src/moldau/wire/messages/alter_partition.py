"""AlterPartition: a leader proposes a new ISR of its partitions to the controller (KIP-497). Between brokers only.

Version 2 has topic ids; version 3 adds the broker epoch of each replica (KIP-903).
"""

from uuid import UUID

from moldau.wire.declare import INT8, INT16, INT32, INT64, UUID_, Array, message, struct, wire


@struct
class BrokerState:
    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, default=-1)


@struct
class AlterPartitionData:
    partition_index: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    new_isr: tuple[int, ...] = wire(Array(INT32), until=2, default=())
    new_isr_with_epochs: tuple[BrokerState, ...] = wire(Array(BrokerState), since=3, default=())
    leader_recovery_state: int = wire(INT8, default=0)
    partition_epoch: int = wire(INT32)


@struct
class AlterPartitionTopic:
    topic_id: UUID = wire(UUID_)
    partitions: tuple[AlterPartitionData, ...] = wire(Array(AlterPartitionData))


@message(key=56, versions=(2, 3), flexible=0)
class AlterPartitionRequest:
    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, default=-1)
    topics: tuple[AlterPartitionTopic, ...] = wire(Array(AlterPartitionTopic))


@struct
class AlteredPartition:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)
    isr: tuple[int, ...] = wire(Array(INT32), default=())
    leader_recovery_state: int = wire(INT8, default=0)
    partition_epoch: int = wire(INT32, default=-1)


@struct
class AlteredTopic:
    topic_id: UUID = wire(UUID_)
    partitions: tuple[AlteredPartition, ...] = wire(Array(AlteredPartition))


@message(key=56, versions=(2, 3), flexible=0)
class AlterPartitionResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    topics: tuple[AlteredTopic, ...] = wire(Array(AlteredTopic), default=())
