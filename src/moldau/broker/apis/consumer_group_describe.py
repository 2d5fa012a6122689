"""ConsumerGroupDescribe 0–1: groups of the consumer protocol with their members. 1: which protocol each speaks."""

from moldau.base.errors import WireError
from moldau.broker.apis.describe_groups import GROUP_OPERATIONS
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.wire.declare import replace
from moldau.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)


def consumer_group_describe(
    ctx: Context, request: ConsumerGroupDescribeRequest, call: Call
) -> ConsumerGroupDescribeResponse:
    groups = [_describe(ctx, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        groups = [
            group if group.error_code else replace(group, authorized_operations=GROUP_OPERATIONS) for group in groups
        ]
    return ConsumerGroupDescribeResponse(groups=tuple(groups))


def _describe(ctx: Context, group_id: str) -> ConsumerGroupDescribedGroup:
    if not group_id:
        error = WireError.INVALID_GROUP_ID
        return ConsumerGroupDescribedGroup(group_id=group_id, error_code=error, error_message=error.doc)
    shard = ctx.groups.shard(group_id)
    if isinstance(shard, WireError):
        return ConsumerGroupDescribedGroup(group_id=group_id, error_code=shard, error_message=shard.doc)
    env = ctx.groups.env()
    return shard.describe_consumer(group_id, env.topics, env.config)
