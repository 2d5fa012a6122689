"""SyncGroup 0–5: the leader brings the assignment, each member gets its part. 3: static members. 5: the protocol."""

from moldau.base.errors import WireError
from moldau.base.later import NowOrLater
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync_group(ctx: CoordinatorContext, request: SyncGroupRequest, call: Call) -> NowOrLater[SyncGroupResponse]:
    return ctx.groups.ask(request.group_id, request, call, _refused)


def _refused(error: WireError) -> SyncGroupResponse:
    """A rebalance that was under way is lost with its coordinator: members have to join again.

    Kafka said so as well, before 4.0. Clients do not expect to hear of the loading here, and Java's gives up.
    """
    loading = error is WireError.COORDINATOR_LOAD_IN_PROGRESS
    return SyncGroupResponse(error_code=WireError.REBALANCE_IN_PROGRESS if loading else error)
