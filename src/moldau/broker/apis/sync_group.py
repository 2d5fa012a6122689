"""SyncGroup 0–5: the leader brings the assignment, each member gets its part. 3: static members. 5: the protocol."""

from typing import Any

from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync_group(ctx: Context, request: SyncGroupRequest, call: Call) -> Any:
    return ctx.groups.ask(request.group_id, request, call, lambda error: SyncGroupResponse(error_code=error))
