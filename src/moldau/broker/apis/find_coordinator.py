"""FindCoordinator 0–6: the coordinator of a group or transactional id; creates the internal topic if it is missing.

1: key types, transactions. 4: several keys. 6: share groups, which are not supported.
"""

from collections.abc import Coroutine

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.broker.coordinators.partitioning import partition_of
from moldau.broker.internal_topics import OFFSETS, TRANSACTIONS
from moldau.metadata.image import ClusterImage
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

SHARE, SHARE_SINCE = 2, 6
TOPICS = {0: OFFSETS, 1: TRANSACTIONS}  # by key type

Answer = FindCoordinatorResponse | Coroutine[object, object, FindCoordinatorResponse]


def find_coordinator(ctx: CoordinatorContext, request: FindCoordinatorRequest, call: Call) -> Answer:
    topic = TOPICS.get(request.key_type)
    if topic is None:
        share = request.key_type == SHARE and call.version >= SHARE_SINCE
        return _refuse(request, WireError.COORDINATOR_NOT_AVAILABLE if share else WireError.INVALID_REQUEST)
    if topic not in ctx.image.topics:
        return _create(ctx, topic, request, call)
    if not ctx.topics.open_here(topic):
        return _open(ctx, topic, request, call)
    return _answer(ctx.image, topic, request, call)


async def _create(
    ctx: CoordinatorContext, topic: str, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse:
    await ctx.topics.create_missing([topic])
    return _answer(ctx.image, topic, request, call)


async def _open(
    ctx: CoordinatorContext, topic: str, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse:
    """Another request has just created the topic: this broker would not know yet that it is a coordinator."""
    await ctx.topics.settled()
    return _answer(ctx.image, topic, request, call)


def _answer(image: ClusterImage, topic: str, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    if topic not in image.topics:
        return _refuse(request, WireError.COORDINATOR_NOT_AVAILABLE)
    return FindCoordinatorResponse(
        coordinators=tuple(_coordinator(image, topic, key, call.session.listener) for key in request.coordinator_keys)
    )


def _coordinator(image: ClusterImage, topic: str, key: str, listener: str) -> Coordinator:
    partitions = image.topics[topic].partitions
    broker = image.brokers.get(partitions[partition_of(key, len(partitions))].leader)
    endpoint = broker.endpoints.get(listener) if broker else None
    if broker is None or endpoint is None:
        return _none(key, WireError.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=broker.id, host=endpoint.host, port=endpoint.port, error_code=WireError.NONE)


def _refuse(request: FindCoordinatorRequest, error: WireError) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=tuple(_none(key, error) for key in request.coordinator_keys))


def _none(key: str, error: WireError) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=error.doc)
