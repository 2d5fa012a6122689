"""ElectLeaders: elect the preferred leader or, from version 1 on, an unclean leader (KIP-460).

A null list means all partitions.
"""

from moldau.wire.declare import INT8, INT16, INT32, STRING, TOPIC_NAME, Array, message, struct, wire


@struct
class TopicPartitions:
    topic: str = wire(TOPIC_NAME)
    partitions: tuple[int, ...] = wire(Array(INT32))


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersRequest:
    election_type: int = wire(INT8, since=1, default=0)
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(Array(TopicPartitions), nullable=0, default=None)
    timeout_ms: int = wire(INT32, default=60000)


@struct
class PartitionResult:
    partition_id: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)


@struct
class ReplicaElectionResult:
    topic: str = wire(TOPIC_NAME)
    partition_result: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=1, default=0, ignorable=True)
    replica_election_results: tuple[ReplicaElectionResult, ...] = wire(Array(ReplicaElectionResult))
