"""ListGroups 0–5: the groups of this broker. 4: in certain states. 5: of certain types."""

from typing import Any

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.broker.promise import joined
from moldau.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def list_groups(ctx: Context, request: ListGroupsRequest, call: Call) -> Any:
    """Groups that are other brokers' are left to them."""
    return joined(
        ctx.groups.read_all(lambda shard: shard.list_groups(request.states_filter, request.types_filter)), _answer
    )


def _answer(found: list[list[ListedGroup] | WireError]) -> ListGroupsResponse:
    """While some groups are still being loaded, or not certain, nobody knows them all: clients ask again."""
    groups: list[ListedGroup] = []
    for each in found:
        if not isinstance(each, WireError):
            groups += each
        elif each is not WireError.NOT_COORDINATOR:  # those have just become another broker's
            return ListGroupsResponse(error_code=each)
    return ListGroupsResponse(groups=tuple(groups))
