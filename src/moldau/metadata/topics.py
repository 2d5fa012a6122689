"""Creating, extending and deleting topics: from an image to a change or a refusal. Pure.

Rules, codes and texts are those of Apache Kafka 4.3, because clients show them to people. Topic configs are checked by
the caller. Explicit creation and auto-creation both use these functions.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from moldau.base.errors import Refusal, WireError
from moldau.base.uuids import RESERVED
from moldau.metadata.changes import PartitionsAdded, TopicCreated, TopicDeleted
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.metadata.placement import place
from moldau.metadata.reassignment import target_of

MAX_NAME_LENGTH = 249
MAX_NEW_PARTITIONS = 9_999  # of one topic in one request; one transaction of the store must hold them
MAX_REPLICATION = 32_767  # it is an int16 on the wire
USE_DEFAULT = -1
METADATA_LOG = "__cluster_metadata"  # Apache Kafka's own log: its directory must stay recognisable

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create. Its assignment has (partition index, replicas) pairs, as on the wire."""

    name: str
    partitions: int = USE_DEFAULT
    replication: int = USE_DEFAULT
    assignment: Sequence[tuple[int, Sequence[int]]] = ()
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """The broker's num.partitions and default.replication.factor."""

    partitions: int = 1
    replication: int = 1


def create_topic(
    image: ClusterImage, spec: TopicSpec, *, topic_id: UUID, defaults: TopicDefaults, start: int = 0
) -> TopicCreated | Refusal:
    """`topic_id` is a fresh random UUID; `start` (any number) decides which broker leads partition 0."""
    if topic_id in RESERVED or topic_id in image.topics_by_id:
        raise ValueError(f"{topic_id} cannot become a topic's id")
    refusal = check_new_name(image, spec.name)
    if refusal:
        return refusal
    replicas = _explicit(image, spec) if spec.assignment else _placed(image, spec, defaults, start)
    if isinstance(replicas, Refusal):
        return replicas
    return TopicCreated(spec.name, topic_id, _new_partitions(image, replicas, 0), dict(spec.config))


def add_partitions(
    image: ClusterImage,
    name: str,
    total: int,
    assignment: Sequence[Sequence[int]] | None = None,
    *,
    start: int = 0,
) -> PartitionsAdded | Refusal:
    """Extend a topic to `total` partitions; `assignment` names the replicas of each new one, or is None."""
    topic = image.topics.get(name)
    if topic is None:
        return unknown_topic()
    if topic.internal:  # the number maps groups and transactional ids to partitions: another one would lose them
        return Refusal(WireError.INVALID_REQUEST, f"The number of partitions of internal topic {name} is fixed.")
    refusal = _not_an_increase(topic, total)
    if refusal:
        return refusal
    count, added = len(topic.partitions), total - len(topic.partitions)
    replication = len(target_of(topic.partitions[0]))  # during a reassignment there are more
    if assignment is None:
        replicas = _place(image, added, replication, start, first_index=count)
    else:
        replicas = _explicit_growth(image, assignment, added, replication)
    if isinstance(replicas, Refusal):
        return replicas
    return PartitionsAdded(name, _new_partitions(image, replicas, count))


def delete_topic(
    image: ClusterImage, *, name: str | None = None, topic_id: UUID | None = None
) -> TopicDeleted | Refusal:
    """By name or by id, whichever is given."""
    if topic_id is not None:
        topic = image.topics_by_id.get(topic_id)
        return TopicDeleted(topic.name) if topic else unknown_topic_id()
    return TopicDeleted(name) if name is not None and name in image.topics else unknown_topic()


def unknown_topic() -> Refusal:
    return Refusal(WireError.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def unknown_topic_id() -> Refusal:
    return Refusal(WireError.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")


def check_new_name(image: ClusterImage, name: str) -> Refusal | None:
    """Whether a topic of this name may be created now."""
    if name == METADATA_LOG:
        return Refusal(WireError.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    problem = name_problem(name)
    if problem:
        return Refusal(WireError.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    if name in image.topics:
        return Refusal(WireError.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = _colliding(image.topics, name)
    if other is not None:
        return Refusal(WireError.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    return None


def name_problem(name: str) -> str | None:
    """What is wrong with a topic's name, if anything."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _NAME.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def _colliding(names: Collection[str], name: str) -> str | None:
    """A topic that differs in '.' against '_' alone: metric names could not tell the two apart."""
    folded = name.replace(".", "_")
    if "_" not in folded:
        return None
    return min((other for other in names if other.replace(".", "_") == folded), default=None)


def _placed(
    image: ClusterImage, spec: TopicSpec, defaults: TopicDefaults, start: int
) -> list[tuple[int, ...]] | Refusal:
    partitions = defaults.partitions if spec.partitions == USE_DEFAULT else spec.partitions
    replication = defaults.replication if spec.replication == USE_DEFAULT else spec.replication
    if partitions < 1:
        return Refusal(WireError.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if not 1 <= replication <= MAX_REPLICATION:
        return Refusal(
            WireError.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    return _place(image, partitions, replication, start)


def _place(
    image: ClusterImage, partitions: int, replication: int, start: int, first_index: int = 0
) -> list[tuple[int, ...]] | Refusal:
    if partitions > MAX_NEW_PARTITIONS:
        return _too_many()
    cordoned = image.cordoned
    brokers = [broker for broker in image.brokers.values() if broker.id not in cordoned]
    if replication > len(brokers):
        why = f"only {len(brokers)} broker(s) are registered or some brokers have all their log directories cordoned."
        return Refusal(
            WireError.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication} time(s): The target replication factor of {replication} "
            f"cannot be reached because {why}",
        )
    staying = [broker for broker in brokers if not broker.leaving]
    enough = staying if len(staying) >= replication else brokers
    return place(enough, partitions, replication, start=start, first_index=first_index)


def _explicit(image: ClusterImage, spec: TopicSpec) -> list[tuple[int, ...]] | Refusal:
    for given, what in ((spec.replication, "replication factor"), (spec.partitions, "numPartitions")):
        if given != USE_DEFAULT:
            text = f"A manual partition assignment was specified, but {what} was not set to -1."
            return Refusal(WireError.INVALID_REQUEST, text)
    if len(spec.assignment) > MAX_NEW_PARTITIONS:
        return _too_many()
    by_index: dict[int, tuple[int, ...]] = {}
    for index, replicas in spec.assignment:
        if index in by_index:
            return _bad_assignment(f"Found multiple manual partition assignments for partition {index}")
        refusal = _check_replicas(image, replicas, len(next(iter(by_index.values()), replicas)))
        if refusal:
            return refusal
        by_index[index] = tuple(replicas)
    if sorted(by_index) != list(range(len(by_index))):
        return _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return [by_index[index] for index in range(len(by_index))]


def _explicit_growth(
    image: ClusterImage, assignment: Sequence[Sequence[int]], added: int, replication: int
) -> list[tuple[int, ...]] | Refusal:
    if len(assignment) != added:
        given = f"only {len(assignment)} assignment(s) were specified."
        return _bad_assignment(f"Attempted to add {added} additional partition(s), but {given}")
    if added > MAX_NEW_PARTITIONS:
        return _too_many()
    for replicas in assignment:
        refusal = _check_replicas(image, replicas, replication)
        if refusal:
            return refusal
    return [tuple(replicas) for replicas in assignment]


def _check_replicas(image: ClusterImage, replicas: Sequence[int], replication: int) -> Refusal | None:
    what = "The manual partition assignment includes"
    if not replicas:
        return _bad_assignment(f"{what} an empty replica list.")
    for broker in sorted(replicas):
        if broker not in image.brokers:
            return _bad_assignment(f"{what} broker {broker}, but no such broker is registered.")
        if replicas.count(broker) > 1:
            return _bad_assignment(f"{what} the broker {broker} more than once.")
    if len(replicas) != replication:
        return _bad_assignment(
            f"{what} a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {replication} replica(s)."
        )
    return None


def _not_an_increase(topic: Topic, total: int) -> Refusal | None:
    count = len(topic.partitions)
    if total == count:
        return Refusal(WireError.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if total < count:
        text = f"The topic {topic.name} currently has {count} partition(s); {total} would not be an increase."
        return Refusal(WireError.INVALID_PARTITIONS, text)
    return None


def _bad_assignment(message: str) -> Refusal:
    return Refusal(WireError.INVALID_REPLICA_ASSIGNMENT, message)


def _too_many() -> Refusal:
    return Refusal(WireError.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _new_partitions(
    image: ClusterImage, replicas: Sequence[tuple[int, ...]], first_index: int
) -> tuple[PartitionState, ...]:
    """All replicas start in sync, but for those on brokers in controlled shutdown, which copy nothing any more."""
    leaving = {broker.id for broker in image.brokers.values() if broker.leaving}
    states = []
    for index, brokers in enumerate(replicas, first_index):
        isr = tuple(each for each in brokers if each not in leaving) or brokers
        states.append(PartitionState(index, brokers, isr=isr, leader=isr[0]))
    return tuple(states)
