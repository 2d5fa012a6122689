"""Fetch: record batches of partitions, for consumers and followers. Records are opaque here.

Version 5 adds log start offsets; 7 sessions (KIP-227); 9 leader epochs (KIP-320); 10 allows zstd; 11 racks (KIP-392);
12 the last fetched epoch; 13 has topic ids instead of names (KIP-516): a topic has its name up to 12 and its id from 13
on, the other is empty; 15 moves the replica id into `replica_state`; 16 adds the endpoints of current leaders
(KIP-951); 17 the follower's directory; 18 its high watermark. Brokers use the codec in `hot`, which is tested against
this declaration.
"""

from uuid import UUID

from moldau.wire.declare import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    TOPIC_ID,
    TOPIC_NAME,
    UUID_,
    Array,
    fields_of,
    message,
    older_form,
    struct,
    wire,
)
from moldau.wire.primitives import ZERO_UUID, Unencodable


@struct
class ReplicaState:
    replica_id: int = wire(INT32, default=-1)
    replica_epoch: int = wire(INT64, default=-1)


@struct
class FetchPartition:
    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=9, default=-1, ignorable=True)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, since=12, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    partition_max_bytes: int = wire(INT32)
    replica_directory_id: UUID = wire(UUID_, tag=0, since=17, default=ZERO_UUID, ignorable=True)
    high_watermark: int = wire(INT64, tag=1, since=18, default=9223372036854775807, ignorable=True)


@struct
class FetchTopic:
    topic: str = wire(TOPIC_NAME, until=12, default="", ignorable=True)
    topic_id: UUID = wire(TOPIC_ID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: tuple[FetchPartition, ...] = wire(Array(FetchPartition))


@struct
class ForgottenTopic:
    topic: str = wire(TOPIC_NAME, until=12, default="", ignorable=True)
    topic_id: UUID = wire(TOPIC_ID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: tuple[int, ...] = wire(Array(INT32))


@message(key=1, versions=(4, 18), flexible=12)
class FetchRequest:
    cluster_id: str | None = wire(STRING, nullable=0, tag=0, default=None)
    replica_state: ReplicaState = wire(ReplicaState, tag=1, default=ReplicaState())
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, default=0x7FFFFFFF)
    isolation_level: int = wire(INT8, default=0)
    session_id: int = wire(INT32, default=0)
    session_epoch: int = wire(INT32, default=-1)
    topics: tuple[FetchTopic, ...] = wire(Array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(Array(ForgottenTopic), default=())
    rack_id: str = wire(STRING, default="")


@older_form(of=FetchRequest, until=14)
class FetchRequestWithReplicaId:
    cluster_id: str | None = wire(STRING, nullable=0, tag=0, since=12, default=None, ignorable=True)
    replica_id: int = wire(INT32, default=-1)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, default=0x7FFFFFFF)
    isolation_level: int = wire(INT8, default=0)
    session_id: int = wire(INT32, since=7, default=0, ignorable=True)
    session_epoch: int = wire(INT32, since=7, default=-1, ignorable=True)
    topics: tuple[FetchTopic, ...] = wire(Array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(Array(ForgottenTopic), since=7, default=())
    rack_id: str = wire(STRING, since=11, default="", ignorable=True)

    def to_newest(self) -> FetchRequest:
        shared = {name: getattr(self, name) for name in _SHARED}
        return FetchRequest(replica_state=ReplicaState(replica_id=self.replica_id), **shared)

    @classmethod
    def from_newest(cls, newest: FetchRequest) -> "FetchRequestWithReplicaId":
        if newest.replica_state.replica_epoch != -1:
            raise Unencodable("FetchRequest before version 15 has no replica epoch")
        shared = {name: getattr(newest, name) for name in _SHARED}
        return cls(replica_id=newest.replica_state.replica_id, **shared)


_SHARED = tuple(field.name for field in fields_of(FetchRequestWithReplicaId) if field.name != "replica_id")


@struct
class EpochEndOffset:
    epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@struct
class SnapshotId:
    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@struct
class AbortedTransaction:
    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@struct
class PartitionData:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, tag=0, since=12, default=EpochEndOffset())
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, tag=1, since=12, default=LeaderIdAndEpoch())
    snapshot_id: SnapshotId = wire(SnapshotId, tag=2, since=12, default=SnapshotId())
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(Array(AbortedTransaction), nullable=0)
    preferred_read_replica: int = wire(INT32, since=11, default=-1)
    records: bytes | None = wire(RECORDS, nullable=0)


@struct
class FetchableTopicResponse:
    topic: str = wire(TOPIC_NAME, until=12, default="", ignorable=True)
    topic_id: UUID = wire(TOPIC_ID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@struct
class NodeEndpoint:
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable=0, default=None)


@message(key=1, versions=(4, 18), flexible=12)
class FetchResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=7, default=0, ignorable=True)
    session_id: int = wire(INT32, since=7, default=0)
    responses: tuple[FetchableTopicResponse, ...] = wire(Array(FetchableTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint), tag=0, since=16, default=())
