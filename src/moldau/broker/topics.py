"""Creating topics, for CreateTopics and for auto-creation: settings checked, change made, logs open when it returns."""

from collections.abc import Sequence
from random import randrange

from moldau.base.errors import Refusal
from moldau.broker import configs
from moldau.broker.context import Context
from moldau.broker.fresh import fresh_id
from moldau.broker.internal_topics import internal_spec
from moldau.metadata.changes import Change, Decide
from moldau.metadata.image import ClusterImage
from moldau.metadata.topics import TopicDefaults, TopicSpec, create_topic
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

MAX_START = 2**31
CREATE_VERSION = 7
NEEDED_S = 10.0  # how long a client waits for a topic that it needs; it asks again after that


def deciding(ctx: Context, spec: TopicSpec) -> Decide:
    """The decision to create this topic, as the controller takes it."""
    defaults = TopicDefaults(ctx.config.num_partitions, ctx.config.default_replication_factor)
    topic_id, start = fresh_id(), randrange(MAX_START)

    def decide(image: ClusterImage) -> Change | Refusal:
        config = configs.new_topic(list(spec.config.items()), ctx.config.values)
        decision = create_topic(image, spec, topic_id=topic_id, defaults=defaults, start=start)
        return config if isinstance(config, Refusal) and not isinstance(decision, Refusal) else decision

    return decide


def automatic(ctx: Context, name: str) -> TopicSpec:
    """A topic that is created because somebody needs it: the coordinators' have settings of their own."""
    return internal_spec(name, ctx.config, ctx.image) or TopicSpec(name)


async def create_all(ctx: Context, specs: Sequence[TopicSpec]) -> list[Change | Refusal]:
    """Create what can be created, in one change; when this returns, the topics can be written to."""
    decisions = await ctx.controller.submit_each([deciding(ctx, spec) for spec in specs])
    await ctx.replicas.settled()
    return decisions


async def create_needed(ctx: Context, names: Sequence[str]) -> None:
    """Create topics that somebody needs, here or by the controller; what cannot be created is seen by its absence."""
    specs = [automatic(ctx, name) for name in names]
    if ctx.controller_client is None or ctx.controller.leads:
        await create_all(ctx, specs)
        return
    request = CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(
                name=spec.name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication,
                assignments=(),
                configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in spec.config.items()),
            )
            for spec in specs
        ),
        timeout_ms=int(NEEDED_S * 1000),
    )
    await ctx.controller_client.carry_out(request, CREATE_VERSION, NEEDED_S)
    await ctx.replicas.settled()
