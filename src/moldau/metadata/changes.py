"""Metadata changes as frozen values, and `apply`, the only way from one image to the next.

Kafka has metadata records for this. A change carries outcomes (the assignment, the new leader), not requests, so that
applying it cannot fail or differ between brokers. topics.py and its neighbours decide on changes.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any
from uuid import UUID

from moldau.base.errors import Refusal
from moldau.base.uuids import text_of, uuid_of
from moldau.metadata.documents import Changed, changed
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage, Endpoint, PartitionState, Topic


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    topic: str


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    topic: str
    partitions: tuple[PartitionState, ...]


@dataclass(frozen=True, slots=True)
class TopicConfigured:
    """The whole new config of a topic, not the difference."""

    topic: str
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BrokerConfigured:
    """The whole new config of a broker (its id as text), or of all ("")."""

    broker_name: str
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupConfigured:
    """The whole new config of a consumer group, which need not have members yet."""

    group: str
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DocumentsChanged:
    """New or changed documents by path, as a whole each; None for deleted ones."""

    documents: Changed


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """A partition's new replicas, ISR and leader; its partition epoch grows by one."""

    topic: str
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last: int = NO_BROKER


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker registered; its broker epoch is the number of this change."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class BrokerGone:
    broker_id: int
    expired: bool = False  # its ZooKeeper session ended, and removed the broker's znode


@dataclass(frozen=True, slots=True)
class BrokerLeaving:
    """A broker is in controlled shutdown: it stays registered, but gets no new partitions."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """This broker is the controller, under the next controller epoch."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class FeaturesFinalized:
    """All finalized feature levels, not the difference."""

    features: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """A block of producer ids, from the image's next one to before this, belongs to the broker."""

    broker_id: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Several changes in one transaction; they count as one."""

    changes: "tuple[Change, ...]"


Change = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | TopicConfigured
    | BrokerConfigured
    | GroupConfigured
    | DocumentsChanged
    | PartitionChanged
    | BrokerRegistered
    | BrokerGone
    | BrokerLeaving
    | ControllerElected
    | FeaturesFinalized
    | ProducerIdsAllocated
    | ChangeSet
)

Decide = Callable[[ClusterImage], Change | Refusal]


def apply(image: ClusterImage, change: Change) -> ClusterImage:
    """The image after a change; its version is one greater."""
    return replace(fold(image, change), version=image.version + 1)


def decide_each(image: ClusterImage, decides: Iterable[Decide]) -> list[Change | Refusal]:
    """Decide one after the other, each on the image that results from those before it."""
    decisions: list[Change | Refusal] = []
    for decide in decides:
        decision = decide(image)
        decisions.append(decision)
        if not isinstance(decision, Refusal):
            image = fold(image, decision)
    return decisions


def fold(image: ClusterImage, change: Change) -> ClusterImage:
    """As `apply`, but with the same version: a part of a change set does not count on its own."""
    match change:
        case TopicCreated():
            return _with_topic(image, Topic(change.topic, change.topic_id, change.partitions, change.config))
        case TopicDeleted():
            return _without_topic(image, change.topic)
        case PartitionsAdded():
            topic = image.topics[change.topic]
            return _with_topic(image, replace(topic, partitions=topic.partitions + change.partitions))
        case TopicConfigured():
            return _with_topic(image, replace(image.topics[change.topic], config=change.config))
        case PartitionChanged():
            return _with_partitions(image, (change,))
        case BrokerConfigured():
            return replace(image, broker_configs=_with_config(image.broker_configs, change.broker_name, change.config))
        case GroupConfigured():
            return replace(image, group_configs=_with_config(image.group_configs, change.group, change.config))
        case DocumentsChanged():
            return replace(image, documents=changed(image.documents, change.documents))
        case BrokerRegistered():
            broker = replace(change.broker, epoch=image.version + 1)
            return replace(image, brokers={**image.brokers, broker.id: broker})
        case BrokerGone():
            brokers = {id_: broker for id_, broker in image.brokers.items() if id_ != change.broker_id}
            controller = NO_BROKER if image.controller_id == change.broker_id else image.controller_id
            return replace(image, brokers=brokers, controller_id=controller)
        case BrokerLeaving():
            known = image.brokers.get(change.broker_id)
            if known is None:  # an image read from the znodes may lack it already
                return image
            return replace(image, brokers={**image.brokers, known.id: replace(known, leaving=True)})
        case ControllerElected():
            return replace(image, controller_id=change.broker_id, controller_epoch=image.controller_epoch + 1)
        case FeaturesFinalized():
            return replace(image, features=change.features, features_epoch=image.version + 1)
        case ProducerIdsAllocated():
            return replace(image, next_producer_id=change.next_producer_id)
        case ChangeSet():
            for partitions, parts in groupby(change.changes, key=lambda part: isinstance(part, PartitionChanged)):
                if partitions:  # a broker failure changes thousands: each topic is rebuilt once
                    image = _with_partitions(image, parts)  # type: ignore[arg-type]  # groupby's key says so
                else:
                    for part in parts:
                        image = fold(image, part)
            return image


def _with_topic(image: ClusterImage, topic: Topic) -> ClusterImage:
    return replace(
        image,
        topics={**image.topics, topic.name: topic},
        topics_by_id={**image.topics_by_id, topic.id: topic},
    )


def _without_topic(image: ClusterImage, name: str) -> ClusterImage:
    topics, by_id = dict(image.topics), dict(image.topics_by_id)
    del by_id[topics.pop(name).id]
    return replace(image, topics=topics, topics_by_id=by_id)


def _with_config(
    configs: Mapping[str, Mapping[str, str]], name: str, config: Mapping[str, str]
) -> Mapping[str, Mapping[str, str]]:
    """An empty config is stored as none."""
    others = {each: kept for each, kept in configs.items() if each != name}
    return {**others, name: config} if config else others


def _with_partitions(image: ClusterImage, changes: Iterable[PartitionChanged]) -> ClusterImage:
    states: dict[str, list[PartitionState]] = {}
    for change in changes:
        topic = states.get(change.topic)
        if topic is None:
            topic = states[change.topic] = list(image.topics[change.topic].partitions)
        topic[change.index] = _after(topic[change.index], change)
    topics, by_id = dict(image.topics), dict(image.topics_by_id)
    for name, partitions in states.items():
        new = replace(topics[name], partitions=tuple(partitions))
        topics[name] = by_id[new.id] = new
    return replace(image, topics=topics, topics_by_id=by_id)


def _after(old: PartitionState, change: PartitionChanged) -> PartitionState:
    return PartitionState(
        index=change.index,
        replicas=change.replicas,
        isr=change.isr,
        leader=change.leader,
        leader_epoch=change.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        adding=change.adding,
        removing=change.removing,
        elr=change.elr,
        last=change.last,
    )


# The change feed's form: {"change": "TopicCreated", "topic": …}. A field of one name has one type in every change.

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        TopicCreated,
        TopicDeleted,
        PartitionsAdded,
        TopicConfigured,
        BrokerConfigured,
        GroupConfigured,
        DocumentsChanged,
        PartitionChanged,
        BrokerRegistered,
        BrokerGone,
        BrokerLeaving,
        ControllerElected,
        FeaturesFinalized,
        ProducerIdsAllocated,
    )
} | {"Batch": ChangeSet}  # as earlier releases wrote it
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_json(change: Change) -> bytes:
    return json.dumps(_plain(change), separators=(",", ":")).encode()


def from_json(data: bytes) -> Change:
    """Raises ValueError for anything that `to_json` did not write."""
    try:
        return _change(json.loads(data))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a metadata change: {error!r}") from error


def _plain(change: Change) -> dict[str, Any]:
    kind = type(change)
    form: dict[str, Any] = {"change": _NAMES[kind]}
    for each in fields(kind):
        value = getattr(change, each.name)
        form[each.name] = _WRITE[each.name](value) if each.name in _WRITE else value
    return form


def _change(form: Mapping[str, Any]) -> Change:
    kind = _KINDS[form["change"]]
    values = {name: _READ[name](value) if name in _READ else value for name, value in form.items() if name != "change"}
    change: Change = kind(**values)
    return change


def _plain_partitions(partitions: Sequence[PartitionState]) -> list[tuple[Any, ...]]:
    """A partition in its initial state is written as its replicas alone: there may be thousands."""
    return [
        (s.index, s.replicas)
        if s == _new_partition(s.index, s.replicas)
        else (s.index, s.leader, s.leader_epoch, s.partition_epoch, s.replicas, s.isr, s.adding, s.removing, s.elr)
        for s in partitions
    ]


def _partitions(form: Sequence[Sequence[Any]]) -> tuple[PartitionState, ...]:
    return tuple(_new_partition(row[0], tuple(row[1])) if len(row) == 2 else _partition(*row) for row in form)


def _new_partition(index: int, replicas: tuple[int, ...]) -> PartitionState:
    return PartitionState(index, replicas, isr=replicas, leader=replicas[0] if replicas else NO_BROKER)


def _partition(
    index: int,
    leader: int,
    leader_epoch: int,
    partition_epoch: int,
    replicas: list[int],
    isr: list[int],
    *rest: list[int],
) -> PartitionState:
    adding, removing, elr = (tuple(each) for each in (*rest, [], [], [])[:3])  # which earlier releases did not have
    state = (index, tuple(replicas), tuple(isr), leader, leader_epoch, partition_epoch)
    return PartitionState(*state, adding=adding, removing=removing, elr=elr)


def _plain_broker(broker: Broker) -> dict[str, Any]:
    form = {"id": broker.id, "endpoints": dict(broker.endpoints), "rack": broker.rack, "leaving": broker.leaving}
    return {**form, "inter_broker_listener": broker.inter_broker_listener}


def _broker(form: Mapping[str, Any]) -> Broker:
    endpoints = {name: Endpoint(host, port) for name, (host, port) in form["endpoints"].items()}
    listener = form.get("inter_broker_listener", "")
    return Broker(form["id"], endpoints, form["rack"], leaving=form["leaving"], inter_broker_listener=listener)


_WRITE: dict[str, Callable[[Any], Any]] = {
    "topic_id": text_of,
    "partitions": _plain_partitions,
    "config": dict,
    "documents": dict,
    "features": dict,
    "broker": _plain_broker,
    "changes": lambda changes: [_plain(change) for change in changes],
}

_READ: dict[str, Callable[[Any], Any]] = {
    "topic_id": uuid_of,
    "partitions": _partitions,
    "replicas": tuple,
    "isr": tuple,
    "adding": tuple,
    "removing": tuple,
    "elr": tuple,
    "broker": _broker,
    "changes": lambda forms: tuple(_change(form) for form in forms),
}
