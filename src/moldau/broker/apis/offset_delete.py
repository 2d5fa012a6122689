"""OffsetDelete 0 (KIP-496): offsets of topics that a group does not read any more."""

from typing import Any

from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


def offset_delete(ctx: Context, request: OffsetDeleteRequest, call: Call) -> Any:
    return ctx.groups.ask(request.group_id, request, call, lambda error: OffsetDeleteResponse(error_code=error))
