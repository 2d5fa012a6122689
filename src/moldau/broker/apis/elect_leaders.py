"""ElectLeaders 0–2: preferred leader election or, from 1 on, unclean election, which may lose records.

A null list means every partition that needs it. In an unclean election, partitions with a leader keep it.
"""

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import ControllerResponse, unless_deposed
from moldau.metadata.changes import Change, Decide
from moldau.metadata.elections import preferred_election, unclean_election
from moldau.metadata.image import ClusterImage
from moldau.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1


async def elect_leaders(
    ctx: ControlContext, request: ElectLeadersRequest, call: Call
) -> ControllerResponse[ElectLeadersResponse]:
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=WireError.INVALID_REQUEST, replica_election_results=())
    everything = request.topic_partitions is None
    asked = [(each.topic, index) for each in request.topic_partitions or () for index in each.partitions]
    if everything:
        asked = [(topic.name, state.index) for topic in ctx.image.topics.values() for state in topic.partitions]
    decides = [_deciding(ctx, request.election_type, topic, index) for topic, index in asked]
    decisions = await ctx.controller.submit_each(decides)
    results: dict[str, list[PartitionResult]] = {}
    for (topic, index), decision in zip(asked, decisions, strict=True):
        if everything and isinstance(decision, Refusal) and decision.error is WireError.ELECTION_NOT_NEEDED:
            continue
        results.setdefault(topic, []).append(_result(index, decision))
    response = ElectLeadersResponse(
        replica_election_results=tuple(
            ReplicaElectionResult(topic=topic, partition_result=tuple(rows)) for topic, rows in results.items()
        )
    )
    return unless_deposed(response, decisions)


def _deciding(ctx: ControlContext, kind: int, topic: str, index: int) -> Decide:
    def decide(image: ClusterImage) -> Change | Refusal:
        if kind == PREFERRED:
            return preferred_election(image, topic, index)
        return unclean_election(image, topic, index, ctx.rules(image))

    return decide


def _result(index: int, decision: Change | Refusal) -> PartitionResult:
    if isinstance(decision, Refusal):
        return PartitionResult(partition_id=index, error_code=decision.error, error_message=decision.message)
    return PartitionResult(partition_id=index, error_code=WireError.NONE)
