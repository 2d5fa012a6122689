"""Heartbeat 0–4: a member of a classic group is alive. 3: static members."""

from typing import Any

from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def heartbeat(ctx: Context, request: HeartbeatRequest, call: Call) -> Any:
    return ctx.groups.ask(request.group_id, request, call, lambda error: HeartbeatResponse(error_code=error))
