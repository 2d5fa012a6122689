"""CreatePartitions 0–3: add partitions to topics. 3: those over the quota of controller mutations are refused."""

from collections import Counter
from random import randrange

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import ControllerResponse, unless_deposed
from moldau.broker.organisations.policy import TopicPolicy
from moldau.broker.quotas import counted
from moldau.broker.topics import MAX_START
from moldau.metadata.changes import Change, Decide, PartitionsAdded, decide_each
from moldau.metadata.image import ClusterImage
from moldau.metadata.topics import add_partitions
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_QUOTA = 3  # the version from which on a topic over the quota is refused (KIP-599)


async def create_partitions(
    ctx: ControlContext, request: CreatePartitionsRequest, call: Call
) -> ControllerResponse[CreatePartitionsResponse]:
    counts = Counter(topic.name for topic in request.topics)
    strict = call.version >= STRICT_QUOTA
    decides = [
        counted(
            _deciding(ctx.topics.policy, topic, twice=counts[topic.name] > 1),
            call.meter,
            _new_partitions,
            strict=strict,
        )
        for topic in request.topics
    ]
    if request.validate_only:
        decisions = decide_each(ctx.image, decides)
    else:
        decisions = await ctx.controller.submit_each(decides)
        await ctx.replicas.settled()
    results = tuple(_result(topic.name, decision) for topic, decision in zip(request.topics, decisions, strict=True))
    return unless_deposed(CreatePartitionsResponse(results=results), decisions)


def _new_partitions(_: ClusterImage, change: Change) -> int:
    assert isinstance(change, PartitionsAdded)
    return len(change.partitions)


def _deciding(policy: TopicPolicy, topic: CreatePartitionsTopic, *, twice: bool) -> Decide:
    start = randrange(MAX_START)
    assignment = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]

    def decide(image: ClusterImage) -> Change | Refusal:
        if twice:
            return Refusal(WireError.INVALID_REQUEST, "Duplicate topic in request.")
        decision = add_partitions(image, topic.name, topic.count, assignment, start=start)
        if isinstance(decision, Refusal):
            return decision
        return policy.growing(image, topic.name, len(decision.partitions)) or decision

    return decide


def _result(name: str, decision: Change | Refusal) -> CreatePartitionsTopicResult:
    if isinstance(decision, Refusal):
        return CreatePartitionsTopicResult(name=name, error_code=decision.error, error_message=decision.message)
    return CreatePartitionsTopicResult(name=name, error_code=WireError.NONE)
