"""ListGroups 0–5: the groups of this broker. 4: filter by state. 5: filter by type."""

from moldau.base.errors import WireError
from moldau.base.later import NowOrLater, gather
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.groups.shard import GroupShard
from moldau.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def list_groups(ctx: CoordinatorContext, request: ListGroupsRequest, call: Call) -> NowOrLater[ListGroupsResponse]:
    """The groups that this broker coordinates."""

    def look(shard: GroupShard) -> ListGroupsResponse:
        return ListGroupsResponse(groups=tuple(shard.list_groups(request.states_filter, request.types_filter)))

    def refused(error: WireError) -> ListGroupsResponse:
        return ListGroupsResponse(error_code=error)

    return gather(ctx.groups.read_all(look, refused), _combine)


def _combine(found: list[ListGroupsResponse]) -> ListGroupsResponse:
    """While some groups are being loaded, or their state is not committed, the list is incomplete: clients retry."""
    for each in found:
        if each.error_code not in (WireError.NONE, WireError.NOT_COORDINATOR):  # that shard has just moved away
            return each
    return ListGroupsResponse(groups=tuple(group for each in found for group in each.groups))
