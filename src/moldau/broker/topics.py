"""Creating topics, for CreateTopics and for auto-creation: settings checked, change made, logs open when it returns."""

from collections.abc import Sequence
from random import randrange

from moldau.base.errors import Refusal
from moldau.broker import configs
from moldau.broker.context import Context
from moldau.broker.fresh import fresh_id
from moldau.broker.internal_topics import internal_spec
from moldau.metadata.changes import Decide, Decision
from moldau.metadata.image import ClusterImage
from moldau.metadata.topics import TopicDefaults, TopicSpec, create_topic

MAX_START = 2**31


def deciding(ctx: Context, spec: TopicSpec) -> Decide:
    """The decision to create this topic, as the controller takes it."""
    defaults = TopicDefaults(ctx.config.num_partitions, ctx.config.default_replication_factor)
    topic_id, start = fresh_id(), randrange(MAX_START)

    def decide(image: ClusterImage) -> Decision:
        config = configs.new_topic(list(spec.config.items()), ctx.config.values)
        decision = create_topic(image, spec, topic_id=topic_id, defaults=defaults, start=start)
        return config if isinstance(config, Refusal) and not isinstance(decision, Refusal) else decision

    return decide


def automatic(ctx: Context, name: str) -> TopicSpec:
    """A topic that is created because somebody needs it: the coordinators' have settings of their own."""
    return internal_spec(name, ctx.config, ctx.image) or TopicSpec(name)


async def create_all(ctx: Context, specs: Sequence[TopicSpec]) -> list[Decision]:
    """Create what can be created, in one change; when this returns, the topics can be written to."""
    decisions = await ctx.controller.submit_each([deciding(ctx, spec) for spec in specs])
    await ctx.replicas.settled()
    return decisions
