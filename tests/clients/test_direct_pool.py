"""Connections of the direct client that outlive their cluster, against a real broker."""

from moldau.base.ids import TopicPartition
from moldau.client.direct.fetch import FetchedBatches, read_range
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.pool import ConnectionPool
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients import confluent

KEY = "a cluster"
REQUEST = MetadataRequest(topics=(), allow_auto_topic_creation=False)


def node_of(cluster: Cluster) -> int:
    brokers = cluster.brokers()
    assert isinstance(brokers, list), brokers
    return brokers[0]


def test_the_next_cluster_goes_on_with_the_connections_of_the_last(
    broker: AnyBroker, create_topic: CreateTopic
) -> None:
    topic = create_topic(1)
    confluent.write(broker.bootstrap, topic, [{"value": b"row", "partition": 0}])
    pool = ConnectionPool()
    used: list[set[int]] = []
    for _ in range(3):
        with Cluster(broker.bootstrap, timeout_s=20, pool=pool) as cluster:
            chunks = list(read_range(cluster, TopicPartition(topic, 0), 0, 1))
            assert [type(each) for each in chunks] == [FetchedBatches]
        used.append({each.fileno() for _, each in pool._idle})
    assert len(used[0]) == 2, "for metadata and for the range"
    assert used[0] == used[1] == used[2]
    pool.close()


def test_clusters_that_differ_share_nothing(broker: AnyBroker) -> None:
    pool = ConnectionPool()
    for name in ("one", "another"):
        with Cluster(broker.bootstrap, client_id=name, timeout_s=20, pool=pool) as cluster:
            assert cluster.brokers()
    assert len(pool._idle) == 2
    pool.close()


def test_a_connection_that_the_broker_has_closed_is_not_used_again(start_broker: StartBroker) -> None:
    broker = start_broker()
    pool = ConnectionPool()
    with Cluster(broker.bootstrap, timeout_s=20, pool=pool) as cluster:
        node_id = node_of(cluster)
        pool.give(KEY, cluster.dedicated_connection(node_id))
    broker.stop()
    assert pool.take(KEY) is None
    pool.close()


def test_a_connection_that_waits_for_a_response_is_not_kept(broker: AnyBroker) -> None:
    pool = ConnectionPool()
    with Cluster(broker.bootstrap, timeout_s=20) as cluster:
        node_id = node_of(cluster)
        connection = cluster.dedicated_connection(node_id)
        connection.send(REQUEST, MetadataResponse)
        pool.give(KEY, connection)
        assert connection.broken
        assert pool.take(KEY) is None


def test_the_number_of_idle_connections_is_limited(broker: AnyBroker) -> None:
    pool = ConnectionPool(max_idle=2)
    with Cluster(broker.bootstrap, timeout_s=20) as cluster:
        node_id = node_of(cluster)
        given = [cluster.dedicated_connection(node_id) for _ in range(3)]
        for each in given:
            pool.give(KEY, each)
        assert [each.broken for each in given] == [True, False, False]
    pool.close()
