"""A log directory whose disk does not work at the start: its partitions wait for it, and are not made anew."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from moldau.log.directory import LogDirectory
from moldau.log.partition_locations import mark_moved
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from support.log.logs import NOW
from support.net.loops import run
from support.replication.partitions import Outcomes, some

NODE = 1


def topic(name: str, number: int, partitions: int) -> Topic:
    states = tuple(PartitionState(index, (NODE,), (NODE,), NODE) for index in range(partitions))
    return Topic(name, UUID(int=number), states, {})


def image(*topics: Topic) -> ClusterImage:
    return ClusterImage(topics={each.name: each for each in topics})


FOUR = topic("t", 7, 4)


def replicas_of(*directories: LogDirectory, now: ClusterImage) -> Replicas:
    found = Replicas(NODE, list(directories), lambda each: LogConfig.of(each.config), lambda: NOW, 10**9, now.topics)
    found.load(now, 1, lambda: False)
    return found


async def written(one: Path, two: Path) -> dict[str, list[int]]:
    """Which partitions of `t` are in each directory; each has as many records as its number says, and one more."""
    node = replicas_of(LogDirectory.open(one), LogDirectory.open(two), now=ClusterImage())
    node.follow(ClusterImage(), image(FOUR))
    await node.settled()
    for partition in node:
        for _ in range(partition.index + 1):
            Outcomes(partition).offset(some())
    homes = {
        each.path.name: sorted(one.index for one in node.directories.partitions_in(each)) for each in node.directories
    }
    await node.stop()
    return homes


@contextmanager
def away(path: Path) -> Iterator[LogDirectory]:
    """Nobody can look into it; afterwards it is there again."""
    hidden = path.with_name("hidden")
    path.rename(hidden)
    path.touch()
    yield LogDirectory.failed(path)
    path.unlink()
    hidden.rename(path)


def led(node: Replicas, index: int, name: str = "t") -> Partition:
    partition = node.get(name, index)
    assert partition is not None
    return partition


def test_partitions_of_a_directory_that_cannot_be_opened_are_offline_and_not_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def main() -> None:
        homes = await written(one, two)
        with away(two) as failed:
            node = replicas_of(LogDirectory.open(one), failed, now=image(FOUR))
            assert node.offline == node.directories.without_records == {("t", index) for index in homes["two"]}
            assert [node.get("t", index) for index in homes["two"]] == [None, None]
            assert "2 partitions are offline: they are in none of the log directories that work" in caplog.text
            for index in homes["one"]:
                assert led(node, index).log.end_offset == index + 1
            more = image(FOUR, topic("u", 8, 3))
            node.follow(image(FOUR), more)
            await node.settled()
            for index in range(3):
                assert Outcomes(led(node, index, "u")).offset(some()) == 0, "what is new goes where the disk works"
            assert len(node.directories.partitions_in(next(iter(node.directories)))) == 5
            assert node.offline == {("t", index) for index in homes["two"]}
            assert await node.checkpoint()
            await node.stop()
        directories = [LogDirectory.open(one), LogDirectory.open(two)]
        assert [each.clean for each in directories] == [True, True], "nothing was done to the one that was away"
        again = replicas_of(*directories, now=more)
        assert not again.offline
        assert [led(again, index).log.end_offset for index in range(4)] == [1, 2, 3, 4]
        await again.stop()

    run("asyncio", main())


def test_a_partition_that_was_given_away_meanwhile_is_forgotten(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def main() -> None:
        await written(one, two)
        with away(two) as failed:
            node = replicas_of(LogDirectory.open(one), failed, now=image(FOUR))
            node.follow(image(FOUR), image())
            await node.settled()
            assert node.offline == frozenset()
            await node.stop()

    run("asyncio", main())


def test_what_was_moved_to_a_directory_that_is_away_is_not_served_as_it_was_before(tmp_path: Path) -> None:
    """The copy took its place, and has records that the old log has not."""
    one, two = tmp_path / "one", tmp_path / "two"

    async def main() -> None:
        homes = await written(one, two)
        moved = homes["one"][0]
        shutil.copytree(one / f"t-{moved}", two / f"t-{moved}")
        mark_moved(str(one / f"t-{moved}"), 0)
        with away(two) as failed:
            node = replicas_of(LogDirectory.open(one), failed, now=image(FOUR))
            assert node.offline == {("t", index) for index in (moved, *homes["two"])}
            await node.stop()
        again = replicas_of(LogDirectory.open(one), LogDirectory.open(two), now=image(FOUR))
        assert Path(led(again, moved).log.directory).parent == two, "as the mark says"
        await again.stop()

    run("asyncio", main())


@pytest.mark.parametrize("swapped", [False, True])
def test_a_topic_that_was_made_again_meanwhile_is_told_from_the_one_of_before(tmp_path: Path, swapped: bool) -> None:
    """With its id both have the same right to be there, and the start stops: test_moving.py."""
    one, two = tmp_path / "one", tmp_path / "two"

    async def main() -> None:
        homes = await written(one, two)
        again = topic("t", 8, 4)
        with away(two) as failed:
            node = replicas_of(LogDirectory.open(one), failed, now=image(FOUR))
            node.follow(image(FOUR), image(again))
            await node.settled()
            for partition in node:
                assert Outcomes(partition).offset(some()) == 0
            await node.stop()
        paths = (two, one) if swapped else (one, two)
        node = replicas_of(*map(LogDirectory.open, paths), now=image(again))
        assert [led(node, index).log.end_offset for index in range(4)] == [1, 1, 1, 1]
        assert {Path(each.log.directory).parent for each in node} == {one}
        assert sorted(path.name[:3] for path in two.glob("*-stray")) == [f"t-{index}" for index in homes["two"]]
        await node.stop()

    run("asyncio", main())
