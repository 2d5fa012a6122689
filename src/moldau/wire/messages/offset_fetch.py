"""OffsetFetch: the committed offsets of groups.

Null topics are all topics of a group, from version 2 on. 5 adds leader epochs, 7 require_stable, for offsets without
open transactions (KIP-447). Version 8 has several groups (KIP-709), 9 adds the member (KIP-848), 10 has topic ids
instead of names: a topic has its name up to 9 and its id from 10 on. Versions up to 7 have one group, which the
response does not repeat: here lists of one, in the response with an empty group id. Version 1 has no error for the
whole group: the handler sets it for every partition.
"""

from uuid import UUID

from moldau.wire.declare import (
    BOOL,
    GROUP_ID,
    INT16,
    INT32,
    INT64,
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
class OffsetFetchTopic:
    name: str = wire(TOPIC_NAME, until=9, default="", ignorable=True)
    topic_id: UUID = wire(TOPIC_ID, since=10, default=ZERO_UUID, ignorable=True)
    partition_indexes: tuple[int, ...] = wire(Array(INT32))


@struct
class OffsetFetchGroup:
    group_id: str = wire(GROUP_ID)
    member_id: str | None = wire(STRING, nullable=9, since=9, default=None, ignorable=True)
    member_epoch: int = wire(INT32, since=9, default=-1, ignorable=True)
    topics: tuple[OffsetFetchTopic, ...] | None = wire(Array(OffsetFetchTopic), nullable=0, default=None)  # None: all


@message(key=9, versions=(1, 10), flexible=6)
class OffsetFetchRequest:
    groups: tuple[OffsetFetchGroup, ...] = wire(Array(OffsetFetchGroup))
    require_stable: bool = wire(BOOL, default=False)


@older_form(of=OffsetFetchRequest, until=7)
class OffsetFetchOneGroupRequest:
    group_id: str = wire(GROUP_ID)
    topics: tuple[OffsetFetchTopic, ...] | None = wire(Array(OffsetFetchTopic), nullable=2)
    require_stable: bool = wire(BOOL, since=7, default=False)

    def to_newest(self) -> OffsetFetchRequest:
        only = OffsetFetchGroup(group_id=self.group_id, topics=self.topics)
        return OffsetFetchRequest(groups=(only,), require_stable=self.require_stable)

    @classmethod
    def from_newest(cls, newest: OffsetFetchRequest) -> "OffsetFetchOneGroupRequest":
        if len(newest.groups) != 1:
            raise Unencodable("OffsetFetchRequest before version 8 has exactly one group")
        only = newest.groups[0]
        return cls(group_id=only.group_id, topics=only.topics, require_stable=newest.require_stable)


@struct
class OffsetFetchPartitionResponse:
    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)  # -1: none
    committed_leader_epoch: int = wire(INT32, since=5, default=-1, ignorable=True)
    metadata: str | None = wire(STRING, nullable=0, default="")
    error_code: int = wire(INT16, default=0)


@struct
class OffsetFetchTopicResponse:
    name: str = wire(TOPIC_NAME, until=9, default="", ignorable=True)
    topic_id: UUID = wire(TOPIC_ID, since=10, default=ZERO_UUID, ignorable=True)
    partitions: tuple[OffsetFetchPartitionResponse, ...] = wire(Array(OffsetFetchPartitionResponse))


@struct
class OffsetFetchGroupResponse:
    group_id: str = wire(GROUP_ID)
    topics: tuple[OffsetFetchTopicResponse, ...] = wire(Array(OffsetFetchTopicResponse), default=())
    error_code: int = wire(INT16, default=0)


@message(key=9, versions=(1, 10), flexible=6)
class OffsetFetchResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    groups: tuple[OffsetFetchGroupResponse, ...] = wire(Array(OffsetFetchGroupResponse))


@older_form(of=OffsetFetchResponse, until=7)
class OffsetFetchOneGroupResponse:
    throttle_time_ms: int = wire(INT32, since=3, default=0, ignorable=True)
    topics: tuple[OffsetFetchTopicResponse, ...] = wire(Array(OffsetFetchTopicResponse))
    error_code: int = wire(INT16, since=2, default=0, ignorable=True)

    def to_newest(self) -> OffsetFetchResponse:
        only = OffsetFetchGroupResponse(group_id="", topics=self.topics, error_code=self.error_code)
        return OffsetFetchResponse(throttle_time_ms=self.throttle_time_ms, groups=(only,))

    @classmethod
    def from_newest(cls, newest: OffsetFetchResponse) -> "OffsetFetchOneGroupResponse":
        if len(newest.groups) != 1:
            raise Unencodable("OffsetFetchResponse before version 8 has exactly one group")
        only = newest.groups[0]
        return cls(throttle_time_ms=newest.throttle_time_ms, topics=only.topics, error_code=only.error_code)
