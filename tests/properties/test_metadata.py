"""Metadata: whatever changes happen, the image held, the tree written and the feed replayed are the same thing."""

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from moldau.base.errors import Refusal
from moldau.base.tree import ANY_VERSION, Check, Create, Delete, Op, Set, parent_of
from moldau.metadata import znodes
from moldau.metadata.changes import (
    BrokerConfigured,
    BrokerGone,
    BrokerRegistered,
    Change,
    ChangeSet,
    ControllerElected,
    DocumentsChanged,
    FeaturesFinalized,
    GroupConfigured,
    PartitionChanged,
    ProducerIdsAllocated,
    TopicConfigured,
    apply,
    fold,
    from_json,
    to_json,
)
from moldau.metadata.image import Broker, ClusterImage, Endpoint
from moldau.metadata.placement import place
from moldau.metadata.topics import TopicDefaults, TopicSpec, add_partitions, create_topic, delete_topic

NAMES = ("a", "b", "a.b", "a_b", "c-1")
CONFIGS = st.dictionaries(st.sampled_from(("retention.ms", "cleanup.policy")), st.text(max_size=5))
BROKERS = st.builds(
    Broker,
    id=st.integers(0, 4),
    endpoints=st.dictionaries(
        st.sampled_from(("PLAINTEXT", "SSL")),
        st.builds(Endpoint, st.sampled_from(("localhost", "10.0.0.1", "::1")), st.integers(1, 65535)),
    ),
    rack=st.sampled_from((None, "r1", "r2")),
)


# Unlike topics, groups may be called anything.
GROUPS = st.sampled_from(("g", "a/b", ".", "..", "%2E", "grüße an alle", "\x01")) | st.text(min_size=1, max_size=3)


DOCUMENTS = st.sampled_from(
    (
        "/config/users/alice",
        "/config/users/alice/clients/app",
        "/config/users/alice/clients/<default>",
        "/config/clients/app",
        "/kafka-acl/Topic/a",
        "/kafka-acl/Topic/b",
        "/moldau/organisations/acme",
    )
)


def wishes() -> st.SearchStrategy[tuple[object, ...]]:
    name = st.sampled_from(NAMES)
    single = st.one_of(
        st.tuples(st.just("create"), name, st.integers(1, 4), st.integers(1, 3), st.integers(0, 9), CONFIGS),
        st.tuples(st.just("grow"), name, st.integers(1, 6), st.integers(0, 9)),
        st.tuples(st.just("delete"), name),
        st.tuples(st.just("configure"), name, CONFIGS),
        st.tuples(st.just("configure broker"), st.sampled_from(("", "1", "2")), CONFIGS),
        st.tuples(st.just("configure group"), GROUPS, CONFIGS),
        st.tuples(st.just("documents"), st.dictionaries(DOCUMENTS, st.none() | st.text(min_size=1, max_size=5))),
        st.tuples(st.just("lead"), name, st.integers(0, 3), st.lists(st.integers(0, 4), min_size=1, max_size=3)),
        st.tuples(st.just("register"), BROKERS),
        st.tuples(st.just("gone"), st.integers(0, 4)),
        st.tuples(st.just("elect"), st.integers(0, 4)),
        st.tuples(st.just("finalize"), st.dictionaries(st.sampled_from(("x.version", "y")), st.integers(1, 3))),
        st.tuples(st.just("producer ids"), st.integers(0, 4)),
    )
    return single | st.tuples(st.just("batch"), st.lists(single, min_size=1, max_size=4))


def decide(image: ClusterImage, wish: tuple[object, ...], number: int) -> Change | Refusal | None:
    match wish:
        case ("create", str(name), int(partitions), int(replication), int(start), Mapping() as config):
            spec = TopicSpec(name, partitions, replication, config=config)
            return create_topic(image, spec, topic_id=UUID(int=number + 2), defaults=TopicDefaults(), start=start)
        case ("grow", str(name), int(total), int(start)):
            return add_partitions(image, name, total, start=start)
        case ("delete", str(name)):
            return delete_topic(image, name=name)
        case ("configure", str(name), Mapping() as config):
            return TopicConfigured(name, config) if name in image.topics else None
        case ("configure broker", str(name), Mapping() as config):
            return BrokerConfigured(name, config)
        case ("configure group", str(name), Mapping() as config):
            return GroupConfigured(name, config)
        case ("documents", dict() as documents):
            return DocumentsChanged(documents)
        case ("lead", str(name), int(index), list() as replicas):
            old = image.partition(name, index)
            return (
                PartitionChanged(name, index, tuple(replicas), (replicas[0],), 1, old.leader_epoch + 1) if old else None
            )
        case ("register", Broker() as broker):
            return BrokerRegistered(broker)
        case ("gone", int(broker_id)):
            return BrokerGone(broker_id) if broker_id in image.brokers else None
        case ("elect", int(broker_id)):
            return ControllerElected(broker_id) if image.controller_id == -1 else None
        case ("finalize", Mapping() as features):
            return FeaturesFinalized(features)
        case ("producer ids", int(broker_id)):
            return ProducerIdsAllocated(broker_id, image.next_producer_id + 1000)
        case ("batch", list() as parts):
            return batch(image, parts, number)
    raise AssertionError(wish)


def batch(image: ClusterImage, parts: list[tuple[object, ...]], number: int) -> ChangeSet | None:
    changes: list[Change] = []
    for place_, part in enumerate(parts):
        change = decide(image, part, number + 1000 * (place_ + 1))
        if change is not None and not isinstance(change, Refusal):
            changes.append(change)
            image = fold(image, change)
    return ChangeSet(tuple(changes)) if changes else None


class StrictTree:
    """The smallest store that checks everything which ZooKeeper would."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {"/": (b"", 0)}

    def multi(self, ops: list[Op]) -> None:
        for op in ops:
            if isinstance(op, Create):
                assert op.path not in self.nodes
                assert parent_of(op.path) in self.nodes
                self.nodes[op.path] = (op.data, 0)
                continue
            _, version = self.nodes[op.path]
            assert op.version in (ANY_VERSION, version)
            match op:
                case Set():
                    self.nodes[op.path] = (op.data, version + 1)
                case Delete():
                    assert not any(parent_of(path) == op.path for path in self.nodes if path != "/")
                    del self.nodes[op.path]
                case Check():
                    pass

    def data(self) -> dict[str, bytes]:
        return {path: data for path, (data, _) in self.nodes.items()}


@given(st.lists(wishes(), max_size=25))
def test_held_written_and_replayed_images_are_the_same(asked: list[tuple[object, ...]]) -> None:
    store = StrictTree()
    store.multi(znodes.founding_ops("id"))
    image = founded = znodes.image_from(store.data())
    brokers = [("register", Broker(broker_id, {}, rack=f"r{broker_id % 2}")) for broker_id in range(3)]
    for number, wish in enumerate([*brokers, *asked]):
        change = decide(image, wish, number)
        if change is None or isinstance(change, Refusal):
            continue
        assert from_json(to_json(change)) == change
        store.multi(znodes.ops_for(change, image))
        image = apply(image, change)
        assert znodes.image_from(store.data()) == image
        assert {topic.id: topic for topic in image.topics.values()} == image.topics_by_id
    replayed = founded
    for path in sorted(path for path in store.nodes if path.startswith(znodes.FEED + "/")):
        replayed = apply(replayed, znodes.feed_entry(path, store.data()[path]))
    assert replayed == image


@given(
    racks=st.lists(st.sampled_from((None, "r1", "r2", "r3")), min_size=1, max_size=8),
    partitions=st.integers(1, 40),
    start=st.integers(0, 100),
    first_index=st.integers(0, 20),
    data=st.data(),
)
def test_placement_is_even_and_spreads_over_racks(racks, partitions, start, first_index, data) -> None:
    brokers = [Broker(10 + i, {}, rack) for i, rack in enumerate(racks)]
    rack_of = {broker.id: broker.rack for broker in brokers}
    replication = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, partitions, replication, start=start, first_index=first_index)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == replication
        assert set(replicas) <= rack_of.keys()
        assert len({rack_of[id_] for id_ in replicas}) == min(replication, len(set(racks)))
    leads = Counter(replicas[0] for replicas in placed)
    counts = [leads[broker.id] for broker in brokers]
    assert max(counts) - min(counts) <= 1


@given(count=st.integers(2, 8), start=st.integers(0, 100), data=st.data())
def test_without_racks_every_broker_gets_its_share_of_replicas(count: int, start: int, data: st.DataObject) -> None:
    replication = data.draw(st.integers(1, count))
    rounds = count * (count - 1)  # after so many partitions every pair of brokers has had its turn
    placed = place([Broker(i, {}) for i in range(count)], rounds, replication, start=start)
    shares = Counter(broker for replicas in placed for broker in replicas)
    assert set(shares.values()) == {rounds * replication // count}


@given(racks=st.integers(2, 4), brokers=st.integers(1, 4), start=st.integers(0, 100), data=st.data())
def test_brokers_of_equal_racks_get_equal_shares_of_replicas(
    racks: int, brokers: int, start: int, data: st.DataObject
) -> None:
    replication = data.draw(st.integers(1, racks))
    count = racks * brokers
    everyone = [Broker(number, {}, f"rack {number // brokers}") for number in range(count)]
    placed = place(everyone, count * (count - 1), replication, start=start)
    shares = Counter(broker for replicas in placed for broker in replicas)
    assert max(shares.values()) - min(shares.values()) <= replication
    assert all(len({broker // brokers for broker in replicas}) == replication for replicas in placed)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 9))
def test_growing_continues_the_round(first: int, more: int, start: int) -> None:
    brokers = [Broker(i, {}) for i in range(5)]
    whole = place(brokers, first + more, 3, start=start)
    assert whole == place(brokers, first, 3, start=start) + place(brokers, more, 3, start=start, first_index=first)
