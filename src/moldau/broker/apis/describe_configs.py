"""DescribeConfigs 1–4: configs of topics, groups and this broker, with their sources. 3: types, documentation."""

from moldau.base.errors import Refusal, WireError
from moldau.broker import configs
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.resources import Resource, broker_of, group_of, topic_of
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def describe_configs(ctx: ControlContext, request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=tuple(_describe(ctx, request, resource) for resource in request.resources))


def _describe(
    ctx: ControlContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    entries = _entries(ctx, resource)
    refusal = entries if isinstance(entries, Refusal) else None
    return DescribeConfigsResult(
        error_code=refusal.error if refusal else WireError.NONE,
        error_message=refusal.message if refusal else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=() if isinstance(entries, Refusal) else tuple(_result(request, entry) for entry in entries),
    )


def _entries(ctx: ControlContext, resource: DescribeConfigsResource) -> list[configs.Entry] | Refusal:
    keys = resource.configuration_keys
    match resource.resource_type:
        case Resource.TOPIC:
            topic = topic_of(ctx, resource.resource_name)
            return topic if isinstance(topic, Refusal) else configs.describe_topic(topic.config, ctx.layers(), keys)
        case Resource.BROKER:
            broker = broker_of(ctx, resource.resource_name)
            if isinstance(broker, Refusal):
                return broker
            describe = configs.describe_broker if broker else configs.describe_cluster_defaults
            return describe(ctx.layers(), keys)
        case Resource.GROUP:
            group = group_of(ctx, resource.resource_name)
            return group if isinstance(group, Refusal) else configs.describe_group(group, ctx.layers(), keys)
    return Refusal(WireError.INVALID_REQUEST, f"Resource type {resource.resource_type} has no configs.")


def _result(request: DescribeConfigsRequest, entry: configs.Entry) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in synonyms
        ),
        config_type=entry.kind,
        documentation=entry.documentation if request.include_documentation else None,
    )
