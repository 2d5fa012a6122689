"""CreateTopics 2–7: each topic succeeds or fails by itself, all in one change.

4: partitions and replication factor may be -1, the broker's default. 5: the topic's configs in the response.
6: topics over the quota of controller mutations are refused. 7: its id.
"""

from collections import Counter

from moldau.base.errors import Refusal, WireError
from moldau.broker import configs
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import ControllerResponse, unless_deposed
from moldau.broker.quotas import counted
from moldau.metadata.changes import Change, TopicCreated, decide_each
from moldau.metadata.image import ClusterImage
from moldau.metadata.topics import TopicSpec
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.primitives import ZERO_UUID

STRICT_QUOTA = 6  # the version from which on a topic over the quota is refused (KIP-599)


async def create_topics(
    ctx: ControlContext, request: CreateTopicsRequest, call: Call
) -> ControllerResponse[CreateTopicsResponse]:
    twice = {name for name, count in Counter(topic.name for topic in request.topics).items() if count > 1}
    asked = [topic for topic in request.topics if topic.name not in twice]
    refused = {topic.name: refusal for topic in asked if (refusal := _null_configs(topic))}
    specs = [_spec(topic) for topic in asked if topic.name not in refused]
    decides = [
        counted(ctx.topics.deciding(spec), call.meter, _new_partitions, strict=call.version >= STRICT_QUOTA)
        for spec in specs
    ]
    decisions = decide_each(ctx.image, decides) if request.validate_only else await ctx.topics.submit(decides)
    outcomes: dict[str, Change | Refusal] = {name: _named_twice() for name in twice}
    outcomes.update(refused)
    outcomes |= {spec.name: decision for spec, decision in zip(specs, decisions, strict=True)}
    names = dict.fromkeys(topic.name for topic in request.topics)
    results = tuple(_result(ctx, name, outcomes[name], request.validate_only) for name in names)
    return unless_deposed(CreateTopicsResponse(topics=results), decisions)


def _new_partitions(_: ClusterImage, change: Change) -> int:
    assert isinstance(change, TopicCreated)
    return len(change.partitions)


def _named_twice() -> Refusal:
    return Refusal(WireError.INVALID_REQUEST, "Duplicate topic name.")


def _null_configs(topic: CreatableTopic) -> Refusal | None:
    if all(config.value is not None for config in topic.configs):
        return None
    outcome = configs.new_topic([(config.name, config.value) for config in topic.configs], {})
    return outcome if isinstance(outcome, Refusal) else None


def _spec(topic: CreatableTopic) -> TopicSpec:
    return TopicSpec(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(each.partition_index, each.broker_ids) for each in topic.assignments],
        {config.name: config.value for config in topic.configs if config.value is not None},
    )


def _result(ctx: ControlContext, name: str, outcome: Change | Refusal, dry: bool) -> CreatableTopicResult:
    if isinstance(outcome, Refusal):
        return CreatableTopicResult(name=name, error_code=outcome.error, error_message=outcome.message, configs=None)
    assert isinstance(outcome, TopicCreated)
    entries = configs.describe_topic(outcome.config, ctx.layers())
    return CreatableTopicResult(
        name=name,
        topic_id=ZERO_UUID if dry else outcome.topic_id,
        error_code=WireError.NONE,
        error_message=None,
        num_partitions=len(outcome.partitions),
        replication_factor=len(outcome.partitions[0].replicas),
        configs=tuple(
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in entries
        ),
    )
