"""DescribeGroups 0–6: classic groups with their members. 3: authorized operations. 4: static members.

6: an unknown group is an error; before, it was a group in state Dead.
"""

from moldau.base.errors import WireError
from moldau.base.later import NowOrLater, gather
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.groups.shard import GroupShard
from moldau.security.acls import SUPPORTED, ResourceType, bit_field
from moldau.wire.declare import replace
from moldau.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

ERRORS_SINCE = 6

GROUP_OPERATIONS = bit_field(SUPPORTED[ResourceType.GROUP])  # those of clients that may do everything (KIP-430)


def describe_groups(
    ctx: CoordinatorContext, request: DescribeGroupsRequest, call: Call
) -> NowOrLater[DescribeGroupsResponse]:
    groups = [_describe(ctx, group_id, call.version) for group_id in request.groups]
    return gather(groups, lambda described: _answer(described, request.include_authorized_operations))


def _answer(groups: list[DescribedGroup], include_operations: bool) -> DescribeGroupsResponse:
    if include_operations:
        groups = [
            group if group.error_code else replace(group, authorized_operations=GROUP_OPERATIONS) for group in groups
        ]
    return DescribeGroupsResponse(groups=tuple(groups))


def _describe(ctx: CoordinatorContext, group_id: str, version: int) -> NowOrLater[DescribedGroup]:
    def look(shard: GroupShard) -> DescribedGroup:
        group = shard.describe_classic(group_id)
        if group.error_code == WireError.GROUP_ID_NOT_FOUND and version < ERRORS_SINCE:
            return replace(group, error_code=WireError.NONE, error_message=None)
        return group

    return ctx.groups.read(group_id, look, lambda error: DescribedGroup(group_id=group_id, error_code=error))
