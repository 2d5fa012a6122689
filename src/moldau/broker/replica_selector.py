"""Replica selector: the replica in a consumer's rack, if replica.selector.class says so (KIP-392)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.base.ids import Offset
from moldau.metadata.image import Broker
from moldau.replication.isr import Progress

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NONE = -1


class Choice(NamedTuple):
    leader: int
    followers: Mapping[int, Progress]
    brokers: Mapping[int, Broker]


def preferred_replica(choice: Choice, rack: str, offset: Offset) -> int:
    """The most advanced follower in the consumer's rack that has this offset; NONE: read from the leader."""
    brokers = choice.brokers
    leader = brokers.get(choice.leader)
    if not rack or (leader is not None and leader.rack == rack):
        return NONE
    near = [each for each in _able(choice, offset) if brokers[each].rack == rack]
    if not near:
        return NONE
    return max(near, key=lambda each: choice.followers[each].end_offset)


def _able(choice: Choice, offset: Offset) -> Iterable[int]:
    for broker, known in choice.followers.items():
        if broker in choice.brokers and known.log_start <= offset <= known.end_offset:
            yield broker
