"""Partition reassignment (KIP-455): begin, retarget, complete and cancel. Pure.

During a reassignment a partition's replicas are the target's, then, sorted, those to be removed; `adding` and
`removing` name the differences. It completes when all adding replicas are in the ISR, which the leader reports with
AlterPartition: see `completed`. Rules, codes and texts are those of Apache Kafka 4.3, with one difference: after a
second target, cancelling still restores the replicas from before the first. The target comes with the request.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from moldau.base.errors import Refusal, WireError
from moldau.metadata.changes import ChangeSet, PartitionChanged
from moldau.metadata.image import NO_BROKER, ClusterImage, PartitionState

Reassigned = PartitionChanged | ChangeSet | Refusal  # an empty set: the partition is as requested already

NO_REASSIGNMENT = Refusal(WireError.NO_REASSIGNMENT_IN_PROGRESS, "")  # Kafka has no words for it either


def reassigning(state: PartitionState) -> bool:
    return bool(state.adding or state.removing)


def target_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas after the reassignment; the present ones if there is none."""
    return _without(state.replicas, state.removing)


def original_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas that cancelling restores."""
    return _without(state.replicas, state.adding)


def completed(state: PartitionState, isr: Sequence[int]) -> PartitionState | None:
    """The partition after its reassignment, if this ISR completes it. Its leader may be a removed replica."""
    if not reassigning(state):
        return None
    kept = _without(isr, state.removing)
    awaited = set(state.adding) - set(state.removing)
    if not kept or not awaited <= set(kept):
        return None
    replicas = target_of(state)
    elr = tuple(each for each in state.elr if each in replicas and each not in kept)
    return replace(state, replicas=replicas, isr=kept, elr=elr, adding=(), removing=())


def reassign(
    image: ClusterImage, topic: str, index: int, target: Sequence[int], *, may_change_factor: bool = True
) -> Reassigned:
    """Begin a reassignment, or retarget the one in progress. It completes at once if no replica has to catch up."""
    state = image.partition(topic, index)
    if state is None:
        return _unknown(image, topic, index)
    refusal = _check_target(image, state, target)
    if refusal:
        return refusal
    current_factor = len(target_of(state))
    if not may_change_factor and current_factor != len(target):  # KIP-860
        text = f"The replication factor is changed from {current_factor} to {len(target)}"
        return Refusal(WireError.INVALID_REPLICATION_FACTOR, text)
    leaving = tuple(sorted(set(state.replicas) - set(target)))
    # Replicas that an earlier target added stay marked, or cancelling would keep them.
    coming = tuple(sorted({*state.adding, *target} - set(original_of(state))))
    begun = replace(state, replicas=(*target, *leaving), adding=coming, removing=leaving)
    return _change(image, topic, state, completed(begun, begun.isr) or begun)


def cancel(image: ClusterImage, topic: str, index: int, *, unclean: bool = False) -> Reassigned:
    """Restore the replicas from before. `unclean`: even if none of them has all committed records."""
    state = image.partition(topic, index)
    if state is None:
        return _unknown(image, topic, index)
    if not reassigning(state):
        return NO_REASSIGNMENT
    replicas = original_of(state)
    isr = _without(state.isr, state.adding)
    elr = _without(state.elr, state.adding)
    if not isr and not elr:
        if not unclean or not replicas:
            text = f"Unable to revert partition assignment for {topic}:{index} because it would require an unclean"
            return Refusal(WireError.INVALID_REPLICA_ASSIGNMENT, f"{text} leader election.")
        isr = tuple(each for each in replicas if _may_lead(image, each))[:1] or replicas[:1]
    reverted = replace(state, replicas=replicas, isr=isr, elr=elr, adding=(), removing=())
    return _change(image, topic, state, reverted)


def elected(image: ClusterImage, state: PartitionState) -> PartitionState:
    """With a leader that may lead, its own if possible: one of the ISR or, if that is empty, of the ELR (KIP-966)."""
    eligible = state.isr or state.elr
    candidates = [each for each in (state.leader, *state.replicas) if each in eligible and _may_lead(image, each)]
    if not candidates:
        return replace(state, leader=NO_BROKER)
    leader = candidates[0]
    if state.isr:
        return replace(state, leader=leader)
    return replace(state, leader=leader, isr=(leader,), elr=_without(state.elr, (leader,)))


def _change(image: ClusterImage, topic: str, old: PartitionState, new: PartitionState) -> PartitionChanged | ChangeSet:
    new = elected(image, new)
    return ChangeSet(()) if new == old else changed(topic, old, new)


def changed(topic: str, old: PartitionState, new: PartitionState) -> PartitionChanged:
    """The change from one state to the other, under a new leader epoch where that is due."""
    # As in Kafka: a removed replica is fenced by a new leader epoch.
    moved = new.leader != old.leader or not set(old.replicas) <= set(new.replicas)
    return PartitionChanged(
        topic,
        new.index,
        new.replicas,
        new.isr,
        new.leader,
        old.leader_epoch + moved,
        adding=new.adding,
        removing=new.removing,
        elr=new.elr,
    )


def _check_target(image: ClusterImage, state: PartitionState, target: Sequence[int]) -> Refusal | None:
    what = "The manual partition assignment includes"
    if not target:
        return _bad_assignment(f"{what} an empty replica list.")
    for broker in sorted(target):
        # A present replica may be down.
        if broker not in image.brokers and broker not in state.replicas:
            return _bad_assignment(f"{what} broker {broker}, but no such broker is registered.")
        if target.count(broker) > 1:
            return _bad_assignment(f"{what} the broker {broker} more than once.")
    return None


def _may_lead(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.leaving


def _without(replicas: Sequence[int], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(each for each in replicas if each not in gone)


def _bad_assignment(message: str) -> Refusal:
    return Refusal(WireError.INVALID_REPLICA_ASSIGNMENT, message)


def _unknown(image: ClusterImage, topic: str, index: int) -> Refusal:
    missing = f"partition {topic}:{index}" if topic in image.topics else f"a topic named {topic}"
    return Refusal(WireError.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find {missing}.")
