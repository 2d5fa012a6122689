"""DeleteTopics 1–6: by name, and from 6 on by id. The files are deleted after file.delete.delay.ms.

5: topics over the quota of controller mutations are refused.
"""

from collections import Counter
from uuid import UUID

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import ControllerResponse, unless_deposed
from moldau.broker.quotas import counted
from moldau.metadata.changes import Change, Decide, TopicDeleted
from moldau.metadata.image import ClusterImage
from moldau.metadata.topics import delete_topic
from moldau.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from moldau.wire.primitives import ZERO_UUID

STRICT_QUOTA = 5  # the version from which on a topic over the quota is refused (KIP-599)


async def delete_topics(
    ctx: ControlContext, request: DeleteTopicsRequest, call: Call
) -> ControllerResponse[DeleteTopicsResponse]:
    counts = Counter(request.topics)
    ids: dict[str, UUID] = {}
    strict = call.version >= STRICT_QUOTA
    decides = [
        counted(_deciding(ctx, topic, counts[topic] > 1, ids), call.meter, _partitions, strict=strict)
        for topic in request.topics
    ]
    decisions = await ctx.controller.submit_each(decides)
    await ctx.replicas.settled()
    results = tuple(_result(topic, decision, ids) for topic, decision in zip(request.topics, decisions, strict=True))
    return unless_deposed(DeleteTopicsResponse(responses=results), decisions)


def _partitions(image: ClusterImage, change: Change) -> int:
    assert isinstance(change, TopicDeleted)
    return len(image.topics[change.topic].partitions)


def _deciding(ctx: ControlContext, topic: DeleteTopicState, twice: bool, ids: dict[str, UUID]) -> Decide:
    """Notes the topic's id in `ids`: the image no longer has it afterwards."""
    by_id = topic.topic_id != ZERO_UUID

    def decide(image: ClusterImage) -> Change | Refusal:
        if not ctx.config.delete_topic_enable:
            return Refusal(WireError.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        if topic.name is None and not by_id:
            return Refusal(WireError.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if topic.name is not None and by_id:
            return Refusal(WireError.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if twice:
            return Refusal(WireError.INVALID_REQUEST, "Duplicate topic in request.")
        decision = delete_topic(image, name=topic.name, topic_id=topic.topic_id if by_id else None)
        if isinstance(decision, TopicDeleted):
            ids[decision.topic] = image.topics[decision.topic].id
        return decision

    return decide


def _result(topic: DeleteTopicState, decision: Change | Refusal, ids: dict[str, UUID]) -> DeletableTopicResult:
    if isinstance(decision, Refusal):
        return DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=decision.error, error_message=decision.message
        )
    assert isinstance(decision, TopicDeleted)
    return DeletableTopicResult(name=decision.topic, topic_id=ids[decision.topic], error_code=WireError.NONE)
