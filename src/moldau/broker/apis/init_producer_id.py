"""InitProducerId 0–5: an id for an idempotent producer, from persisted blocks, never given twice.

3: a producer may bring its id and epoch (only transactional ones make use of it). Transactional ids have no
coordinator yet, and are told so.
"""

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER = -1  # as id and as epoch


async def init_producer_id(ctx: Context, request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        code = WireError.COORDINATOR_NOT_AVAILABLE if request.transactional_id else WireError.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_PRODUCER):
        return InitProducerIdResponse(error_code=WireError.INVALID_REQUEST, producer_epoch=-1)
    producer_id = await ctx.producer_ids.next()
    if isinstance(producer_id, Refusal):
        return InitProducerIdResponse(error_code=producer_id.error, producer_epoch=-1)
    return InitProducerIdResponse(error_code=WireError.NONE, producer_id=producer_id, producer_epoch=0)
