"""Current leaders and their endpoints, for responses to clients that asked the wrong broker (KIP-951)."""

from collections.abc import Iterable
from uuid import UUID

from moldau.base.errors import WireError
from moldau.base.ids import Epoch
from moldau.broker.context import DataContext
from moldau.metadata.image import PartitionState
from moldau.wire.hot.fields import NodeEndpoint

Leader = tuple[int, Epoch]  # broker id and leader epoch


def leader_of(state: PartitionState | None) -> Leader | None:
    return None if state is None else (state.leader, state.leader_epoch)


def absent(ctx: DataContext, token: bytes, index: int, *, by_id: bool) -> tuple[WireError, Leader | None]:
    """The error for a partition without a replica here, and its leader if another broker leads it."""
    image = ctx.image
    if by_id:
        topic = image.topics_by_id.get(UUID(bytes=token))
        if topic is None:
            return WireError.UNKNOWN_TOPIC_ID, None
    else:
        topic = image.topics.get(token.decode("utf-8", "replace"))
    if topic is None or not 0 <= index < len(topic.partitions):
        return WireError.UNKNOWN_TOPIC_OR_PARTITION, None
    state = topic.partitions[index]
    if (topic.name, index) in ctx.replicas.offline:  # its log cannot be opened
        return WireError.KAFKA_STORAGE_ERROR, None
    if ctx.config.node_id in state.replicas:  # its log is still being opened
        return WireError.UNKNOWN_TOPIC_OR_PARTITION, None
    return WireError.NOT_LEADER_OR_FOLLOWER, leader_of(state)


def endpoints(ctx: DataContext, listener: str, leaders: Iterable[Leader | None]) -> list[NodeEndpoint]:
    """The endpoints of these leaders, for clients of a listener."""
    brokers = ctx.image.brokers
    found: list[NodeEndpoint] = []
    for broker_id in dict.fromkeys(leader[0] for leader in leaders if leader is not None):
        broker = brokers.get(broker_id)
        endpoint = broker.endpoints.get(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
    return found
