"""Damaged replicas of a real cluster: what a stopped broker's disk did to its logs is mended from the leader."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.base.errors import WireError
from moldau.client.direct.connection import Connection
from moldau.testing import Cluster
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

ALL = {1, 2, 3}
VICTIM, TOPIC, RECORDS = 1, "precious", 300
UNCHECKED, READ_ONLY, UNREADABLE = 0, 1, 2  # partitions, by what happens to them
FIRST_SEGMENT = "00000000000000000000.log"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, proxies=False, min_insync_replicas=2) as made:
        yield made


def fill(cluster: Cluster) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    layout = [[VICTIM, 2, 3]] * 3
    client.create_topics([NewTopic(TOPIC, len(layout), replica_assignment=layout)])[TOPIC].result(30)
    # Batches of a few records: there must be several to be damaged.
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "batch.num.messages": 5, "log_level": 0}
    producer = Producer(settings)
    for number in range(RECORDS * len(layout)):
        producer.produce(TOPIC, b"%0500d" % number, partition=number % len(layout))
    assert producer.flush(60) == 0


def directory(cluster: Cluster, broker: int, partition: int) -> Path:
    return cluster.broker(broker).directory / f"{TOPIC}-{partition}"


def stored(cluster: Cluster, broker: int, partition: int) -> bytes:
    """All that a replica has, however it is cut into segments."""
    return b"".join(path.read_bytes() for path in sorted(directory(cluster, broker, partition).glob("*.log")))


def flip(path: Path) -> None:
    """A few thousand bytes in the middle are not what they were."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 6000] = bytes(each ^ 0x5A for each in data[middle : middle + 6000])
    path.write_bytes(data)


def mended(cluster: Cluster, partition: int) -> bool:
    whole = stored(cluster, 2, partition)
    return cluster.in_sync(TOPIC, partition) == ALL and stored(cluster, VICTIM, partition) == whole != b""


def read_at(cluster: Cluster, offset: int) -> int:
    """The error that a consumer gets which reads from this replica, although it does not lead (KIP-392)."""
    host, _, port = cluster.broker(VICTIM).bootstrap_servers.rpartition(":")
    (topic,) = cluster.metadata(TOPIC).topics
    row = FetchPartition(partition=READ_ONLY, fetch_offset=offset, partition_max_bytes=1 << 20)
    asked = FetchTopic(topic_id=topic.topic_id, partitions=(row,))
    connection = Connection(host, int(port), client_id="test", timeout_s=30)
    try:
        answer = connection.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=(asked,)), FetchResponse)
    finally:
        connection.close()
    return answer.responses[0].partitions[0].error_code


def epochs(cluster: Cluster) -> list[int]:
    """They grow with each election."""
    (topic,) = cluster.metadata(TOPIC).topics
    return [row.leader_epoch for row in sorted(topic.partitions, key=lambda row: row.partition_index)]


def test_a_damaged_replica_is_mended_from_the_leader_and_does_not_lead_meanwhile(cluster: Cluster) -> None:
    fill(cluster)
    cluster.kill(VICTIM)
    cluster.wait_for(lambda: cluster.leader_of(TOPIC, UNCHECKED) in ALL - {VICTIM}, "that others lead")
    before = epochs(cluster)
    flip(directory(cluster, VICTIM, UNCHECKED) / FIRST_SEGMENT)  # after a crash all of it is checked
    cluster.start(VICTIM)
    cluster.wait_for(lambda: all(mended(cluster, each) for each in range(3)), "that it has what was cut off")
    assert "bytes cut off" in cluster.broker(VICTIM).log_text()

    cluster.stop(VICTIM)
    flip(directory(cluster, VICTIM, READ_ONLY) / FIRST_SEGMENT)  # after an orderly stop nothing is
    spoilt = directory(cluster, VICTIM, UNREADABLE) / FIRST_SEGMENT
    spoilt.unlink()
    spoilt.mkdir()
    cluster.start(VICTIM)
    cluster.wait_for(lambda: mended(cluster, UNREADABLE), "that what cannot be read is copied anew")
    errors = {read_at(cluster, offset) for offset in range(RECORDS // 3, RECORDS)}
    assert WireError.CORRUPT_MESSAGE in errors
    cluster.wait_for(lambda: mended(cluster, READ_ONLY), "that what reading found is copied anew")
    assert epochs(cluster) == before, "nobody was elected meanwhile"
    assert set(errors) <= {WireError.NONE, WireError.CORRUPT_MESSAGE, WireError.OFFSET_NOT_AVAILABLE}
