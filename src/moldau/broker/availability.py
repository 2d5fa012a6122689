"""Leaders and offline replicas as Metadata reports them: none for a failed disk or a leader that just died."""

from typing import NamedTuple

from moldau.base.errors import WireError
from moldau.broker.context import ControlContext
from moldau.metadata.image import NO_BROKER, PartitionState


class Seen(NamedTuple):
    error: WireError
    leader: int
    offline_replicas: tuple[int, ...]


def seen(ctx: ControlContext, topic: str, partition: PartitionState) -> Seen:
    brokers, here = ctx.image.brokers, ctx.config.node_id
    failed = (topic, partition.index) in ctx.replicas.offline
    offline = tuple(each for each in partition.replicas if each not in brokers or (failed and each == here))
    away = partition.leader not in brokers or partition.leader in ctx.peers.suspected
    if away or (failed and partition.leader == here):
        return Seen(WireError.LEADER_NOT_AVAILABLE, NO_BROKER, offline)
    return Seen(WireError.NONE, partition.leader, offline)
