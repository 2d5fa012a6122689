"""Leader elections: the leader, ISR and ELR of partitions as brokers fail, return and shut down. Pure.

`leader_and_isr_changes` compares the image with the brokers that are registered, not with an event. So it is right
after one failure, after three at once, and for a newly elected controller. KIP-966: a replica that leaves an ISR below
min.insync.replicas stays eligible (ELR), because nothing is committed without it until the ISR grows again. No other
replica may lead unless the topic allows unclean election.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import TopicPartition
from moldau.metadata.changes import BrokerGone, Change, PartitionChanged, fold
from moldau.metadata.image import NO_BROKER, ClusterImage, PartitionState, Topic
from moldau.metadata.reassignment import completed

REBALANCED_AT_ONCE = 1_000  # leaders that one rebalance moves at most, as in Kafka


class ElectionRules(NamedTuple):
    """Settings that elections depend on."""

    min_isr: Callable[[Topic], int]
    unclean: Callable[[Topic], bool]
    cordoned: Collection[int] = ()  # brokers that lead only partitions that no other broker can lead


class LeaderAndIsr(NamedTuple):
    """A leader with the ISR and ELR that it starts with."""

    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]


def elect(
    state: PartitionState, candidates: Collection[int], *, unclean: bool = False, cordoned: Collection[int] = ()
) -> LeaderAndIsr:
    """The first candidate in the order of the assignment: of the ISR, else of the ELR, else, if `unclean`, any.

    Of any the last member of the ISR is the best. `candidates` are the brokers that can lead now, `cordoned` ones
    last; the ISR and ELR of the state are not checked.
    """
    able = sorted((each for each in state.replicas if each in candidates), key=lambda each: each in cordoned)
    for each in able:
        if each in state.isr:
            return LeaderAndIsr(each, state.isr, state.elr)
    for each in able:
        if each in state.elr:
            return LeaderAndIsr(each, (each,), state.elr)
    if unclean and able:
        best = state.last if state.last in able else able[0]
        return LeaderAndIsr(best, (best,), ())  # the others may have records that this one lacks, and truncate to it
    return LeaderAndIsr(NO_BROKER, state.isr, state.elr)


def candidates(image: ClusterImage) -> frozenset[int]:
    return frozenset(broker.id for broker in image.brokers.values() if not broker.leaving)


def leader_and_isr_changes(
    image: ClusterImage, rules: ElectionRules, restarted: Collection[int] = ()
) -> tuple[PartitionChanged, ...]:
    """The changes of leaders, ISRs and ELRs that follow from the registered brokers.

    Brokers that `restarted` are registered, but out of the ISR until they have caught up.
    """
    there, able = frozenset(image.brokers), candidates(image)
    steady = there.difference(restarted)
    careful = rules._replace(unclean=lambda _: False) if restarted else rules
    changes: list[PartitionChanged] = []
    for topic, state in _states(image):
        if state.leader in able and not state.elr and steady.issuperset(state.isr):
            continue  # most partitions: nothing changes
        change = _settle(topic, state, steady, able & steady, careful)
        if restarted and (state if change is None else change).leader == NO_BROKER:
            change = _settle(topic, state, there, able, rules)
            if change is None and state.leader in able:
                change = _again(topic, state)
        changes += _only(change)
    return tuple(changes)


def _settle(
    topic: Topic, state: PartitionState, there: Collection[int], able: Collection[int], rules: ElectionRules
) -> PartitionChanged | None:
    isr = tuple(each for each in state.isr if each in there)
    if state.leader in isr:
        return _change(topic, state, LeaderAndIsr(state.leader, isr, state.elr), rules)
    choice = elect(_with(state, isr), able, unclean=rules.unclean(topic), cordoned=rules.cordoned)
    if choice.leader == NO_BROKER:  # the last members stay in the ISR: the first to return has all committed records
        choice = choice._replace(isr=isr or state.isr)
    return _change(topic, state, choice, rules)


def _again(topic: Topic, state: PartitionState) -> PartitionChanged:
    """A restarted leader without a successor leads under a new epoch, so that its followers check for truncation."""
    return _changed(topic, state, state.leader, state.leader_epoch + 1, state.isr, state.elr)


def broker_failure_changes(
    image: ClusterImage, gone: Iterable[int], rules: ElectionRules, *, expired: bool = False
) -> tuple[Change, ...]:
    """Remove these brokers, with their leaderships and ISR memberships."""
    ends: list[Change] = [BrokerGone(each, expired) for each in gone]
    for end in ends:
        image = fold(image, end)
    return (*ends, *leader_and_isr_changes(image, rules))


def unclean_shutdown_changes(
    image: ClusterImage, broker_id: int, rules: ElectionRules, corrupt: Collection[TopicPartition] | None = None
) -> tuple[PartitionChanged, ...]:
    """A broker returns after an unclean shutdown and may lack acknowledged records (KIP-966): no ISR or ELR keeps it.

    A partition that loses its last member gets no leader before an unclean election. A partition with a single replica
    is not affected. Given `corrupt` partitions, only these are affected, and of them only those that another broker
    has all committed records of: the rest may still be repaired.
    """
    able = candidates(image) - {broker_id}
    changes: list[PartitionChanged] = []
    for topic, state in _states(image):
        if corrupt is not None and (
            (topic.name, state.index) not in corrupt or not others_have_committed(state, broker_id)
        ):
            continue
        if len(state.replicas) > 1 and (broker_id in state.isr or broker_id in state.elr):
            left = _with(state, _without(state.isr, broker_id), _without(state.elr, broker_id))
            choice = LeaderAndIsr(state.leader, left.isr, left.elr)
            if state.leader == broker_id or state.leader == NO_BROKER:
                choice = elect(left, able, unclean=rules.unclean(topic), cordoned=rules.cordoned)
            changes += _only(_change(topic, state, choice, rules, untrusted=broker_id))
    return tuple(changes)


def others_have_committed(state: PartitionState, broker_id: int) -> bool:
    """Whether another broker, online or not, has all committed records of a partition."""
    return any(each != broker_id for each in (*state.isr, *state.elr))


def controlled_shutdown_changes(
    image: ClusterImage, broker_id: int, rules: ElectionRules
) -> tuple[PartitionChanged, ...]:
    """Move leaderships away from a broker in controlled shutdown, and take it out of ISRs.

    It keeps partitions of which it is the only in-sync replica.
    """
    able = candidates(image) - {broker_id}
    changes: list[PartitionChanged] = []
    for topic, state in _states(image):
        if broker_id not in state.isr:
            continue
        rest = _without(state.isr, broker_id)
        choice = LeaderAndIsr(state.leader, rest, state.elr)
        if state.leader == broker_id:
            choice = elect(_with(state, rest, ()), able, cordoned=rules.cordoned)._replace(elr=state.elr)
        if choice.leader != NO_BROKER and rest:
            changes += _only(_change(topic, state, choice, rules))
    return tuple(changes)


def preferred_election(image: ClusterImage, topic_name: str, index: int) -> PartitionChanged | Refusal:
    """Make the preferred replica the leader, if it is in sync."""
    state = image.partition(topic_name, index)
    if state is None:
        return _unknown()
    first = state.replicas[0]
    if state.leader == first and first in image.brokers:
        return Refusal(WireError.ELECTION_NOT_NEEDED, "The preferred replica leads the partition already.")
    if first not in state.isr or first not in candidates(image):
        return Refusal(WireError.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred replica is not in sync.")
    return _changed(image.topics[topic_name], state, first, state.leader_epoch + 1, state.isr, state.elr)


def unclean_election(
    image: ClusterImage, topic_name: str, index: int, rules: ElectionRules
) -> PartitionChanged | Refusal:
    """Give a partition without a leader one, even if records are lost: an ElectLeaders request."""
    state = image.partition(topic_name, index)
    if state is None:
        return _unknown()
    if state.leader in image.brokers:
        return Refusal(WireError.ELECTION_NOT_NEEDED, "The partition has a leader.")
    choice = elect(state, candidates(image), unclean=True, cordoned=rules.cordoned)
    change = None
    if choice.leader != NO_BROKER:
        isr = tuple(each for each in choice.isr if each in image.brokers)
        change = _change(image.topics[topic_name], state, choice._replace(isr=isr), rules)
    return change or Refusal(WireError.ELIGIBLE_LEADERS_NOT_AVAILABLE, "The partition has no replica on a live broker.")


def leader_rebalance_changes(
    image: ClusterImage, percentage: int, rules: ElectionRules
) -> tuple[PartitionChanged, ...]:
    """Move leadership back to preferred replicas (auto.leader.rebalance.enable).

    Only to brokers that lack more than this percentage of the leaderships for which they are preferred.
    """
    preferring = Counter(state.replicas[0] for _, state in _states(image))
    lacking: dict[int, list[tuple[Topic, PartitionState]]] = {}
    for topic, state in _states(image):
        if state.leader != state.replicas[0]:
            lacking.setdefault(state.replicas[0], []).append((topic, state))
    changes: list[PartitionChanged] = []
    for broker, states in lacking.items():
        if len(states) * 100 <= percentage * preferring[broker] or broker in rules.cordoned:
            continue
        for topic, state in states:
            change = preferred_election(image, topic.name, state.index)
            if state.leader != NO_BROKER and not state.adding and isinstance(change, PartitionChanged):
                changes.append(change)
    return tuple(changes[:REBALANCED_AT_ONCE])


# ── shared steps ──


def _states(image: ClusterImage) -> Iterator[tuple[Topic, PartitionState]]:
    for topic in image.topics.values():
        for state in topic.partitions:
            yield topic, state


def _change(
    topic: Topic, old: PartitionState, choice: LeaderAndIsr, rules: ElectionRules, *, untrusted: int = NO_BROKER
) -> PartitionChanged | None:
    """The change to this leader and ISR, with the ELR by the rules; None if there is none."""
    elr = eligible(old, choice, rules.min_isr(topic), untrusted)
    if (choice.leader, choice.isr, elr) == (old.leader, old.isr, old.elr):
        return None
    epoch = old.leader_epoch + (choice.leader != old.leader)
    return _changed(topic, old, choice.leader, epoch, choice.isr, elr)


def eligible(old: PartitionState, choice: LeaderAndIsr, min_isr: int, untrusted: int = NO_BROKER) -> tuple[int, ...]:
    """The ELR beside an ISR: empty once records can be committed without its members."""
    if len(choice.isr) >= min(min_isr, len(old.replicas)):
        return ()
    members = set(choice.elr)
    if choice.leader in old.isr or choice.leader in old.elr or choice.leader == NO_BROKER:
        members |= set(old.isr)  # committed records are theirs too; not so after an unclean election
    members -= {*choice.isr, untrusted}
    return tuple(each for each in old.replicas if each in members)


def _changed(
    topic: Topic, old: PartitionState, leader: int, epoch: int, isr: tuple[int, ...], elr: tuple[int, ...]
) -> PartitionChanged:
    last = NO_BROKER if isr else old.isr[0] if old.isr else old.last
    new = replace(old, isr=isr, leader=leader, elr=elr)
    done = completed(new, isr)
    if done is not None and leader in done.isr:  # an election may complete a reassignment
        new, epoch = done, max(epoch, old.leader_epoch + 1)
    return PartitionChanged(
        topic.name,
        old.index,
        new.replicas,
        new.isr,
        leader,
        epoch,
        adding=new.adding,
        removing=new.removing,
        elr=new.elr,
        last=last,
    )


def _with(state: PartitionState, isr: tuple[int, ...], elr: tuple[int, ...] | None = None) -> PartitionState:
    return replace(state, isr=isr, elr=state.elr if elr is None else elr)


def _without(ids: tuple[int, ...], gone: int) -> tuple[int, ...]:
    return tuple(each for each in ids if each != gone)


def _only(change: PartitionChanged | None) -> tuple[PartitionChanged, ...]:
    return () if change is None else (change,)


def _unknown() -> Refusal:
    return Refusal(WireError.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
