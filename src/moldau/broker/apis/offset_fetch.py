"""OffsetFetch 1–10: what groups have committed. 2: everything. 5: leader epochs. 7: nothing that is unstable.

8: many groups. 9: the member that asks. 10: topics by their ids.
"""

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.groups import offsets_fetch
from moldau.groups.env import Topics
from moldau.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)


def offset_fetch(ctx: Context, request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    topics = ctx.groups.env().topics
    groups = tuple(_one(ctx, group, request.require_stable, call.version, topics) for group in request.groups)
    return OffsetFetchResponse(groups=groups)


def _one(
    ctx: Context, group: OffsetFetchGroup, require_stable: bool, version: int, topics: Topics
) -> OffsetFetchGroupResponse:
    shard = ctx.groups.shard(group.group_id)
    if isinstance(shard, WireError):
        return offsets_fetch.refused(group, shard, version)
    return shard.fetch_offsets(group, require_stable, version, topics)
