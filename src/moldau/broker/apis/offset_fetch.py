"""OffsetFetch 1–10: the committed offsets of groups. 2: of all partitions. 5: leader epochs. 7: stable offsets only.

8: several groups. 9: member id and epoch. 10: topic ids.
"""

from moldau.base.errors import WireError
from moldau.base.later import NowOrLater, gather
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.groups.environment import Topics
from moldau.groups.offsets import fetch as offsets_fetch
from moldau.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)


def offset_fetch(ctx: CoordinatorContext, request: OffsetFetchRequest, call: Call) -> NowOrLater[OffsetFetchResponse]:
    topics = ctx.groups.env().topics
    groups = [_one(ctx, group, request.require_stable, call.version, topics) for group in request.groups]
    return gather(groups, lambda fetched: OffsetFetchResponse(groups=tuple(fetched)))


def _one(
    ctx: CoordinatorContext, group: OffsetFetchGroup, require_stable: bool, version: int, topics: Topics
) -> NowOrLater[OffsetFetchGroupResponse]:
    def refused(error: WireError) -> OffsetFetchGroupResponse:
        """As in Kafka: many clients retry NOT_COORDINATOR here, and fail with COORDINATOR_NOT_AVAILABLE."""
        if error is WireError.COORDINATOR_NOT_AVAILABLE:
            error = WireError.NOT_COORDINATOR
        return offsets_fetch.refused(group, error, version)

    return ctx.groups.read(
        group.group_id, lambda shard: shard.fetch_offsets(group, require_stable, version, topics), refused
    )
