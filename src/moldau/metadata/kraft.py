"""Topics, configs, features and producer ids in the KRaft metadata log of Apache Kafka.

A pure fold over decoded records, from a snapshot or from the log after it; files are read elsewhere. Moldau reads such
a log once, to open a directory that Kafka wrote, and never writes one. Records are recognised by their class names;
kinds that are not needed are skipped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from moldau.metadata.changes import TopicCreated
from moldau.metadata.image import PartitionState

TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32  # ConfigResource types
NO_LEADER_CHANGE = -2  # PartitionChangeRecord.leader; -1 means that there is none


@dataclass(frozen=True, slots=True)
class KraftTopic:
    name: str
    id: UUID
    partitions: tuple[PartitionState, ...]
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class KraftImage:
    topics: tuple[KraftTopic, ...]  # by name
    broker_configs: Mapping[str, Mapping[str, str]]  # by broker id as text, "" for all
    group_configs: Mapping[str, Mapping[str, str]]  # by group id
    features: Mapping[str, int]
    next_producer_id: int  # ids below it are taken


@dataclass(slots=True)
class _Fold:
    names: dict[UUID, str] = field(default_factory=dict)
    partitions: dict[UUID, dict[int, PartitionState]] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0


def image_from_kraft(records: Iterable[object]) -> KraftImage:
    fold = _Fold()
    for record in _committed(records):
        step = _STEPS.get(type(record).__name__)
        if step is not None:
            step(fold, record)
    topics = [
        KraftTopic(name, topic_id, _in_order(fold, topic_id), dict(fold.configs.get((TOPIC_RESOURCE, name), {})))
        for topic_id, name in fold.names.items()
    ]
    return KraftImage(
        topics=tuple(sorted(topics, key=lambda topic: topic.name)),
        broker_configs=_configs(fold, BROKER_RESOURCE),
        group_configs=_configs(fold, GROUP_RESOURCE),
        features=dict(fold.features),
        next_producer_id=fold.next_producer_id,
    )


def _committed(records: Iterable[object]) -> Iterator[object]:
    """KIP-868: records of a metadata transaction count when it ends; without an end they do not."""
    pending: list[object] | None = None
    for record in records:
        match type(record).__name__:
            case "BeginTransactionRecord":
                pending = []
            case "EndTransactionRecord":
                yield from pending or ()
                pending = None
            case "AbortTransactionRecord":
                pending = None
            case _ if pending is not None:
                pending.append(record)
            case _:
                yield record


def adopt(topic: KraftTopic, broker_id: int) -> TopicCreated:
    """The topic on a single node: this broker is the only replica and leads under the next leader epoch."""
    partitions = tuple(
        PartitionState(state.index, (broker_id,), (broker_id,), broker_id, leader_epoch=state.leader_epoch + 1)
        for state in topic.partitions
    )
    return TopicCreated(topic.name, topic.id, partitions, topic.config)


def _configs(fold: _Fold, resource: int) -> dict[str, Mapping[str, str]]:
    return {name: dict(config) for (kind, name), config in fold.configs.items() if kind == resource and config}


def _in_order(fold: _Fold, topic_id: UUID) -> tuple[PartitionState, ...]:
    partitions = fold.partitions.get(topic_id, {})
    if sorted(partitions) != list(range(len(partitions))):
        raise ValueError(f"The metadata log lacks partitions of topic {fold.names[topic_id]}.")
    return tuple(partitions[index] for index in range(len(partitions)))


def _topic(fold: _Fold, record: Any) -> None:
    fold.names[record.topic_id] = record.name


def _remove_topic(fold: _Fold, record: Any) -> None:
    name = fold.names.pop(record.topic_id, None)
    fold.partitions.pop(record.topic_id, None)
    if name is not None:
        fold.configs.pop((TOPIC_RESOURCE, name), None)


def _partition(fold: _Fold, record: Any) -> None:
    fold.partitions.setdefault(record.topic_id, {})[record.partition_id] = PartitionState(
        index=record.partition_id,
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
    )


def _partition_change(fold: _Fold, record: Any) -> None:
    """Fields that are given change; a given leader, even the same one, starts a new leader epoch."""
    partitions = fold.partitions.get(record.topic_id, {})
    old = partitions.get(record.partition_id)
    if old is None:
        raise ValueError(f"The metadata log changes {record.topic_id}-{record.partition_id} before creating it.")
    led = record.leader != NO_LEADER_CHANGE
    partitions[record.partition_id] = replace(
        old,
        replicas=old.replicas if record.replicas is None else tuple(record.replicas),
        isr=old.isr if record.isr is None else tuple(record.isr),
        leader=record.leader if led else old.leader,
        leader_epoch=old.leader_epoch + led,
        partition_epoch=old.partition_epoch + 1,
    )


def _config(fold: _Fold, record: Any) -> None:
    config = fold.configs.setdefault((record.resource_type, record.resource_name), {})
    if record.value is None:
        config.pop(record.name, None)
    else:
        config[record.name] = record.value


def _feature(fold: _Fold, record: Any) -> None:
    if record.feature_level == 0:  # level 0: the feature is off
        fold.features.pop(record.name, None)
    else:
        fold.features[record.name] = record.feature_level


def _producer_ids(fold: _Fold, record: Any) -> None:
    fold.next_producer_id = max(fold.next_producer_id, record.next_producer_id)


_STEPS: dict[str, Callable[[_Fold, Any], None]] = {
    "TopicRecord": _topic,
    "RemoveTopicRecord": _remove_topic,
    "PartitionRecord": _partition,
    "PartitionChangeRecord": _partition_change,
    "ConfigRecord": _config,
    "FeatureLevelRecord": _feature,
    "ProducerIdsRecord": _producer_ids,
}
