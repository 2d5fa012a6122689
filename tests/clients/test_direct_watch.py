"""Waiting for new records with the direct client, against a real broker."""

import threading
from collections.abc import Iterator

import pytest

from moldau.base.ids import TopicPartition
from moldau.client.direct import watch as watching
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.offsets import LATEST, READ_COMMITTED, OffsetAndTimestamp, list_offsets
from moldau.client.direct.transactions import TransactionalProducer
from moldau.client.direct.watch import Watch
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients import confluent

LONG_S = 30.0  # only a failure takes so long
SHORT_S = 0.05


@pytest.fixture
def cluster(broker: AnyBroker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap, timeout_s=20) as cluster:
        yield cluster


@pytest.fixture
def watch(cluster: Cluster) -> Iterator[Watch]:
    watch = Watch(cluster)
    yield watch
    watch.close()


def ends(cluster: Cluster, topic: str, partitions: int = 2) -> dict[TopicPartition, int]:
    found = list_offsets(cluster, {TopicPartition(topic, number): LATEST for number in range(partitions)})
    assert all(isinstance(each, OffsetAndTimestamp) for each in found.values())
    return {tp: each.offset for tp, each in found.items() if isinstance(each, OffsetAndTimestamp)}


def test_records_end_the_wait(broker: AnyBroker, cluster: Cluster, watch: Watch, create_topic: CreateTopic) -> None:
    topic = create_topic(2)
    assert not watch.wait(ends(cluster, topic), SHORT_S)
    for partition in (1, 0, 1):  # each from the ends that are known after the last one
        before = ends(cluster, topic)
        records = [{"value": b"new", "partition": partition}]
        writer = threading.Timer(SHORT_S, confluent.write, (broker.bootstrap, topic, records))
        writer.start()
        assert watch.wait(before, LONG_S)
        writer.join()
        assert not watch.wait(ends(cluster, topic), SHORT_S)


def test_records_that_came_between_two_waits_end_the_second(
    broker: AnyBroker, cluster: Cluster, watch: Watch, create_topic: CreateTopic
) -> None:
    topic = create_topic(2)
    before = ends(cluster, topic)
    assert not watch.wait(before, SHORT_S)
    confluent.write(broker.bootstrap, topic, [{"value": b"new", "partition": 0}])
    assert watch.wait(before, LONG_S)


def test_a_fetch_that_ends_at_the_broker_is_sent_again(
    cluster: Cluster, watch: Watch, create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "AT_BROKER_MS", 10)
    topic = create_topic(2)
    assert not watch.wait(ends(cluster, topic), 5 * SHORT_S)


def test_an_open_transaction_is_no_news(cluster: Cluster, create_topic: CreateTopic) -> None:
    topic = create_topic(2)
    committed = Watch(cluster, READ_COMMITTED)
    before = ends(cluster, topic)
    with TransactionalProducer(cluster, topic) as producer:
        assert producer.start() is None
        assert producer.write(topic, [None], [b"row"], partitions=[0]) is None
        assert producer.flush() is None
        assert not committed.wait(before, SHORT_S)
        assert producer.commit() is None
    assert committed.wait(before, LONG_S)
    committed.close()


def test_what_cannot_be_watched_counts_as_news(cluster: Cluster, watch: Watch, create_topic: CreateTopic) -> None:
    assert watch.wait({TopicPartition("no-such-topic", 0): 0}, LONG_S)
    topic = create_topic(1)
    assert watch.wait({TopicPartition(topic, 0): 1000}, LONG_S), "the partition ends before"
