"""Partitions that this broker had before and gets again: a topic made again, a replica that comes back at once."""

from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from moldau.log.directory import LogDirectory
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication.replicas import Replicas
from support.log.logs import NOW
from support.net.loops import run
from support.replication.partitions import Outcomes, some

NODE = 1
ALONE = PartitionState(0, (NODE,), (NODE,), NODE)
LED = PartitionState(0, (NODE, 2), (NODE, 2), NODE)
ELSEWHERE = PartitionState(0, (2,), (2,), 2, partition_epoch=1)


def image(topic_id: int, state: PartitionState) -> ClusterImage:
    return ClusterImage(topics={"a": Topic("a", UUID(int=topic_id), (state,))})


def replicas_of(directory: Path, now: ClusterImage) -> Replicas:
    found = Replicas(NODE, [LogDirectory.open(directory)], lambda _: LogConfig(), lambda: NOW, 10**9)
    found.load(now, 1, lambda: False)
    return found


def strays(directory: Path) -> list[Path]:
    return list(directory.glob("*-stray"))


async def written_and_stopped(directory: Path) -> None:
    """A broker that was alone with two records of the topic."""
    replicas = replicas_of(directory, ClusterImage())
    replicas.follow(ClusterImage(), image(7, ALONE))
    await replicas.settled()
    partition = replicas.get("a", 0)
    assert partition is not None
    Outcomes(partition).offset(some(b"1", b"2"))
    await replicas.stop()


def test_the_leader_of_a_topic_made_again_needs_no_records_of_the_old_one(tmp_path: Path) -> None:
    """The high watermark that a start finds is known by the topic's name."""

    async def main() -> None:
        await written_and_stopped(tmp_path)
        after = replicas_of(tmp_path, image(7, ALONE))
        after.follow(image(7, ALONE), image(8, LED))
        await after.settled()
        made_again = after.get("a", 0)
        assert made_again is not None
        assert made_again.leads
        await after.stop()

    run("asyncio", main())


def test_nor_does_one_that_was_made_again_while_the_broker_was_down(tmp_path: Path) -> None:
    async def main() -> None:
        await written_and_stopped(tmp_path)
        after = replicas_of(tmp_path, image(8, LED))
        made_again = after.get("a", 0)
        assert made_again is not None
        assert (made_again.leads, made_again.log.end_offset) == (True, 0)
        await after.stop()

    run("asyncio", main())


def test_a_replica_taken_away_and_given_back_while_it_is_opened_is_there_once(tmp_path: Path) -> None:
    async def main() -> None:
        replicas = replicas_of(tmp_path, ClusterImage())
        steps = (ClusterImage(), image(7, LED), image(7, ELSEWHERE), image(7, LED))
        for old, new in pairwise(steps):
            replicas.follow(old, new)
        await replicas.settled()
        assert list(replicas) == [replicas.get("a", 0)]
        assert not strays(tmp_path)
        await replicas.stop()

    run("asyncio", main())


@pytest.mark.parametrize("after", [image(8, LED), image(7, ELSEWHERE)], ids=["made again", "taken away"])
def test_nothing_is_left_of_a_log_that_could_not_be_opened(tmp_path: Path, after: ClusterImage) -> None:
    async def main() -> None:
        (tmp_path / "a-0" / "00000000000000000000.log").mkdir(parents=True)  # it is not even a file
        directory = LogDirectory.open(tmp_path)
        directory.log_starts["a", 0] = 5
        replicas = Replicas(NODE, [directory], lambda _: LogConfig(), lambda: NOW, 10**9)
        replicas.load(image(7, ALONE), 1, lambda: False)
        assert replicas.offline == {("a", 0)}
        replicas.follow(image(7, ALONE), after)
        await replicas.settled()
        assert not replicas.offline
        partition = replicas.get("a", 0)
        assert partition is None or partition.log.start_offset == 0
        await replicas.stop()

    run("asyncio", main())
