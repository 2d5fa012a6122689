"""A node that was alone becomes the first broker of a cluster, and keeps all that it had."""

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from moldau.testing import Broker, ZooKeeper
from support.clients import confluent

GROUP, TOPIC = "readers", "orders"


def read(servers: str, count: int) -> list[bytes]:
    """What a group reads next; it commits that."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    found = [record.value or b"" for record in confluent.read_next(consumer, count)]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_a_single_node_brings_everything_along(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    with Broker(tmp_path) as alone:
        admin = confluent.admin(alone.bootstrap_servers)
        admin.create_topics([NewTopic(TOPIC, 1, 1, config={"retention.ms": "123456789"})])[TOPIC].result(30)
        confluent.write(alone.bootstrap_servers, TOPIC, map(str, range(10)))
        read(alone.bootstrap_servers, 10)
        confluent.write(alone.bootstrap_servers, TOPIC, map(str, range(10, 20)))
        cluster_id = admin.list_topics(timeout=30).cluster_id
    connect = f"{zookeeper.connect}/growing"
    for _ in range(2):  # and once more, from ZooKeeper alone
        with Broker(tmp_path, zookeeper_connect=connect) as first:
            admin = confluent.admin(first.bootstrap_servers)
            assert admin.list_topics(timeout=30).cluster_id == cluster_id
            resource = ConfigResource(ResourceType.TOPIC, TOPIC)
            assert admin.describe_configs([resource])[resource].result(30)["retention.ms"].value == "123456789"
            consumer = Consumer({"bootstrap.servers": first.bootstrap_servers, "group.id": GROUP})
            (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
            assert committed.offset == 10
            assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30) == (0, 20)
            consumer.close()
    assert (tmp_path / "moldau-metadata.sqlite.moved").exists()
