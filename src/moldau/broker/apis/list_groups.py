"""ListGroups 0–5: the groups of this broker. 4: in certain states. 5: of certain types."""

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def list_groups(ctx: Context, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    """While some groups are still being loaded nobody knows them all: clients ask again."""
    groups: list[ListedGroup] = []
    for shard in ctx.groups.shards():
        if shard is WireError.COORDINATOR_LOAD_IN_PROGRESS:
            return ListGroupsResponse(error_code=shard)
        if not isinstance(shard, WireError):
            groups += shard.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(groups=tuple(groups))
