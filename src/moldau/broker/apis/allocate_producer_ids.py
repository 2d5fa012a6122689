"""AllocateProducerIds 0: a block of producer ids for a broker. Between brokers."""

from moldau.base.errors import Refusal, WireError
from moldau.broker.apis.alter_partition import current
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


async def allocate_producer_ids(
    ctx: ControlContext, request: AllocateProducerIdsRequest, call: Call
) -> AllocateProducerIdsResponse:
    refusal = await current(ctx, request.broker_id, request.broker_epoch)
    if refusal:
        return AllocateProducerIdsResponse(error_code=refusal.error)
    block = await ctx.controller.allocate_producer_ids(request.broker_id)
    if isinstance(block, Refusal):
        return AllocateProducerIdsResponse(error_code=block.error)
    return AllocateProducerIdsResponse(
        error_code=WireError.NONE, producer_id_start=block.start, producer_id_len=len(block)
    )
