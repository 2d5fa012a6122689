"""ConsumerGroupHeartbeat 0–1: the consumer protocol (KIP-848). 1: regular expressions, member ids by clients."""

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
