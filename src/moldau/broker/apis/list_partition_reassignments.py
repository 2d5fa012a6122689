"""ListPartitionReassignments 0: the partitions that are being reassigned, of all topics or of some (KIP-455)."""

from collections.abc import Iterable

from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.metadata.image import PartitionState
from moldau.metadata.reassignment import reassigning
from moldau.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def list_partition_reassignments(
    ctx: ControlContext, request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    image = ctx.image
    wanted: list[tuple[str, Iterable[PartitionState | None]]]
    if request.topics is None:
        wanted = [(name, image.topics[name].partitions) for name in sorted(image.topics)]
    else:
        wanted = [
            (each.name, [image.partition(each.name, index) for index in each.partition_indexes])
            for each in request.topics
        ]
    found = [(name, [each for each in states if each is not None and reassigning(each)]) for name, states in wanted]
    return ListPartitionReassignmentsResponse(
        topics=tuple(
            OngoingTopicReassignment(name=name, partitions=tuple(map(_ongoing, states)))
            for name, states in found
            if states
        )
    )


def _ongoing(state: PartitionState) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=state.index,
        replicas=state.replicas,
        adding_replicas=state.adding,
        removing_replicas=state.removing,
    )
