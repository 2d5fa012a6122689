"""InitProducerId 0–5: an id and epoch for a producer. Ids come from persisted blocks and are never reused.

3: a producer may bump the epoch of the id it has (KIP-360). 4: PRODUCER_FENCED. With a transactional id the transaction
coordinator answers, without one any broker.
"""

from collections.abc import Awaitable

from moldau.base.errors import Refusal, WireError
from moldau.base.later import NowOrLater
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER = -1  # as id and as epoch

Answer = NowOrLater[InitProducerIdResponse] | Awaitable[InitProducerIdResponse]


def init_producer_id(ctx: CoordinatorContext, request: InitProducerIdRequest, call: Call) -> Answer:
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_PRODUCER):
        return _refuse(WireError.INVALID_REQUEST)
    if request.transactional_id is None:
        return _new_id(ctx)
    if not request.transactional_id:
        return _refuse(WireError.INVALID_REQUEST)
    return ctx.transactions.init_producer_id(request.transactional_id, request, call, _refuse)


async def _new_id(ctx: CoordinatorContext) -> InitProducerIdResponse:
    producer_id = await ctx.producer_ids.next()
    if isinstance(producer_id, Refusal):
        return _refuse(producer_id.error)
    return InitProducerIdResponse(error_code=WireError.NONE, producer_id=producer_id, producer_epoch=0)


def _refuse(error: WireError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=NO_PRODUCER)
