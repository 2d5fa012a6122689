"""ConsumerGroupHeartbeat 0–1: all that a member of the consumer protocol says (KIP-848). 1: patterns, own ids."""

from moldau.base.later import NowOrLater
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


def consumer_group_heartbeat(
    ctx: CoordinatorContext, request: ConsumerGroupHeartbeatRequest, call: Call
) -> NowOrLater[ConsumerGroupHeartbeatResponse]:
    return ctx.groups.ask(
        request.group_id,
        request,
        call,
        lambda error: ConsumerGroupHeartbeatResponse(error_code=error, error_message=error.doc),
    )
