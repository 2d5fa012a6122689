"""Portions: whatever is changed, ZooKeeper takes it. Sizes are those of the requests that would really be sent."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from moldau.base.tree import Create, Op, Set
from moldau.metadata import znodes
from moldau.metadata.changes import (
    Change,
    ChangeSet,
    DocumentsChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
    apply,
)
from moldau.metadata.elections import ElectionRules, broker_failure_changes
from moldau.metadata.image import Broker, ClusterImage, PartitionState
from moldau.metadata.reassignment import reassign
from moldau.metadata.splitting import TRANSACTION_BYTES, count_fitting, split_change
from moldau.metadata.topics import MAX_NEW_PARTITIONS
from moldau.store.zookeeper import MAX_REQUEST_BYTES

OP_BYTES, CREATE_BYTES = 24, 48
CHROOT = len("/moldau/production")
RULES = ElectionRules(lambda _: 2, lambda _: False)


def size(ops: Iterable[Op]) -> int:
    return sum(
        OP_BYTES
        + CHROOT
        + len(op.path)
        + (len(op.data) if isinstance(op, Create | Set) else 0)
        + (CREATE_BYTES if isinstance(op, Create) else 0)
        for op in ops
    )


def made(image: ClusterImage, change: Change) -> tuple[ClusterImage, int]:
    """The image after a change, made in portions; and how many those were. None is too large."""
    pieces = split_change(change, image)
    for piece in pieces:
        for topic in znodes.large_topics(piece):
            assert all(size(ops) < MAX_REQUEST_BYTES for ops in znodes.staging_ops(topic, 1))
        assert size(znodes.ops_for(piece, image)) < MAX_REQUEST_BYTES
        image = apply(image, piece)
    return image, len(pieces)


def created(name: str, number: int, count: int, replicas: tuple[int, ...]) -> TopicCreated:
    states = tuple(PartitionState(index, replicas, replicas, replicas[0]) for index in range(count))
    return TopicCreated(name, UUID(int=number + 1), states, {})


def cluster(ids: Iterable[int]) -> ClusterImage:
    return ClusterImage(controller_epoch=1, brokers={each: Broker(each, {}) for each in ids})


@pytest.mark.parametrize(
    ("topics", "length", "ids"),
    [
        ((1, 9_999), 60, (1001, 1002, 1003, 1004)),
        ((2, 2_000), 249, tuple(range(101, 108))),
        ((8, 400), 249, (1, 2, 3, 4)),
        ((30, 40), 249, (1, 2, 3, 4)),
    ],
)
def test_whatever_is_changed_the_store_takes_it(topics: tuple[int, int], length: int, ids: tuple[int, ...]) -> None:
    many, count = topics
    image, names = cluster(ids), [f"{number:04}".rjust(length, "t") for number in range(many)]
    for number, name in enumerate(names):
        image, pieces = made(image, created(name, number, count, ids[:-1]))
        assert pieces == 1, "nobody sees a topic in part"
    image, _ = made(image, ChangeSet(broker_failure_changes(image, ids[:1], RULES)))
    moves = [reassign(image, name, index, ids[1:]) for name in names for index in (0, 1)]
    image, _ = made(image, ChangeSet(tuple(each for each in moves if not isinstance(each, ChangeSet))))  # type: ignore[misc]
    image, _ = made(image, ChangeSet(tuple(TopicDeleted(name) for name in names)))
    assert not image.topics


def test_one_move_in_each_of_many_large_topics_is_not_one_transaction() -> None:
    """A move writes the assignment of its whole topic."""
    image = cluster(range(1, 5))
    for number in range(12):
        image = apply(image, created(f"t{number}", number, 6_000, (1, 2, 3)))
    moves = [reassign(image, f"t{number}", 0, (2, 3, 4)) for number in range(12)]
    whole = ChangeSet(tuple(moves))  # type: ignore[arg-type]
    assert size(znodes.ops_for(whole, image)) > MAX_REQUEST_BYTES
    after, pieces = made(image, whole)
    assert 1 < pieces < 6
    assert all(topic.partitions[0].adding == (4,) for topic in after.topics.values())
    assert 0 < count_fitting(moves, image) < 12  # type: ignore[arg-type]


def test_a_topic_grows_to_tens_of_thousands_of_partitions() -> None:
    start = 3 * MAX_NEW_PARTITIONS
    image = apply(cluster(range(1, 4)), created("t", 0, start, (1, 2, 3)))
    added = tuple(PartitionState(start + n, (1, 2, 3), (1, 2, 3), 1) for n in range(MAX_NEW_PARTITIONS))
    image, _ = made(image, PartitionsAdded("t", added))
    assert len(image.topics["t"].partitions) == start + MAX_NEW_PARTITIONS


@pytest.mark.parametrize("count", [1, znodes.CREATED_AT_ONCE, znodes.CREATED_AT_ONCE + 1])
def test_a_new_topic_is_written_as_it_is_read(count: int) -> None:
    change = created("t", 0, count, (1, 2))
    image = ClusterImage(controller_epoch=0)
    nodes = {op.path: op.data for op in znodes.founding_ops("c") if isinstance(op, Create)}
    for ops in [*(ops for topic in znodes.large_topics(change) for ops in znodes.staging_ops(topic, 0))]:
        nodes |= {op.path: op.data for op in ops if isinstance(op, Create | Set)}
        assert not znodes.image_from(nodes).topics, "nobody sees it yet"
    ops = znodes.ops_for(change, image)
    nodes |= {op.path: op.data for op in ops if isinstance(op, Create | Set)}
    assert znodes.image_from(nodes).topics == apply(image, change).topics
    assert size(ops) < TRANSACTION_BYTES
    (entry,) = [op for op in ops if op.path == znodes.entry_path(1)]
    assert isinstance(entry, Create)
    assert znodes.feed_entry(entry.path, entry.data) == change


def test_ten_thousand_documents_are_several_transactions() -> None:
    texts = {f"/kafka-acl/Topic/{number:05}": '{"acls":["' + "ä" * 200 + '"]}' for number in range(10_000)}
    image, pieces = made(cluster(range(1, 4)), DocumentsChanged(texts))
    assert pieces > 1
    assert image.documents == texts
    image, _ = made(image, DocumentsChanged(dict.fromkeys(texts)))
    assert not image.documents
