"""Cuts changes into portions that a store takes in one transaction: ZooKeeper's limit is 1 MB, feed entry included.

Pure. What one decision changes goes into as few portions as possible. A topic of thousands of partitions is created
with its first ones and grows by the others.
"""

from collections.abc import Iterable, Iterator

from moldau.metadata.changes import (
    Batch,
    BrokerConfigured,
    Change,
    GroupConfigured,
    PartitionChanged,
    PartitionsAdded,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.metadata.image import ClusterImage
from moldau.metadata.tree import DELETED_AT_ONCE

PORTION_BYTES = 500_000  # half of what ZooKeeper takes by default

# What a change weighs, generously: the paths and data of its nodes, the framing of operations, and its feed entry.
SMALL = 600
PER_PARTITION = 400
PER_DELETED = 330  # two paths with the longest of names
NAMES = 4  # how often a topic's name is written for each of its partitions


def weight(change: Change, image: ClusterImage) -> int:
    """About how many bytes the change takes in a transaction on this image."""
    match change:
        case TopicCreated() | PartitionsAdded():
            return SMALL + len(change.partitions) * _partition_weight(change.topic)
        case TopicDeleted():
            known = image.topics.get(change.topic)
            count = len(known.partitions) if known else 0
            return SMALL + (0 if count > DELETED_AT_ONCE else count) * PER_DELETED
        case PartitionChanged():
            return _partition_weight(change.topic)
        case TopicConfigured() | BrokerConfigured() | GroupConfigured():
            return SMALL + 4 * sum(len(name) + len(value) + 8 for name, value in change.config.items())
        case Batch():
            return sum(weight(each, image) for each in change.changes)
    return SMALL


def _partition_weight(topic: str) -> int:
    return PER_PARTITION + NAMES * len(topic)


def portions(change: Change, image: ClusterImage, limit: int = PORTION_BYTES) -> list[Change]:
    """The change itself, if it is small enough; else several that have the same effect one after the other."""
    if weight(change, image) <= limit:
        return [change]
    cut = [piece for leaf in _leaves(change) for piece in _pieces(leaf, limit)]
    return list(_packed(cut, image, limit))


def _leaves(change: Change) -> Iterator[Change]:
    if isinstance(change, Batch):
        for each in change.changes:
            yield from _leaves(each)
    else:
        yield change


def _pieces(change: Change, limit: int) -> Iterator[Change]:
    if not isinstance(change, TopicCreated | PartitionsAdded):
        yield change
        return
    size = max((limit - SMALL) // _partition_weight(change.topic), 1)
    for start in range(0, max(len(change.partitions), 1), size):
        part = change.partitions[start : start + size]
        if start == 0 and isinstance(change, TopicCreated):
            yield TopicCreated(change.topic, change.topic_id, part, change.config)
        else:
            yield PartitionsAdded(change.topic, part)


def _packed(changes: Iterable[Change], image: ClusterImage, limit: int) -> Iterator[Change]:
    pack: list[Change] = []
    load = 0
    for change in changes:
        heavy = weight(change, image)
        if pack and load + heavy > limit:
            yield Batch(tuple(pack))
            pack, load = [], 0
        pack.append(change)
        load += heavy
    if pack:
        yield Batch(tuple(pack))
