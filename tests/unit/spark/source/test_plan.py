"""Tasks cover what is to be read, once, and all cores have work."""

import os
from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from moldau.spark.source.plan import CORES, MIN_OFFSETS, OffsetRange, cut, known_cores, split

PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3))
RANGES = st.dictionaries(PLACES, st.tuples(st.integers(0, 10**6), st.integers(0, 3 * 10**6)), max_size=8).map(
    lambda found: [OffsetRange(*place, start, start + size) for place, (start, size) in found.items()]
)
MAYBE = st.none() | st.integers(1, 40)


@given(RANGES, st.integers(1, 64), MAYBE, st.none() | st.integers(10**4, 10**6))
def test_tasks_are_the_ranges_in_order(
    ranges: list[OffsetRange], cores: int, least: int | None, most: int | None
) -> None:
    tasks = split(ranges, cores=cores, min_partitions=least, max_records=most)
    assert tasks == sorted(tasks)
    joined: dict[tuple[str, int], list[OffsetRange]] = defaultdict(list)
    for task in tasks:
        assert task.size > 0
        joined[task.topic, task.partition].append(task)
    for pieces in joined.values():
        assert all(before.end == after.start for before, after in pairwise(pieces))
    whole = [OffsetRange(*place, pieces[0].start, pieces[-1].end) for place, pieces in joined.items()]
    assert sorted(whole) == sorted(each for each in ranges if each.size)


@given(RANGES, st.integers(1, 64))
def test_by_default_no_core_has_much_more_than_its_share(ranges: list[OffsetRange], cores: int) -> None:
    tasks = split(ranges, cores=cores)
    share = max(MIN_OFFSETS, sum(each.size for each in ranges) / cores)
    assert all(task.size <= 1.5 * share + 1 for task in tasks)
    wholes = {(each.topic, each.partition): each for each in ranges}
    assert all(task.size >= MIN_OFFSETS // 2 or task == wholes[task.topic, task.partition] for task in tasks)


def test_one_partition_is_work_for_all_cores() -> None:
    assert [task.size for task in split([OffsetRange("a", 0, 0, 400_000)], cores=4)] == [100_000] * 4
    assert len(split([OffsetRange("a", 0, 0, 60_000)], cores=4)) == 1, "no crumbs"
    assert len(split([OffsetRange("a", each, 0, 10) for each in range(9)], cores=4)) == 9


def test_the_same_ranges_are_cut_the_same_way() -> None:
    ranges = [OffsetRange("b", 1, 5, 300_000), OffsetRange("a", 0, 0, 900_000)]
    assert split(ranges, cores=3) == split(reversed(ranges), cores=3)


def test_min_partitions_as_spark_has_it() -> None:
    """Large ranges are cut by their share; a small one is not, and does not count for the others."""
    small, large = OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 0, 1000)
    sizes = [task.size for task in split([small, large], cores=1, min_partitions=5)]
    assert sizes == [10, 250, 250, 250, 250]
    assert split([small, large], cores=9, min_partitions=2) == [small, large]


def test_max_records_as_spark_has_it() -> None:
    tasks = split([OffsetRange("a", 0, 7, 1007), OffsetRange("a", 1, 0, 10)], cores=1, max_records=300)
    assert [task.size for task in tasks] == [250, 250, 250, 250, 10]
    both = split([OffsetRange("a", 0, 0, 1000)], cores=1, max_records=600, min_partitions=5)
    assert len(both) == 6, "about five: two pieces of 500, and each cut by its share"


def test_pieces_differ_by_one_at_most() -> None:
    assert [piece.size for piece in cut(OffsetRange("a", 0, 3, 13), 3)] == [3, 3, 4]
    assert len(cut(OffsetRange("a", 0, 0, 2), 5)) == 2


def test_cores_are_those_of_spark_or_of_the_machine() -> None:
    assert known_cores({CORES: "12"}) == 12
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for wrong in ({}, {CORES: "0"}, {CORES: "many"}):
        assert known_cores(wrong) == here
