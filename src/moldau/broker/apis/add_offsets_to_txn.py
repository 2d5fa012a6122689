"""AddOffsetsToTxn 0–4: a transaction will commit offsets of a group, so the group's partition joins it.

2: PRODUCER_FENCED. Clients of transaction version 2 do not send it: TxnOffsetCommit adds the partition (KIP-890).
"""

from collections.abc import Awaitable

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.base.later import NowOrLater, chain
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.broker.internal_topics import OFFSETS
from moldau.broker.waiting import awaited
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_SINCE = 2  # the version that first knew PRODUCER_FENCED
OLD_PROTOCOL = 0  # the transaction version of clients that send this request

Answer = NowOrLater[AddOffsetsToTxnResponse] | Awaitable[AddOffsetsToTxnResponse]


def add_offsets_to_txn(ctx: CoordinatorContext, request: AddOffsetsToTxnRequest, call: Call) -> Answer:
    index = ctx.groups.partition_of(request.group_id)
    return _create(ctx, request, call) if index is None else _add(ctx, request, call, index)


def _add(
    ctx: CoordinatorContext, request: AddOffsetsToTxnRequest, call: Call, index: int
) -> NowOrLater[AddOffsetsToTxnResponse]:
    partitions = [TopicPartition(OFFSETS, index)]
    producer = request.transactional_id, request.producer_id, request.producer_epoch
    error = ctx.transactions.add(*producer, partitions, OLD_PROTOCOL)
    return chain(error, lambda found: _answer(found, call.version))


async def _create(ctx: CoordinatorContext, request: AddOffsetsToTxnRequest, call: Call) -> AddOffsetsToTxnResponse:
    """Create the offsets topic first: no group has committed an offset yet."""
    await ctx.topics.create_missing([OFFSETS])
    index = ctx.groups.partition_of(request.group_id)
    if index is None:
        return _answer(WireError.COORDINATOR_NOT_AVAILABLE, call.version)
    return await awaited(_add(ctx, request, call, index))


def _answer(error: WireError, version: int) -> AddOffsetsToTxnResponse:
    fenced = error is WireError.PRODUCER_FENCED and version < FENCED_SINCE
    return AddOffsetsToTxnResponse(error_code=WireError.INVALID_PRODUCER_EPOCH if fenced else error)
