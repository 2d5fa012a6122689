"""ConsumerGroupDescribe 0–1: groups of the consumer protocol with their members. 1: the protocol of each member."""

from moldau.base.errors import WireError
from moldau.base.later import NowOrLater, gather
from moldau.broker.apis.describe_groups import GROUP_OPERATIONS
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.wire.declare import replace
from moldau.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)


def consumer_group_describe(
    ctx: CoordinatorContext, request: ConsumerGroupDescribeRequest, call: Call
) -> NowOrLater[ConsumerGroupDescribeResponse]:
    groups = [_describe(ctx, group_id) for group_id in request.group_ids]
    return gather(groups, lambda described: _answer(described, request.include_authorized_operations))


def _answer(groups: list[ConsumerGroupDescribedGroup], include_operations: bool) -> ConsumerGroupDescribeResponse:
    if include_operations:
        groups = [
            group if group.error_code else replace(group, authorized_operations=GROUP_OPERATIONS) for group in groups
        ]
    return ConsumerGroupDescribeResponse(groups=tuple(groups))


def _describe(ctx: CoordinatorContext, group_id: str) -> NowOrLater[ConsumerGroupDescribedGroup]:
    def refused(error: WireError) -> ConsumerGroupDescribedGroup:
        return ConsumerGroupDescribedGroup(group_id=group_id, error_code=error, error_message=error.doc)

    if not group_id:
        return refused(WireError.INVALID_GROUP_ID)
    env = ctx.groups.env()
    return ctx.groups.read(group_id, lambda shard: shard.describe_consumer(group_id, env.topics, env.config), refused)
