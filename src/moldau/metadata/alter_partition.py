"""AlterPartition: accepts or refuses the ISR that a leader proposes. Pure.

KIP-497: the ISR changes by compare-and-set on the partition epoch, under the leader epoch. KIP-903: a replica enters
with the broker epoch that its broker is registered with, so a broker that restarted meanwhile does not. A leader that
is not in its own proposed ISR resigns: its disk failed. A follower may remove itself for the same reason, and propose
nothing else (Kafka has AssignReplicasToDirs for that, KIP-858).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import Epoch
from moldau.metadata.changes import PartitionChanged
from moldau.metadata.elections import ElectionRules, LeaderAndIsr, candidates, elect, eligible
from moldau.metadata.image import NO_BROKER, ClusterImage, PartitionState, Topic
from moldau.metadata.reassignment import changed, completed, elected

UNKNOWN_EPOCH = -1  # the leader does not know the epoch of this broker; accepted


class ProposedIsr(NamedTuple):
    """A leader's request for one partition: the brokers of the new ISR with the epochs known to the leader."""

    topic_id: UUID
    partition: int
    leader_epoch: Epoch
    partition_epoch: Epoch
    members: Mapping[int, Epoch]  # by broker id


def check_broker_epoch(image: ClusterImage, broker_id: int, broker_epoch: int) -> Refusal | None:
    """Refuses requests of an earlier incarnation of a broker."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return Refusal(WireError.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered with epoch {broker_epoch}.")
    return None


def alter_partition(
    image: ClusterImage, broker_id: int, broker_epoch: int, asked: ProposedIsr, rules: ElectionRules
) -> PartitionChanged | Refusal:
    refusal = check_broker_epoch(image, broker_id, broker_epoch)
    if refusal:
        return refusal
    topic = image.topics_by_id.get(asked.topic_id)
    if topic is None:
        return Refusal(WireError.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    state = image.partition(topic.name, asked.partition)
    if state is None:
        return Refusal(WireError.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    refusal = _outdated(state, broker_id, asked) or _unfit(image, state, asked)
    if refusal:
        return refusal
    isr = tuple(each for each in state.replicas if each in asked.members)
    choice = LeaderAndIsr(state.leader, isr, state.elr)
    if broker_id == state.leader and broker_id not in isr:
        choice = _resigned(image, topic, state, isr, rules)
    failed = NO_BROKER if broker_id in isr else broker_id
    elr = eligible(state, choice, rules.min_isr(topic), untrusted=failed)
    new = replace(state, leader=choice.leader, isr=choice.isr, elr=elr)
    done = completed(new, new.isr)
    return changed(topic.name, state, new if done is None else elected(image, done))


def _outdated(state: PartitionState, broker_id: int, asked: ProposedIsr) -> Refusal | None:
    if asked.leader_epoch > state.leader_epoch or asked.partition_epoch > state.partition_epoch:
        return Refusal(
            WireError.NOT_CONTROLLER,
            "The request has a newer epoch than this controller knows.",
        )
    if asked.leader_epoch < state.leader_epoch:
        return Refusal(WireError.FENCED_LEADER_EPOCH, "The leader epoch is outdated: the partition has a newer one.")
    if broker_id != state.leader and not _withdraws(state, broker_id, asked):
        return Refusal(WireError.INVALID_REQUEST, f"Broker {broker_id} does not lead the partition.")
    if asked.partition_epoch < state.partition_epoch:
        return Refusal(WireError.INVALID_UPDATE_VERSION, "The partition epoch is outdated: the partition has changed.")
    return None


def _withdraws(state: PartitionState, broker_id: int, asked: ProposedIsr) -> bool:
    """Whether a follower proposes the present ISR without itself, under a leader that stays."""
    others = set(state.isr) - {broker_id}
    return state.leader in others and broker_id in state.isr and others == set(asked.members)


def _unfit(image: ClusterImage, state: PartitionState, asked: ProposedIsr) -> Refusal | None:
    """Why a member may not be in the ISR. A present member may stay in controlled shutdown."""
    if not set(asked.members) <= set(state.replicas):
        return Refusal(WireError.INVALID_REQUEST, "The new ISR has brokers that have no replica.")
    able = candidates(image)
    for broker_id, epoch in asked.members.items():
        broker = image.brokers.get(broker_id)
        known = broker is not None and epoch in (UNKNOWN_EPOCH, broker.epoch)
        if not known or (broker_id not in able and broker_id not in state.isr):
            return Refusal(
                WireError.INELIGIBLE_REPLICA,
                f"Broker {broker_id} has another epoch or shuts down.",
            )
    return None


def _resigned(
    image: ClusterImage, topic: Topic, state: PartitionState, isr: Sequence[int], rules: ElectionRules
) -> LeaderAndIsr:
    rest = tuple(each for each in isr if each != state.leader)
    able = candidates(image) - {state.leader}
    left = PartitionState(state.index, state.replicas, rest, state.leader, elr=state.elr)
    choice = elect(left, able, unclean=rules.unclean(topic), cordoned=rules.cordoned)
    if choice.leader == NO_BROKER:
        return choice._replace(isr=rest or (state.leader,))
    return choice
