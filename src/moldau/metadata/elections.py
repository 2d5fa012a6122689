"""Who leads a partition, and who is in sync: decisions over an image, for a controller to carry out. Pure.

They go by what is, not by what happened: `settled` looks at the brokers that are there and answers with all that has to
change, so it is right after one broker's end, after three at once, and for a controller that has just been elected.
KIP-966: who leaves an ISR that is then smaller than min.insync.replicas stays eligible (ELR), because nothing is
committed without it until the ISR has grown again. Nobody else leads unless its topic allows records to be lost.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.metadata.changes import BrokerGone, Change, PartitionChanged, fold
from moldau.metadata.image import NO_BROKER, ClusterImage, PartitionState, Topic
from moldau.metadata.reassignment import completed

REBALANCED_AT_ONCE = 1_000  # leaders that one look at the balance moves at most, as in Kafka

TopicPartition = tuple[str, int]  # topic and index


class ElectionRules(NamedTuple):
    """What settings say; this room does not know them."""

    min_isr: Callable[[Topic], int]
    unclean: Callable[[Topic], bool]
    cordoned: Collection[int] = ()  # brokers that lead only what nobody else can


class LeaderAndIsr(NamedTuple):
    """A leader, and the ISR and ELR that it starts with."""

    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]


def elect(
    state: PartitionState, candidates: Collection[int], *, unclean: bool = False, cordoned: Collection[int] = ()
) -> LeaderAndIsr:
    """The first replica in the order of the assignment that may lead: of the ISR, else of the ELR, else of any kind.

    If records may be lost, the one that was in sync last is the best of any kind. `candidates` are the brokers that can
    lead now, those of them that are `cordoned` behind all others; the state's ISR and ELR are taken as they are.
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
        return LeaderAndIsr(best, (best,), ())  # the others may have records that this one lacks: they must follow it
    return LeaderAndIsr(NO_BROKER, state.isr, state.elr)


def candidates(image: ClusterImage) -> frozenset[int]:
    return frozenset(broker.id for broker in image.brokers.values() if not broker.leaving)


def leader_and_isr_changes(
    image: ClusterImage, rules: ElectionRules, restarted: Collection[int] = ()
) -> tuple[PartitionChanged, ...]:
    """What the brokers that are there, and those alone, mean for all partitions: leaders, ISRs and ELRs.

    Those that `restarted` are there, but not in step any more: they follow until they have caught up.
    """
    there, able = frozenset(image.brokers), candidates(image)
    steady = there.difference(restarted)
    careful = rules._replace(unclean=lambda _: False) if restarted else rules  # who restarted comes before a loss
    changes: list[PartitionChanged] = []
    for topic, state in _states(image):
        if state.leader in able and not state.elr and steady.issuperset(state.isr):
            continue  # by far the most: nothing to look at
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
    if choice.leader == NO_BROKER:  # the last ones stay in the ISR: whoever of them is back first has all that counts
        choice = choice._replace(isr=isr or state.isr)
    return _change(topic, state, choice, rules)


def _again(topic: Topic, state: PartitionState) -> PartitionChanged:
    """A leader that restarted and has no successor leads on, under a new epoch: its followers have to look again."""
    return _plain(topic, state, state.leader, state.leader_epoch + 1, state.isr, state.elr)


def broker_failure_changes(
    image: ClusterImage, gone: Iterable[int], rules: ElectionRules, *, expired: bool = False
) -> tuple[Change, ...]:
    """These brokers are no more: with them goes their leadership, and their place in ISRs."""
    ends: list[Change] = [BrokerGone(each, expired) for each in gone]
    for end in ends:
        image = fold(image, end)
    return (*ends, *leader_and_isr_changes(image, rules))


def unclean_shutdown_changes(
    image: ClusterImage, broker_id: int, rules: ElectionRules, unsound: Collection[TopicPartition] | None = None
) -> tuple[PartitionChanged, ...]:
    """A broker comes back that may have lost what it had acknowledged (KIP-966): it is eligible for nothing.

    Where it was the last one the partition gets no leader: only somebody who accepts the loss can have one elected. A
    partition that nobody else has ever had is not affected: there is nothing to compare it with. Given those whose
    logs are `unsound`, it is eligible for all but these. Of them it keeps what nobody else has: somebody may mend it.
    """
    able = candidates(image) - {broker_id}
    changes: list[PartitionChanged] = []
    for topic, state in _states(image):
        if unsound is not None and (
            (topic.name, state.index) not in unsound or not others_have_committed(state, broker_id)
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
    """Whether another broker has all that was committed of a partition, there or not."""
    return any(each != broker_id for each in (*state.isr, *state.elr))


def controlled_shutdown_changes(
    image: ClusterImage, broker_id: int, rules: ElectionRules
) -> tuple[PartitionChanged, ...]:
    """A broker is about to stop in order: others lead what it led, and nobody waits for it any more.

    What nobody else is in sync with stays with it until it is gone.
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
    """The first of a partition's replicas becomes its leader, if it is in sync."""
    state = image.partition(topic_name, index)
    if state is None:
        return _unknown()
    first = state.replicas[0]
    if state.leader == first and first in image.brokers:
        return Refusal(WireError.ELECTION_NOT_NEEDED, "The preferred replica leads the partition already.")
    if first not in state.isr or first not in candidates(image):
        return Refusal(WireError.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred replica is not in sync.")
    return _plain(image.topics[topic_name], state, first, state.leader_epoch + 1, state.isr, state.elr)


def unclean_election(
    image: ClusterImage, topic_name: str, index: int, rules: ElectionRules
) -> PartitionChanged | Refusal:
    """A partition without a leader gets one, whatever is lost by it: somebody asked for it."""
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
    return change or Refusal(WireError.ELIGIBLE_LEADERS_NOT_AVAILABLE, "None of the partition's replicas is there.")


def leader_rebalance_changes(
    image: ClusterImage, percentage: int, rules: ElectionRules
) -> tuple[PartitionChanged, ...]:
    """Leadership goes back to preferred replicas wherever that is possible (auto.leader.rebalance.enable).

    Only to brokers that lack the leadership of more than this percentage of what they preferably lead.
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


# ── steps that all of them share ──


def _states(image: ClusterImage) -> Iterator[tuple[Topic, PartitionState]]:
    for topic in image.topics.values():
        for state in topic.partitions:
            yield topic, state


def _change(
    topic: Topic, old: PartitionState, choice: LeaderAndIsr, rules: ElectionRules, *, untrusted: int = NO_BROKER
) -> PartitionChanged | None:
    """The change that gives a partition this leader and ISR; None if it has them. Its ELR follows from the rules."""
    elr = eligible(old, choice, rules.min_isr(topic), untrusted)
    if (choice.leader, choice.isr, elr) == (old.leader, old.isr, old.elr):
        return None
    epoch = old.leader_epoch + (choice.leader != old.leader)
    return _plain(topic, old, choice.leader, epoch, choice.isr, elr)


def eligible(old: PartitionState, choice: LeaderAndIsr, min_isr: int, untrusted: int = NO_BROKER) -> tuple[int, ...]:
    """The ELR beside an ISR: empty as soon as something can be committed without its members."""
    if len(choice.isr) >= min(min_isr, len(old.replicas)):
        return ()
    members = set(choice.elr)
    if choice.leader in old.isr or choice.leader in old.elr or choice.leader == NO_BROKER:
        members |= set(old.isr)  # what they left behind was committed with them; not so after an unclean election
    members -= {*choice.isr, untrusted}
    return tuple(each for each in old.replicas if each in members)


def _plain(
    topic: Topic, old: PartitionState, leader: int, epoch: int, isr: tuple[int, ...], elr: tuple[int, ...]
) -> PartitionChanged:
    last = NO_BROKER if isr else old.isr[0] if old.isr else old.last
    new = replace(old, isr=isr, leader=leader, elr=elr)
    done = completed(new, isr)
    if done is not None and leader in done.isr:  # an election may be what a reassignment was waiting for
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
