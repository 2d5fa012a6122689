"""SyncGroup 0–5: the leader sends the assignment, each member receives its part. 3: static members. 5: the protocol."""

from moldau.base.errors import WireError
from moldau.base.later import NowOrLater
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync_group(ctx: CoordinatorContext, request: SyncGroupRequest, call: Call) -> NowOrLater[SyncGroupResponse]:
    return ctx.groups.ask(request.group_id, request, call, _refused)


def _refused(error: WireError) -> SyncGroupResponse:
    """REBALANCE_IN_PROGRESS while the group is being loaded: the rebalance is lost, and members rejoin.

    As Kafka before 4.0. Clients do not expect COORDINATOR_LOAD_IN_PROGRESS here, and Java's consumer fails.
    """
    loading = error is WireError.COORDINATOR_LOAD_IN_PROGRESS
    return SyncGroupResponse(error_code=WireError.REBALANCE_IN_PROGRESS if loading else error)
