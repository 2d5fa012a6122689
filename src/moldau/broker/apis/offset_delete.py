"""OffsetDelete 0 (KIP-496): delete offsets of topics to which a group is not subscribed."""

from moldau.base.later import NowOrLater
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


def offset_delete(
    ctx: CoordinatorContext, request: OffsetDeleteRequest, call: Call
) -> NowOrLater[OffsetDeleteResponse]:
    return ctx.groups.ask(request.group_id, request, call, lambda error: OffsetDeleteResponse(error_code=error))
