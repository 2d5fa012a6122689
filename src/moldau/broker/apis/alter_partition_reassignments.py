"""AlterPartitionReassignments 0–1: reassign the replicas of partitions, or cancel a reassignment (KIP-455).

1: may forbid another replication factor (KIP-860). Answered when the reassignment has begun, not when it is done.
"""

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import ControllerResponse, unless_deposed
from moldau.metadata.changes import Change, Decide
from moldau.metadata.image import ClusterImage
from moldau.metadata.reassignment import cancel, reassign
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def alter_partition_reassignments(
    ctx: ControlContext, request: AlterPartitionReassignmentsRequest, call: Call
) -> ControllerResponse[AlterPartitionReassignmentsResponse]:
    decides = [
        _deciding(ctx, topic.name, each, request.allow_replication_factor_change)
        for topic in request.topics
        for each in topic.partitions
    ]
    decisions = await ctx.controller.submit_each(decides)
    left = iter(decisions)
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(_result(each.partition_index, next(left)) for each in topic.partitions),
            )
            for topic in request.topics
        ),
    )
    return unless_deposed(response, decisions)


def _deciding(ctx: ControlContext, topic: str, asked: ReassignablePartition, may_change_factor: bool) -> Decide:
    def decide(image: ClusterImage) -> Change | Refusal:
        if asked.replicas is not None:
            return reassign(image, topic, asked.partition_index, asked.replicas, may_change_factor=may_change_factor)
        found = image.topics.get(topic)
        unclean = found is not None and ctx.config.topic_config(found.config).unclean_leader_election_enable
        return cancel(image, topic, asked.partition_index, unclean=unclean)

    return decide


def _result(index: int, decision: Change | Refusal) -> ReassignablePartitionResponse:
    if isinstance(decision, Refusal):
        return ReassignablePartitionResponse(
            partition_index=index, error_code=decision.error, error_message=decision.message or None
        )
    return ReassignablePartitionResponse(partition_index=index, error_code=WireError.NONE, error_message=None)
