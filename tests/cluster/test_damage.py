"""Damaged replicas of a real cluster: what a stopped broker's disk did to its logs is mended from the leader."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from moldau.base.errors import WireError
from moldau.client.direct.connection import Connection
from moldau.testing import Cluster
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from support.clients import confluent

ALL = {1, 2, 3}
VICTIM, RECORDS = 1, 300
UNCHECKED, READ_ONLY, UNREADABLE = 0, 1, 2  # partitions, by what happens to them
FIRST_SEGMENT = "00000000000000000000.log"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, proxies=False, min_insync_replicas=2) as made:
        yield made


def fill(cluster: Cluster, topic: str) -> None:
    client = confluent.admin(cluster.bootstrap_servers, log_level=0)
    layout = [[VICTIM, 2, 3]] * 3
    client.create_topics([NewTopic(topic, len(layout), replica_assignment=layout)])[topic].result(30)
    # Batches of a few records: there must be several to be damaged.
    numbers = range(RECORDS * len(layout))
    records = [{"value": b"%0500d" % number, "partition": number % len(layout)} for number in numbers]
    confluent.write(cluster.bootstrap_servers, topic, records, acks="all", batch_num_messages=5, log_level=0)


def directory(cluster: Cluster, topic: str, broker: int, partition: int) -> Path:
    return cluster.broker(broker).directory / f"{topic}-{partition}"


def stored(cluster: Cluster, topic: str, broker: int, partition: int) -> bytes:
    """All that a replica has, however it is cut into segments."""
    return b"".join(path.read_bytes() for path in sorted(directory(cluster, topic, broker, partition).glob("*.log")))


def flip(path: Path) -> None:
    """A few thousand bytes in the middle are not what they were."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 6000] = bytes(each ^ 0x5A for each in data[middle : middle + 6000])
    path.write_bytes(data)


def mended(cluster: Cluster, topic: str, partition: int) -> bool:
    whole = stored(cluster, topic, 2, partition)
    return cluster.in_sync(topic, partition) == ALL and stored(cluster, topic, VICTIM, partition) == whole != b""


def read_at(cluster: Cluster, topic: str, offset: int) -> int:
    """The error that a consumer gets which reads from this replica, although it does not lead (KIP-392)."""
    host, _, port = cluster.broker(VICTIM).bootstrap_servers.rpartition(":")
    (found,) = cluster.metadata(topic).topics
    row = FetchPartition(partition=READ_ONLY, fetch_offset=offset, partition_max_bytes=1 << 20)
    asked = FetchTopic(topic_id=found.topic_id, partitions=(row,))
    connection = Connection(host, int(port), client_id="test", timeout_s=30)
    try:
        answer = connection.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=(asked,)), FetchResponse)
    finally:
        connection.close()
    return answer.responses[0].partitions[0].error_code


def epochs(cluster: Cluster, topic: str) -> list[int]:
    """They grow with each election."""
    (found,) = cluster.metadata(topic).topics
    return [row.leader_epoch for row in sorted(found.partitions, key=lambda row: row.partition_index)]


def test_a_damaged_replica_is_mended_from_the_leader_and_does_not_lead_meanwhile(cluster: Cluster) -> None:
    topic = "precious"
    fill(cluster, topic)
    cluster.kill(VICTIM)
    cluster.wait_for(lambda: cluster.leader_of(topic, UNCHECKED) in ALL - {VICTIM}, "that others lead")
    cluster.wait_for(lambda: min(epochs(cluster, topic)) > 0, "that all brokers know it")
    before = epochs(cluster, topic)
    flip(directory(cluster, topic, VICTIM, UNCHECKED) / FIRST_SEGMENT)  # after a crash all of it is checked
    cluster.start(VICTIM)
    cluster.wait_for(lambda: all(mended(cluster, topic, each) for each in range(3)), "that it has what was cut off")
    assert "bytes removed" in cluster.broker(VICTIM).log_text()

    cluster.stop(VICTIM)
    flip(directory(cluster, topic, VICTIM, READ_ONLY) / FIRST_SEGMENT)  # after an orderly stop nothing is
    spoilt = directory(cluster, topic, VICTIM, UNREADABLE) / FIRST_SEGMENT
    spoilt.unlink()
    spoilt.mkdir()
    cluster.start(VICTIM)
    cluster.wait_for(lambda: mended(cluster, topic, UNREADABLE), "that what cannot be read is copied anew")
    errors = {read_at(cluster, topic, offset) for offset in range(RECORDS // 3, RECORDS)}
    assert WireError.CORRUPT_MESSAGE in errors
    cluster.wait_for(lambda: mended(cluster, topic, READ_ONLY), "that what reading found is copied anew")
    assert epochs(cluster, topic) == before, "no election meanwhile"
    assert set(errors) <= {WireError.NONE, WireError.CORRUPT_MESSAGE, WireError.OFFSET_NOT_AVAILABLE}


def test_a_leader_with_unusable_records_is_replaced_and_repaired(cluster: Cluster) -> None:
    topic = "dear"
    fill(cluster, topic)
    whole = stored(cluster, topic, 2, UNCHECKED)
    cluster.stop(3)
    shutil.rmtree(directory(cluster, topic, 3, UNCHECKED))
    segment = directory(cluster, topic, VICTIM, UNCHECKED) / FIRST_SEGMENT
    with segment.open("r+b") as file:  # of a record, in place: nothing but its checksum tells
        file.seek(segment.stat().st_size // 2 + 200)
        file.write(b"?")
    cluster.start(3)
    cluster.wait_for(lambda: cluster.in_sync(topic, UNCHECKED) == ALL, "that all are in sync")
    assert cluster.leader_of(topic, UNCHECKED) != VICTIM
    cluster.wait_for(
        lambda: all(stored(cluster, topic, each, UNCHECKED) == whole for each in ALL), "that all are the same"
    )
