"""Metadata: the brokers, topics, partitions and leaders of the cluster.

Version 0 has no null list of topics: its empty list means all. Version 1 adds null for all, racks and the controller;
2 the cluster id; 3 the throttle time; 4 allow_auto_topic_creation; 5 offline replicas; 7 leader epochs; 8 authorized
operations; 10 topic ids; 11 drops the cluster's authorized operations; 12 allows topic ids with a null name; 13 adds
an error for the whole response.
"""

from uuid import UUID

from moldau.wire.declare import (
    BOOL,
    INT16,
    INT32,
    STRING,
    TOPIC_ID,
    TOPIC_NAME,
    Array,
    message,
    older_form,
    struct,
    wire,
)
from moldau.wire.primitives import ZERO_UUID, Unencodable


@struct
class MetadataRequestTopic:
    topic_id: UUID = wire(TOPIC_ID, since=10, default=ZERO_UUID, ignorable=True)
    name: str | None = wire(TOPIC_NAME, nullable=10)


@message(key=3, versions=(0, 13), flexible=9)
class MetadataRequest:
    topics: tuple[MetadataRequestTopic, ...] | None = wire(Array(MetadataRequestTopic), nullable=0)  # null: all
    allow_auto_topic_creation: bool = wire(BOOL, since=4, default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, since=8, until=10, default=False)
    include_topic_authorized_operations: bool = wire(BOOL, since=8, default=False)


@older_form(of=MetadataRequest, until=0)
class MetadataRequestWithoutNull:
    topics: tuple[MetadataRequestTopic, ...] = wire(Array(MetadataRequestTopic))  # empty: all

    def to_newest(self) -> MetadataRequest:
        return MetadataRequest(topics=self.topics or None)

    @classmethod
    def from_newest(cls, newest: MetadataRequest) -> "MetadataRequestWithoutNull":
        if newest.topics == ():
            raise Unencodable("MetadataRequest version 0 cannot ask for no topic")
        if newest != MetadataRequest(topics=newest.topics):
            raise Unencodable("MetadataRequest version 0 has topics and nothing else")
        return cls(topics=newest.topics or ())


@struct
class MetadataResponseBroker:
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable=1, since=1, default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=7, default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire(Array(INT32))
    isr_nodes: tuple[int, ...] = wire(Array(INT32))
    offline_replicas: tuple[int, ...] = wire(Array(INT32), since=5, default=(), ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: int = wire(INT16)
    name: str | None = wire(TOPIC_NAME, nullable=12)
    topic_id: UUID = wire(TOPIC_ID, since=10, default=ZERO_UUID, ignorable=True)
    is_internal: bool = wire(BOOL, since=1, default=False, ignorable=True)
    partitions: tuple[MetadataResponsePartition, ...] = wire(Array(MetadataResponsePartition))
    topic_authorized_operations: int = wire(INT32, since=8, default=-2147483648)


@message(key=3, versions=(0, 13), flexible=9)
class MetadataResponse:
    throttle_time_ms: int = wire(INT32, since=3, default=0, ignorable=True)
    brokers: tuple[MetadataResponseBroker, ...] = wire(Array(MetadataResponseBroker))
    cluster_id: str | None = wire(STRING, nullable=2, since=2, default=None, ignorable=True)
    controller_id: int = wire(INT32, since=1, default=-1, ignorable=True)
    topics: tuple[MetadataResponseTopic, ...] = wire(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = wire(INT32, since=8, until=10, default=-2147483648)
    error_code: int = wire(INT16, since=13, default=0, ignorable=True)
