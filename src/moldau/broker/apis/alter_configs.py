"""AlterConfigs 0–2 (replaces all settings of a resource) and IncrementalAlterConfigs 0–1 (changes single ones)."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.broker import configs
from moldau.broker.call import Call
from moldau.broker.configs import ConfigChange, Layers, Op
from moldau.broker.context import ControlContext
from moldau.broker.controller import ControllerResponse, unless_deposed
from moldau.broker.resources import Resource, group_of, topic_of
from moldau.metadata.changes import BrokerConfigured, Change, Decide, GroupConfigured, TopicConfigured, decide_each
from moldau.metadata.image import CLUSTER_DEFAULT, ClusterImage
from moldau.security.acls import CLUSTER_NAME, Operation, ResourceType
from moldau.wire.messages import alter_configs as whole
from moldau.wire.messages import incremental_alter_configs as incremental


class Alteration(NamedTuple):
    kind: int
    name: str
    changes: list[ConfigChange]
    replace: bool  # settings that are not named go back to their defaults


async def alter_configs(
    ctx: ControlContext, request: whole.AlterConfigsRequest, call: Call
) -> ControllerResponse[whole.AlterConfigsResponse]:
    asked = [_of_all(each) for each in request.resources]
    decisions = await _alter(ctx, asked, request.validate_only)
    return unless_deposed(_response(asked, decisions), decisions)


async def incremental_alter_configs(
    ctx: ControlContext, request: incremental.IncrementalAlterConfigsRequest, call: Call
) -> ControllerResponse[incremental.IncrementalAlterConfigsResponse]:
    asked = [_of_some(each) for each in request.resources]
    decisions = await _alter(ctx, asked, request.validate_only)
    return unless_deposed(_incremental_response(asked, decisions), decisions)


# ── before the controller is asked ──


def refuse_all(
    ctx: ControlContext, request: whole.AlterConfigsRequest, call: Call
) -> whole.AlterConfigsResponse | None:
    asked = [_of_all(each) for each in request.resources]
    problem = _own_problem(ctx, asked, call)
    return None if problem is None else _response(asked, [problem])


def refuse_some(
    ctx: ControlContext, request: incremental.IncrementalAlterConfigsRequest, call: Call
) -> incremental.IncrementalAlterConfigsResponse | None:
    asked = [_of_some(each) for each in request.resources]
    problem = _own_problem(ctx, asked, call)
    return None if problem is None else _incremental_response(asked, [problem])


def _own_problem(ctx: ControlContext, asked: Sequence[Alteration], call: Call) -> Refusal | None:
    """Why this broker cannot use a certificate: the controller cannot read its files, and would take any.

    Clients name a broker alone, in a request to itself. The controller looks at what else there is in others.
    """
    if len(asked) != 1 or (asked[0].kind, asked[0].name) != (Resource.BROKER, str(ctx.config.node_id)):
        return None
    rights = call.rights(ctx.authorizer)
    if rights is not None and not rights.may(
        Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME, "IncrementalAlterConfigs", log=False
    ):
        return None  # the controller refuses it; what this broker's files are like is not for everyone
    decision = _alter_broker(ctx, ctx.image, asked[0])
    return decision if isinstance(decision, Refusal) and decision.error is WireError.INVALID_CONFIG else None


# ── rows ──


def _of_all(row: whole.AlterConfigsResource) -> Alteration:
    changes = [ConfigChange(config.name, Op.SET, config.value) for config in row.configs]
    return Alteration(row.resource_type, row.resource_name, changes, replace=True)


def _of_some(row: incremental.AlterConfigsResource) -> Alteration:
    changes = [ConfigChange(config.name, config.config_operation, config.value) for config in row.configs]
    return Alteration(row.resource_type, row.resource_name, changes, replace=False)


def _response(asked: Sequence[Alteration], decisions: Sequence[Change | Refusal]) -> whole.AlterConfigsResponse:
    return whole.AlterConfigsResponse(
        responses=tuple(
            whole.AlterConfigsResourceResponse(
                error_code=error, error_message=message, resource_type=each.kind, resource_name=each.name
            )
            for each, (error, message) in zip(asked, map(_outcome, decisions), strict=True)
        )
    )


def _incremental_response(
    asked: Sequence[Alteration], decisions: Sequence[Change | Refusal]
) -> incremental.IncrementalAlterConfigsResponse:
    return incremental.IncrementalAlterConfigsResponse(
        responses=tuple(
            incremental.AlterConfigsResourceResponse(
                error_code=error, error_message=message, resource_type=each.kind, resource_name=each.name
            )
            for each, (error, message) in zip(asked, map(_outcome, decisions), strict=True)
        )
    )


async def _alter(ctx: ControlContext, asked: Sequence[Alteration], dry: bool) -> list[Change | Refusal]:
    counts = Counter((each.kind, each.name) for each in asked)
    decides = [_deciding(ctx, each, twice=counts[each.kind, each.name] > 1) for each in asked]
    return decide_each(ctx.image, decides) if dry else await ctx.controller.submit_each(decides)


def _outcome(decision: Change | Refusal) -> tuple[WireError, str | None]:
    return (decision.error, decision.message) if isinstance(decision, Refusal) else (WireError.NONE, None)


def _deciding(ctx: ControlContext, asked: Alteration, *, twice: bool) -> Decide:
    def decide(image: ClusterImage) -> Change | Refusal:
        if twice:
            return Refusal(WireError.INVALID_REQUEST, "Each resource must appear at most once.")
        match asked.kind:
            case Resource.TOPIC:
                return _alter_topic(ctx, image, asked)
            case Resource.BROKER:
                return _alter_broker(ctx, image, asked)
            case Resource.GROUP:
                return _alter_group(ctx, asked)
        return Refusal(WireError.INVALID_REQUEST, f"Resource type {asked.kind} has no configs.")

    return decide


def _alter_topic(ctx: ControlContext, image: ClusterImage, asked: Alteration) -> Change | Refusal:
    topic = topic_of(ctx, asked.name)
    if isinstance(topic, Refusal):
        return topic
    current = {} if asked.replace else topic.config
    config = configs.alter_topic(current, asked.changes, ctx.config.values)
    if isinstance(config, Refusal):
        return config
    return ctx.topics.policy.configuring(image, asked.name, config) or TopicConfigured(asked.name, config)


def _alter_broker(ctx: ControlContext, image: ClusterImage, asked: Alteration) -> Change | Refusal:
    """Dynamic settings of any broker, or of all: each broker applies its own from the image."""
    if asked.name and asked.name not in map(str, image.brokers):
        return Refusal(WireError.INVALID_REQUEST, f"No broker with id {asked.name} is registered.")
    secrets = configs.secrets_in(asked.changes)
    if secrets and ctx.config.zookeeper_connect:  # Kafka on ZooKeeper refuses it without password.encoder.secret
        words = f"Cannot update these configs dynamically, ZooKeeper would hold them unencrypted: {', '.join(secrets)}"
        return Refusal(WireError.INVALID_REQUEST, f"{words}; set them in the properties of the broker and restart it")
    known = image.broker_configs
    layers = Layers(known.get(asked.name, {}) if asked.name else {}, known.get(CLUSTER_DEFAULT, {}), ctx.static)
    if asked.replace:
        layers = layers._replace(broker={}) if asked.name else layers._replace(cluster={})
    config = configs.alter_broker(layers, asked.changes, per_broker=bool(asked.name))
    if asked.name == str(ctx.config.node_id) and not isinstance(config, Refusal):
        # Only the broker itself can read its files. Another one that learns of it logs it and keeps its certificate.
        problem = ctx.tls_problem(configs.effective(layers._replace(broker=config)))
        if problem:
            return Refusal(WireError.INVALID_CONFIG, problem)
    return config if isinstance(config, Refusal) else BrokerConfigured(asked.name or CLUSTER_DEFAULT, config)


def _alter_group(ctx: ControlContext, asked: Alteration) -> Change | Refusal:
    group = group_of(ctx, asked.name)
    if isinstance(group, Refusal):
        return group
    config = configs.alter_group({} if asked.replace else group, asked.changes, ctx.config.values)
    return config if isinstance(config, Refusal) else GroupConfigured(asked.name, config)
