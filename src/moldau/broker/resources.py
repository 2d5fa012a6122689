"""Config resources: topics, brokers and groups, as DescribeConfigs and AlterConfigs name them."""

from collections.abc import Mapping
from enum import IntEnum

from moldau.base.errors import Refusal, WireError
from moldau.broker.context import ControlContext
from moldau.metadata.image import Topic
from moldau.metadata.topics import name_problem, unknown_topic


class Resource(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8  # not supported: log levels are set at the start
    CLIENT_METRICS = 16  # KIP-714; not supported
    GROUP = 32  # KIP-848


def topic_of(ctx: ControlContext, name: str) -> Topic | Refusal:
    problem = name_problem(name)
    if problem:
        return Refusal(WireError.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    return ctx.image.topics.get(name) or unknown_topic()


def broker_of(ctx: ControlContext, name: str) -> bool | Refusal:
    """True: this broker. False: the cluster-wide defaults, whose name is empty."""
    if not name:
        return False
    if name != str(ctx.config.node_id):
        ours = ctx.config.node_id
        return Refusal(
            WireError.INVALID_REQUEST, f"Unexpected broker id, expected {ours} or empty string, but received {name}"
        )
    return True


def group_of(ctx: ControlContext, name: str) -> Mapping[str, str] | Refusal:
    """The overrides of a group, whether it exists or not. The defaults are broker settings."""
    if not name:
        return Refusal(WireError.INVALID_REQUEST, "Group name must not be empty")
    return ctx.image.group_configs.get(name, {})
