"""DeleteGroups 0–2: delete empty groups with their offsets; each group succeeds or fails by itself."""

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.broker.waiting import awaited
from moldau.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def delete_groups(ctx: CoordinatorContext, request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(request.groups_names):
        results += (await _delete(ctx, group_id, call)).results
    return DeleteGroupsResponse(results=tuple(results))


async def _delete(ctx: CoordinatorContext, group_id: str, call: Call) -> DeleteGroupsResponse:
    def refused(error: WireError) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=(DeletableGroupResult(group_id=group_id, error_code=error),))

    return await awaited(ctx.groups.ask(group_id, DeleteGroupsRequest(groups_names=(group_id,)), call, refused))
