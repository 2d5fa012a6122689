"""Splits large changes into transactions that ZooKeeper accepts: at most 1 MB each, feed entry included. Pure.

A change takes as few transactions as possible. Thousands of new partitions of a topic are added in steps. For a topic
that is created with thousands, the partitions' znodes are written before it (`znodes.staging_ops`), so that it never
appears in part.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from moldau.metadata.changes import (
    BrokerConfigured,
    Change,
    ChangeSet,
    DocumentsChanged,
    GroupConfigured,
    PartitionChanged,
    PartitionsAdded,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.metadata.documents import Changed
from moldau.metadata.image import ClusterImage, PartitionState
from moldau.metadata.znodes import CREATED_AT_ONCE, DELETED_AT_ONCE

TRANSACTION_BYTES = 500_000  # half of what ZooKeeper accepts by default
WITH_ASSIGNMENTS = 1.8  # times the limit, with the assignments of topics, which are written whole

# Upper bounds of what a change takes: paths and data of its znodes, framing of operations, its feed entry.
SMALL = 600
PER_PARTITION = 400
PER_DELETED = 330  # two paths with the longest topic name
NAMES = 4  # times that the topic name is written for each partition
IDS = 4  # and the replica ids
PATHS = 6  # times that the path of a document is written, in parts for the znodes above it
TEXTS = 3  # and its text: in the feed entry with escapes
PER_ASSIGNMENT = 12  # of a partition in its topic's assignment, beside the ids


class _Size:
    """The size of a transaction as changes are added to it. A topic's assignment is written once, and whole."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._topics: dict[str, int] = {}
        self.own = 0
        self.assignments = 0

    def fits(self, limit: int) -> bool:
        return self.own <= limit and self.own + self.assignments <= WITH_ASSIGNMENTS * limit

    def add(self, change: Change) -> None:
        for each in _leaves(change):
            self.own += _size_of(each, self._image)
            if isinstance(each, PartitionsAdded):
                self._rewrite(each.topic, _grown(each, self._image))
            elif isinstance(each, PartitionChanged) and each.topic not in self._topics and _moves(each, self._image):
                self._rewrite(each.topic, _assignment(self._image.topics[each.topic].partitions))

    def _rewrite(self, topic: str, size: int) -> None:
        self.assignments += size - self._topics.get(topic, 0)
        self._topics[topic] = size


def _size_of(change: Change, image: ClusterImage) -> int:
    match change:
        case TopicCreated() if len(change.partitions) > CREATED_AT_ONCE:
            return SMALL + 2 * _assignment(change.partitions) + _config_size(change.config)
        case TopicCreated():
            partitions = sum(_partition_size(change.topic, each.replicas) for each in change.partitions)
            return SMALL + partitions + _config_size(change.config)
        case PartitionsAdded():
            return SMALL + sum(_partition_size(change.topic, each.replicas) for each in change.partitions)
        case TopicDeleted():
            known = image.topics.get(change.topic)
            count = len(known.partitions) if known else 0
            return SMALL + (0 if count > DELETED_AT_ONCE else count) * PER_DELETED
        case PartitionChanged():
            return _partition_size(change.topic, change.replicas)
        case TopicConfigured() | BrokerConfigured() | GroupConfigured():
            return SMALL + _config_size(change.config)
        case DocumentsChanged():
            return sum(_document_size(path, text) for path, text in change.documents.items())
    return SMALL


def _config_size(config: Mapping[str, str]) -> int:
    return 4 * sum(len(name) + len(value) + 8 for name, value in config.items())


def _document_size(path: str, text: str | None) -> int:
    return SMALL + PATHS * len(path) + TEXTS * len(text or "")


def _document_pieces(documents: Changed, limit: int) -> Iterator[Changed]:
    piece: dict[str, str | None] = {}
    size = 0
    for path, text in documents.items():
        size += _document_size(path, text)
        if piece and size > limit:
            yield piece
            piece, size = {}, _document_size(path, text)
        piece[path] = text
    yield piece


def _partition_size(topic: str, replicas: Sequence[int]) -> int:
    return PER_PARTITION + NAMES * len(topic) + IDS * _ids(replicas)


def _ids(replicas: Sequence[int]) -> int:
    return sum(len(str(each)) + 1 for each in replicas)


def _assignment(partitions: Iterable[PartitionState]) -> int:
    """The size of these partitions in the topic's znode."""
    return sum(PER_ASSIGNMENT + _ids((*each.replicas, *each.adding, *each.removing)) for each in partitions)


def _grown(change: PartitionsAdded, image: ClusterImage) -> int:
    known = image.topics.get(change.topic)
    before = known.partitions if known else ()
    last = change.partitions[-1]
    return _assignment(before) + (last.index + 1 - len(before)) * _assignment([last])


def _moves(change: PartitionChanged, image: ClusterImage) -> bool:
    """Whether the change rewrites the topic's assignment."""
    old = image.partition(change.topic, change.index)
    new = (change.replicas, change.adding, change.removing)
    return old is not None and (old.replicas, old.adding, old.removing) != new


def split_change(change: Change, image: ClusterImage, limit: int = TRANSACTION_BYTES) -> list[Change]:
    """The change itself, if it is small enough; else several with the same effect, one after the other."""
    if count_fitting([change], image, limit):
        return [change]
    cut = [piece for leaf in _leaves(change) for piece in _pieces(leaf, limit)]
    return list(_packed(cut, image, limit))


def count_fitting(changes: Sequence[Change], image: ClusterImage, limit: int = TRANSACTION_BYTES) -> int:
    """How many of them, from the first on, fit into one transaction."""
    size = _Size(image)
    for count, change in enumerate(changes):
        size.add(change)
        if not size.fits(limit):
            return count
    return len(changes)


def _leaves(change: Change) -> Iterator[Change]:
    if isinstance(change, ChangeSet):
        for each in change.changes:
            yield from _leaves(each)
    else:
        yield change


def _pieces(change: Change, limit: int) -> Iterator[Change]:
    if isinstance(change, DocumentsChanged):
        yield from map(DocumentsChanged, _document_pieces(change.documents, limit))
        return
    if not isinstance(change, PartitionsAdded):
        yield change
        return
    heaviest = max(_partition_size(change.topic, each.replicas) for each in change.partitions)
    size = max((limit - SMALL) // heaviest, 1)
    for start in range(0, len(change.partitions), size):
        yield PartitionsAdded(change.topic, change.partitions[start : start + size])


def _packed(changes: Iterable[Change], image: ClusterImage, limit: int) -> Iterator[Change]:
    pack: list[Change] = []
    size = _Size(image)
    for change in changes:
        size.add(change)
        if pack and not size.fits(limit):
            yield ChangeSet(tuple(pack))
            pack, size = [], _Size(image)
            size.add(change)
        pack.append(change)
    if pack:
        yield ChangeSet(tuple(pack))
