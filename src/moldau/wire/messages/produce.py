"""Produce: record batches for partitions. Records are opaque here.

Version 5 adds the log start offset; 7 allows zstd; 8 adds errors per record; 10 the current leader (KIP-951); 13 has
topic ids instead of names (KIP-516): a topic has its name up to 12 and its id from 13 on, the other is empty. Versions
0 to 2 are advertised but not supported (KAFKA-18659), so they have no codec. Brokers use the codec in `hot`, which is
tested against this declaration.
"""

from uuid import UUID

from moldau.wire.declare import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    TOPIC_ID,
    TOPIC_NAME,
    TRANSACTIONAL_ID,
    Array,
    message,
    struct,
    wire,
)
from moldau.wire.primitives import ZERO_UUID


@struct
class PartitionProduceData:
    index: int = wire(INT32)
    records: bytes | None = wire(RECORDS, nullable=0)


@struct
class TopicProduceData:
    name: str = wire(TOPIC_NAME, until=12, default="", ignorable=True)
    topic_id: UUID = wire(TOPIC_ID, since=13, default=ZERO_UUID, ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = wire(Array(PartitionProduceData))


@message(key=0, versions=(3, 13), flexible=9)
class ProduceRequest:
    transactional_id: str | None = wire(TRANSACTIONAL_ID, nullable=0, default=None)
    acks: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    topic_data: tuple[TopicProduceData, ...] = wire(Array(TopicProduceData))


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = wire(INT32)
    batch_index_error_message: str | None = wire(STRING, nullable=0, default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@struct
class PartitionProduceResponse:
    index: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)
    log_append_time_ms: int = wire(INT64, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire(
        Array(BatchIndexAndErrorMessage), since=8, default=(), ignorable=True
    )
    error_message: str | None = wire(STRING, nullable=8, since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, tag=0, since=10, default=LeaderIdAndEpoch())


@struct
class TopicProduceResponse:
    name: str = wire(TOPIC_NAME, until=12, default="", ignorable=True)
    topic_id: UUID = wire(TOPIC_ID, since=13, default=ZERO_UUID, ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire(Array(PartitionProduceResponse))


@struct
class NodeEndpoint:
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable=0, default=None)


@message(key=0, versions=(3, 13), flexible=9)
class ProduceResponse:
    responses: tuple[TopicProduceResponse, ...] = wire(Array(TopicProduceResponse))
    throttle_time_ms: int = wire(INT32, default=0)
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint), tag=0, since=10, default=())
