"""BrokerHeartbeat 0–1: controlled shutdown; the controller moves leadership to other brokers. Between brokers.

It is no sign of life: that is the broker's session with ZooKeeper.
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
        outcome = await ctx.controller.submit(lambda image: _controlled_shutdown(ctx, image, request.broker_id))
        if isinstance(outcome, Refusal):
            return BrokerHeartbeatResponse(error_code=outcome.error, is_fenced=False)
    return BrokerHeartbeatResponse(
        error_code=WireError.NONE,
        is_caught_up=request.current_metadata_offset >= ctx.image.version,
        is_fenced=False,
        should_shut_down=request.want_shut_down,
    )


def _controlled_shutdown(ctx: ControlContext, image: ClusterImage, broker_id: int) -> Change | Refusal:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return ChangeSet(())
    told: tuple[Change, ...] = () if broker.leaving else (BrokerLeaving(broker_id),)
    after = fold(image, ChangeSet(told))
    return ChangeSet((*told, *controlled_shutdown_changes(after, broker_id, ctx.rules(image))))
