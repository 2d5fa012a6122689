"""Metadata 0–13: brokers, and topics by name or by id; auto-creation of missing topics.

0: an empty list means all topics; 1+: null does. 4: the client may forbid auto-creation. 8: authorized operations.
10: topic ids in the response. 12: topics requested by id. 13: an error for the whole response.

A response is encoded once and cached until the image changes or a disk fails (see `broker.metadata_cache`).
"""

from collections.abc import Coroutine
from uuid import UUID

from moldau.base.errors import WireError
from moldau.broker.availability import seen
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.metadata.image import Topic
from moldau.metadata.topics import name_problem
from moldau.wire.codec import encode
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.wire.primitives import ZERO_UUID

NAMES_ONLY = (10, 11)  # versions that have topic ids in the request and do not support them


def metadata(ctx: ControlContext, request: MetadataRequest, call: Call) -> bytes | Coroutine[object, object, bytes]:
    if request.topics and request.allow_auto_topic_creation and ctx.config.auto_create_topics_enable:
        missing = {each.name: None for each in request.topics if each.name and each.name not in ctx.image.topics}
        if missing:
            return _create(ctx, list(missing), request, call)
    return _answer(ctx, request, call)


async def _create(ctx: ControlContext, names: list[str], request: MetadataRequest, call: Call) -> bytes:
    """Create the missing topics; those that could not be created are missing in the image."""
    await ctx.topics.create_missing(names)
    return _answer(ctx, request, call)


def _answer(ctx: ControlContext, request: MetadataRequest, call: Call) -> bytes:
    image = ctx.image
    if call.version in NAMES_ONLY and any(_by_id(each) for each in request.topics or ()):
        return encode(_refuse(request.topics or ()), call.version)
    away = (ctx.replicas.offline, ctx.peers.suspected, tuple(broker.id for broker in ctx.recently_dead.listed))
    key = (call.version, call.session.listener, request.topics, away, image.controller_id)
    body = ctx.metadata_cache.get(image, key)
    if body is None:
        body = encode(_describe(ctx, request.topics, call.session.listener), call.version)
        ctx.metadata_cache.put(key, body)
    return body


def _by_id(asked: MetadataRequestTopic) -> bool:
    return asked.name is None or asked.topic_id != ZERO_UUID


def _refuse(asked: tuple[MetadataRequestTopic, ...]) -> MetadataResponse:
    topics = tuple(_missing(WireError.INVALID_REQUEST, each.name or "", each.topic_id) for each in asked)
    return MetadataResponse(brokers=(), topics=topics)


def _describe(ctx: ControlContext, asked: tuple[MetadataRequestTopic, ...] | None, listener: str) -> MetadataResponse:
    image = ctx.image
    if asked is None:
        found = tuple(_topic(ctx, topic) for topic in image.topics.values())
    else:
        found = tuple(_entry(ctx, each) for each in asked)
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in (*image.brokers.values(), *ctx.recently_dead.listed)
            if (endpoint := broker.endpoints.get(listener)) is not None
        ),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=found,
    )


def _entry(ctx: ControlContext, asked: MetadataRequestTopic) -> MetadataResponseTopic:
    image = ctx.image
    if asked.name is None or asked.topic_id != ZERO_UUID:
        topic = image.topics_by_id.get(asked.topic_id)
        return _topic(ctx, topic) if topic is not None else _missing(WireError.UNKNOWN_TOPIC_ID, None, asked.topic_id)
    topic = image.topics.get(asked.name)
    if topic is not None:
        return _topic(ctx, topic)
    bad_name = name_problem(asked.name) is not None
    code = WireError.INVALID_TOPIC_EXCEPTION if bad_name else WireError.UNKNOWN_TOPIC_OR_PARTITION
    return _missing(code, asked.name, ZERO_UUID)


def _missing(code: WireError, name: str | None, topic_id: UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=())


def _topic(ctx: ControlContext, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=WireError.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=state.error,
                partition_index=partition.index,
                leader_id=state.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=state.offline_replicas,
            )
            for partition in topic.partitions
            for state in (seen(ctx, topic.name, partition),)
        ),
    )
