"""BrokerHeartbeat 0–1: a broker asks the controller to be let go in order; others lead what it led. Between brokers.

That a broker is there is not told this way: its session with the store tells it.
"""

from moldau.base.errors import Refusal, WireError
from moldau.broker.apis.alter_partition import current
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.metadata.changes import BrokerLeaving, Change, ChangeSet, fold
from moldau.metadata.elections import controlled_shutdown_changes
from moldau.metadata.image import ClusterImage
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


async def broker_heartbeat(ctx: ControlContext, request: BrokerHeartbeatRequest, call: Call) -> BrokerHeartbeatResponse:
    refusal = await current(ctx, request.broker_id, request.broker_epoch)
    if refusal:
        return BrokerHeartbeatResponse(error_code=refusal.error)
    if request.want_shut_down:
        outcome = await ctx.controller.submit(lambda image: _let_go(ctx, image, request.broker_id))
        if isinstance(outcome, Refusal):
            return BrokerHeartbeatResponse(error_code=outcome.error, is_fenced=False)
    return BrokerHeartbeatResponse(
        error_code=WireError.NONE,
        is_caught_up=request.current_metadata_offset >= ctx.image.version,
        is_fenced=False,
        should_shut_down=request.want_shut_down,
    )


def _let_go(ctx: ControlContext, image: ClusterImage, broker_id: int) -> Change | Refusal:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return ChangeSet(())
    told: tuple[Change, ...] = () if broker.leaving else (BrokerLeaving(broker_id),)
    after = fold(image, ChangeSet(told))
    return ChangeSet((*told, *controlled_shutdown_changes(after, broker_id, ctx.rules(image))))
