"""LeaveGroup 0–5: remove members. 3: several at once, and by group instance id. 5: reasons."""

from moldau.base.later import NowOrLater
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


def leave_group(ctx: CoordinatorContext, request: LeaveGroupRequest, call: Call) -> NowOrLater[LeaveGroupResponse]:
    return ctx.groups.ask(request.group_id, request, call, lambda error: LeaveGroupResponse(error_code=error))
