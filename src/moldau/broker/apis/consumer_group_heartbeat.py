"""ConsumerGroupHeartbeat 0–1: all that a member of the consumer protocol says (KIP-848). 1: patterns, own ids."""

from typing import Any

from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


def consumer_group_heartbeat(ctx: Context, request: ConsumerGroupHeartbeatRequest, call: Call) -> Any:
    return ctx.groups.ask(
        request.group_id,
        request,
        call,
        lambda error: ConsumerGroupHeartbeatResponse(error_code=error, error_message=error.doc),
    )
