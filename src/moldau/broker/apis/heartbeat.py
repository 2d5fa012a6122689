"""Heartbeat 0–4: a member of a classic group is alive. 3: static members."""

from moldau.base.errors import WireError
from moldau.base.later import NowOrLater
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def heartbeat(ctx: CoordinatorContext, request: HeartbeatRequest, call: Call) -> NowOrLater[HeartbeatResponse]:
    return ctx.groups.ask(request.group_id, request, call, _refused)


def _refused(error: WireError) -> HeartbeatResponse:
    """No error while the group is being loaded: the session timeout restarts after that.

    As in Kafka: clients do not expect COORDINATOR_LOAD_IN_PROGRESS here, and aiokafka's consumers would fail.
    """
    loading = error is WireError.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=WireError.NONE if loading else error)
