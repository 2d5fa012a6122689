"""TxnOffsetCommit 0–5: offsets, visible when their transaction commits. 2: leader epochs. 3: member and generation.

4: TRANSACTION_ABORTABLE. 5: adds the group's partition to the transaction (KIP-890).
"""

from collections.abc import Mapping

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.base.later import NowOrLater, chain
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.broker.internal_topics import OFFSETS
from moldau.groups.offsets import commit as offsets_commit
from moldau.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

LOADING_SINCE = 2  # from this version on clients know COORDINATOR_LOAD_IN_PROGRESS
ABORTABLE_SINCE = 4
ADDS_SINCE = 5
NO_SEQUENCE = -1  # batches of the group coordinator have none


def txn_offset_commit(
    ctx: CoordinatorContext, request: TxnOffsetCommitRequest, call: Call
) -> NowOrLater[TxnOffsetCommitResponse]:
    topics = ctx.groups.env().topics

    def refused(error: WireError) -> TxnOffsetCommitResponse:
        if error is WireError.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOADING_SINCE:
            error = WireError.COORDINATOR_NOT_AVAILABLE
        return offsets_commit.refuse_in_transaction(request, error, topics)

    def commit(error: WireError) -> NowOrLater[TxnOffsetCommitResponse]:
        if error is not WireError.NONE:
            return refused(error)
        return ctx.groups.ask(request.group_id, request, call, refused)

    if request.group_id and offsets_commit.has_existing_partition(request, topics):
        return chain(_admitted(ctx, request, call.version), commit)
    return commit(WireError.NONE)


def _admitted(ctx: CoordinatorContext, request: TxnOffsetCommitRequest, version: int) -> NowOrLater[WireError]:
    """Whether the producer's open transaction includes the group's offsets: an error, now or later."""
    adds = version >= ADDS_SINCE
    if not adds and not ctx.config.transaction_partition_verification_enable:
        return WireError.NONE
    index = ctx.groups.partition_of(request.group_id)
    if index is None:
        return WireError.NOT_COORDINATOR
    shard = ctx.groups.shard_at(index)
    if isinstance(shard, WireError):
        return shard
    partition, producer_id, epoch = shard.partition, request.producer_id, request.producer_epoch
    if partition.log.producers.open_in(producer_id, epoch):
        return WireError.NONE
    asked = partition.log.producers.verify(producer_id, epoch, NO_SEQUENCE, adds, ctx.now())

    key = TopicPartition(OFFSETS, index)

    def judged(errors: Mapping[TopicPartition, WireError]) -> WireError:
        error = errors[key]
        if error is not WireError.NONE:
            return _for_producer(error, version)
        # The verification may come late, when a marker has already ended its transaction.
        producers = partition.log.producers
        still = producers.open_in(producer_id, epoch) or producers.holds(producer_id, asked)
        return WireError.NONE if still else WireError.INVALID_TXN_STATE

    return chain(ctx.transactions.add_or_verify(request.transactional_id, producer_id, epoch, [key], adds), judged)


def _for_producer(error: WireError, version: int) -> WireError:
    """The transaction coordinator's error in terms that a request of this version knows."""
    if error is WireError.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return WireError.INVALID_TXN_STATE
    known = {
        WireError.PRODUCER_FENCED: WireError.INVALID_PRODUCER_EPOCH,
        WireError.NETWORK_EXCEPTION: WireError.COORDINATOR_LOAD_IN_PROGRESS,
    }
    return known.get(error, error)
