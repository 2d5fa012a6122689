"""Cuts changes into portions that a store takes in one transaction: ZooKeeper's limit is 1 MB, feed entry included.

Pure. What one decision changes goes into as few portions as possible. A topic that grows by thousands of partitions
grows in steps; one that is created with them has their nodes made before (`znodes.staging_ops`), so it is never seen in
part.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from moldau.metadata.changes import (
    BrokerConfigured,
    Change,
    ChangeSet,
    GroupConfigured,
    PartitionChanged,
    PartitionsAdded,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.metadata.image import ClusterImage, PartitionState
from moldau.metadata.znodes import CREATED_AT_ONCE, DELETED_AT_ONCE

TRANSACTION_BYTES = 500_000  # half of what ZooKeeper takes by default
WITH_TOPICS = 1.8  # so much of a portion may it be, together with the assignments that have to be written as a whole

# What a change weighs, generously: the paths and data of its nodes, the framing of operations, and its feed entry.
SMALL = 600
PER_PARTITION = 400
PER_DELETED = 330  # two paths with the longest of names
NAMES = 4  # how often a topic's name is written for each of its partitions
IDS = 4  # and its replicas' ids
PER_PLACE = 12  # in a topic's assignment, beside the ids


class _Load:
    """What a transaction takes, as changes are added to it. An assignment is written once, whatever changes of it."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._topics: dict[str, int] = {}
        self.own = 0
        self.assignments = 0

    def fits(self, limit: int) -> bool:
        return self.own <= limit and self.own + self.assignments <= WITH_TOPICS * limit

    def add(self, change: Change) -> None:
        for each in _leaves(change):
            self.own += _weight(each, self._image)
            if isinstance(each, PartitionsAdded):
                self._rewrite(each.topic, _grown(each, self._image))
            elif isinstance(each, PartitionChanged) and each.topic not in self._topics and _moves(each, self._image):
                self._rewrite(each.topic, _assignment(self._image.topics[each.topic].partitions))

    def _rewrite(self, topic: str, size: int) -> None:
        self.assignments += size - self._topics.get(topic, 0)
        self._topics[topic] = size


def _weight(change: Change, image: ClusterImage) -> int:
    match change:
        case TopicCreated() if len(change.partitions) > CREATED_AT_ONCE:
            return SMALL + 2 * _assignment(change.partitions) + _config_weight(change.config)
        case TopicCreated():
            partitions = sum(_partition_weight(change.topic, each.replicas) for each in change.partitions)
            return SMALL + partitions + _config_weight(change.config)
        case PartitionsAdded():
            return SMALL + sum(_partition_weight(change.topic, each.replicas) for each in change.partitions)
        case TopicDeleted():
            known = image.topics.get(change.topic)
            count = len(known.partitions) if known else 0
            return SMALL + (0 if count > DELETED_AT_ONCE else count) * PER_DELETED
        case PartitionChanged():
            return _partition_weight(change.topic, change.replicas)
        case TopicConfigured() | BrokerConfigured() | GroupConfigured():
            return SMALL + _config_weight(change.config)
    return SMALL


def _config_weight(config: Mapping[str, str]) -> int:
    return 4 * sum(len(name) + len(value) + 8 for name, value in config.items())


def _partition_weight(topic: str, replicas: Sequence[int]) -> int:
    return PER_PARTITION + NAMES * len(topic) + IDS * _ids(replicas)


def _ids(replicas: Sequence[int]) -> int:
    return sum(len(str(each)) + 1 for each in replicas)


def _assignment(partitions: Iterable[PartitionState]) -> int:
    """What a topic's node says about these partitions."""
    return sum(PER_PLACE + _ids((*each.replicas, *each.adding, *each.removing)) for each in partitions)


def _grown(change: PartitionsAdded, image: ClusterImage) -> int:
    known = image.topics.get(change.topic)
    before = known.partitions if known else ()
    last = change.partitions[-1]
    return _assignment(before) + (last.index + 1 - len(before)) * _assignment([last])


def _moves(change: PartitionChanged, image: ClusterImage) -> bool:
    """Whether the topic's assignment has to be written anew."""
    old = image.partition(change.topic, change.index)
    new = (change.replicas, change.adding, change.removing)
    return old is not None and (old.replicas, old.adding, old.removing) != new


def split_change(change: Change, image: ClusterImage, limit: int = TRANSACTION_BYTES) -> list[Change]:
    """The change itself, if it is small enough; else several that have the same effect one after the other."""
    if count_fitting([change], image, limit):
        return [change]
    cut = [piece for leaf in _leaves(change) for piece in _pieces(leaf, limit)]
    return list(_packed(cut, image, limit))


def count_fitting(changes: Sequence[Change], image: ClusterImage, limit: int = TRANSACTION_BYTES) -> int:
    """How many of them, from the first on, go into one portion."""
    load = _Load(image)
    for count, change in enumerate(changes):
        load.add(change)
        if not load.fits(limit):
            return count
    return len(changes)


def _leaves(change: Change) -> Iterator[Change]:
    if isinstance(change, ChangeSet):
        for each in change.changes:
            yield from _leaves(each)
    else:
        yield change


def _pieces(change: Change, limit: int) -> Iterator[Change]:
    if not isinstance(change, PartitionsAdded):
        yield change
        return
    heaviest = max(_partition_weight(change.topic, each.replicas) for each in change.partitions)
    size = max((limit - SMALL) // heaviest, 1)
    for start in range(0, len(change.partitions), size):
        yield PartitionsAdded(change.topic, change.partitions[start : start + size])


def _packed(changes: Iterable[Change], image: ClusterImage, limit: int) -> Iterator[Change]:
    pack: list[Change] = []
    load = _Load(image)
    for change in changes:
        load.add(change)
        if pack and not load.fits(limit):
            yield ChangeSet(tuple(pack))
            pack, load = [], _Load(image)
            load.add(change)
        pack.append(change)
    if pack:
        yield ChangeSet(tuple(pack))
