"""AlterPartition 2–3: leaders propose a new ISR to the controller. Between brokers. 3: broker epochs of the ISR."""

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import Epoch
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.metadata.alter_partition import UNKNOWN_EPOCH, ProposedIsr, alter_partition, check_broker_epoch
from moldau.metadata.changes import Change, Decide
from moldau.metadata.image import ClusterImage
from moldau.store.port import StoreError
from moldau.wire.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
)


async def alter_partitions(ctx: ControlContext, request: AlterPartitionRequest, call: Call) -> AlterPartitionResponse:
    refusal = await current(ctx, request.broker_id, request.broker_epoch)
    if refusal:
        return AlterPartitionResponse(error_code=refusal.error)
    asked = [(topic, row) for topic in request.topics for row in topic.partitions]
    decisions = await ctx.controller.submit_each([_deciding(ctx, request, topic, row) for topic, row in asked])
    outcomes = iter(decisions)
    return AlterPartitionResponse(
        error_code=WireError.NONE,
        topics=tuple(
            AlteredTopic(
                topic_id=topic.topic_id,
                partitions=tuple(_result(ctx, topic, row, next(outcomes)) for row in topic.partitions),
            )
            for topic in request.topics
        ),
    )


async def current(ctx: ControlContext, broker_id: int, broker_epoch: Epoch) -> Refusal | None:
    """Refuse a stale or misdirected request of a broker. One that just registered may be ahead of this image."""
    if not ctx.controller.leads:
        return Refusal(WireError.NOT_CONTROLLER, "This broker is not the controller.")
    if check_broker_epoch(ctx.image, broker_id, broker_epoch):
        try:
            await ctx.controller.feed.catch_up(sync=True)
        except StoreError as problem:
            return Refusal(WireError.NOT_CONTROLLER, f"The controller cannot reach the metadata store: {problem}")
    return check_broker_epoch(ctx.image, broker_id, broker_epoch)


def _deciding(
    ctx: ControlContext, request: AlterPartitionRequest, topic: AlterPartitionTopic, row: AlterPartitionData
) -> Decide:
    members = {each.broker_id: each.broker_epoch for each in row.new_isr_with_epochs}
    members = members or dict.fromkeys(row.new_isr, UNKNOWN_EPOCH)
    asked = ProposedIsr(topic.topic_id, row.partition_index, row.leader_epoch, row.partition_epoch, members)

    def decide(image: ClusterImage) -> Change | Refusal:
        return alter_partition(image, request.broker_id, request.broker_epoch, asked, ctx.rules(image))

    return decide


def _result(
    ctx: ControlContext, topic: AlterPartitionTopic, row: AlterPartitionData, decision: Change | Refusal
) -> AlteredPartition:
    if isinstance(decision, Refusal):
        return AlteredPartition(partition_index=row.partition_index, error_code=decision.error)
    found = ctx.image.topics_by_id.get(topic.topic_id)
    state = ctx.image.partition(found.name, row.partition_index) if found else None
    if state is None:  # deleted a moment later
        return AlteredPartition(partition_index=row.partition_index, error_code=WireError.UNKNOWN_TOPIC_OR_PARTITION)
    return AlteredPartition(
        partition_index=row.partition_index,
        error_code=WireError.NONE,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=state.partition_epoch,
    )
