"""Several log directories under a real broker: partitions move between them while they are written to."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kafka.protocol.admin import AlterReplicaLogDirsRequest

from moldau.base.errors import WireError
from support.batches import plain_values
from support.brokers import BrokerProcess
from support.members import eventually
from support.raw import RawClient


def move(client: RawClient, path: Path | str, topic: str, *partitions: int, version: int = 2) -> dict[int, int]:
    """Error codes by partition."""
    item = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topics = [item.AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
    request = AlterReplicaLogDirsRequest(dirs=[item(path=str(path), topics=topics)])
    [result] = client.ask(request, version).results
    return {row.partition_index: row.error_code for row in result.partitions}


def rows(client: RawClient, topic: str) -> dict[str, dict[int, Any]]:
    """What DescribeLogDirs says of a topic, by directory."""
    return {
        each.log_dir: {row.partition_index: row for name, row in listed(each) if name == topic}
        for each in client.log_dirs()
    }


def listed(result: Any) -> Iterator[tuple[str, Any]]:
    return ((topic.name, row) for topic in result.topics for row in topic.partitions)


def arrived(client: RawClient, path: Path, topic: str, partition: int) -> bool:
    found = rows(client, topic)[str(path)]
    return partition in found and not found[partition].is_future_key


def test_partitions_move_while_they_are_written_to(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    own = BrokerProcess(tmp_path, {"log.dirs": f"{one},{two}", "log.segment.delete.delay.ms": 0})
    own.start()
    try:
        with RawClient(own.bootstrap) as client:
            client.create_topic("t", 2, {})
            spread = rows(client, "t")
            assert [len(spread[str(path)]) for path in (one, two)] == [1, 1]
            [first] = spread[str(one)]
            written = Steady(own.bootstrap, first)
            written.start()
            eventually(lambda: written.acknowledged > 2_000, "records are written")
            assert move(client, "/nowhere", "t", first) == {first: WireError.LOG_DIR_NOT_FOUND}
            assert move(client, two, "unknown", 0) == {0: WireError.UNKNOWN_TOPIC_OR_PARTITION}
            for target in (two, one, two):
                before = written.acknowledged
                assert move(client, target, "t", first, version=1) == {first: 0}
                eventually(lambda path=target: arrived(client, path, "t", first), "the partition is there")
                eventually(lambda seen=before: written.acknowledged > seen + 500, "producers go on")
            written.ending.set()
            written.join()
            assert not written.errors
            assert [len(found) for found in rows(client, "t").values()] == [0, 2]
            found: list[int] = []
            while len(found) < written.acknowledged:
                for batch in client.fetched("t", len(found), first):
                    found += [int(value or b"-1") for value in plain_values(batch)]
            assert found == list(range(written.acknowledged))
        own.restart()
        with RawClient(own.bootstrap) as client:
            assert [len(found) for found in rows(client, "t").values()] == [0, 2]
            assert client.list_offset("t", -1, first).offset == written.acknowledged
    finally:
        own.close()


class Steady(threading.Thread):
    """Writes 0, 1, 2, … to a partition until told to end."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1}
        self.producer = Producer({**settings, "queue.buffering.max.messages": 2_000, "batch.num.messages": 50})
        self.partition = partition
        self.acknowledged = 0
        self.errors: list[object] = []
        self.ending = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.ending.is_set():
            try:
                self.producer.produce("t", b"%d" % number, partition=self.partition, on_delivery=self.delivered)
                number += 1
                self.producer.poll(0)
            except BufferError:
                self.producer.poll(0.02)
        self.producer.flush(60)

    def delivered(self, error: object, _: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(error)
