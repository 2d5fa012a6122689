"""Several log directories under a real broker: partitions move between them while they are written to."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka.protocol.admin import AlterReplicaLogDirsRequest

from moldau.base.errors import WireError
from support.brokers.processes import BrokerProcess
from support.clients.raw import RawClient
from support.clients.steady import Steady, stored, writing


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
            with writing(own.bootstrap, [("t", first)]) as steady:
                steady.wait_for_more(2_000)
                assert move(client, "/nowhere", "t", first) == {first: WireError.LOG_DIR_NOT_FOUND}
                assert move(client, two, "unknown", 0) == {0: WireError.UNKNOWN_TOPIC_OR_PARTITION}
                for target in (two, one, two):
                    assert move(client, target, "t", first, version=1) == {first: 0}
                    steady.wait_until(lambda path=target: arrived(client, path, "t", first))
                    steady.wait_for_more(500)
            count = steady.acknowledged["t", first]
            assert not steady.errors
            assert [len(found) for found in rows(client, "t").values()] == [0, 2]
            assert [(offset, number) for offset, _, number in stored(own.bootstrap, ("t", first))] == [
                (each, each) for each in range(count)
            ]
        own.restart()
        with RawClient(own.bootstrap) as client:
            assert [len(found) for found in rows(client, "t").values()] == [0, 2]
            assert client.list_offset("t", -1, first).offset == count
    finally:
        own.close()


def written_to_both(own: BrokerProcess, directories: tuple[Path, Path], count: int) -> tuple[int, int, Steady]:
    """The partitions of topic `t` in the first and in the second directory, and who has written so much to them."""
    with RawClient(own.bootstrap) as client:
        client.create_topic("t", 2, {})
        [first], [second] = (rows(client, "t")[str(path)] for path in directories)
        with writing(own.bootstrap, [("t", 0), ("t", 1)]) as steady:
            steady.wait_for_more(count)
    return first, second, steady


def test_a_disk_that_is_lost_takes_its_partitions_records_alone(tmp_path: Path) -> None:
    """One replica, one disk: what was on it is gone, whatever acks and flush say. Everything else is as it was."""
    one, two = tmp_path / "one", tmp_path / "two"
    own = BrokerProcess(tmp_path, {"log.dirs": f"{one},{two}"})
    own.start()
    try:
        kept, lost, steady = written_to_both(own, (one, two), 500)
        own.stop()
        shutil.rmtree(two)
        own.start()
        with RawClient(own.bootstrap) as client:
            client.wait_for_topic("t", 2)
            assert client.list_offset("t", -1, kept).offset == steady.acknowledged["t", kept]
            assert client.list_offset("t", -1, lost).offset == 0
        assert [number for _, _, number in stored(own.bootstrap, ("t", kept))] == list(
            range(steady.acknowledged["t", kept])
        )
        with writing(own.bootstrap, [("t", lost)]) as steady:
            steady.wait_for_more(10)
    finally:
        own.close()


def test_a_disk_that_does_not_work_at_the_start_takes_its_partitions_alone(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    own = BrokerProcess(tmp_path, {"log.dirs": f"{one},{two}"})
    own.start()
    try:
        kept, away, steady = written_to_both(own, (one, two), 20)
        own.stop()
        two.rename(tmp_path / "elsewhere")
        two.touch()
        own.start()
        with RawClient(own.bootstrap) as client:
            codes = {each.log_dir: each.error_code for each in client.log_dirs()}
            assert codes == {str(one): 0, str(two): WireError.KAFKA_STORAGE_ERROR}
            leaders = {row.partition_index: row.leader_id for row in client.metadata("t").partitions}
            assert leaders[away] == -1 != leaders[kept]
            assert client.list_offset("t", -1, away).error_code == WireError.KAFKA_STORAGE_ERROR
            assert client.fetch("t", 0, away).error_code == WireError.KAFKA_STORAGE_ERROR
            assert move(client, one, "t", away) == {away: WireError.KAFKA_STORAGE_ERROR}
            assert client.list_offset("t", -1, kept).offset == steady.acknowledged["t", kept]
            client.create_topic("u", 2, {})
        with writing(own.bootstrap, [("u", 0), ("u", 1)]) as more:
            more.wait_for_more(10)
    finally:
        own.close()
