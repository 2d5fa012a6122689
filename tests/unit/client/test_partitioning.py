"""Partitions of keys are Java's; records without keys stick together for a while."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python

from moldau.client.direct.partitioning import Partitioner, murmur2, murmur2_of, partition_of, rows_by_partition

# What org.apache.kafka.common.utils.Utils.murmur2 and BuiltInPartitioner (of 12 partitions) say.
JAVA = [
    ("", 275646681, 9),
    ("61", -1563381124, 4),
    ("6162", 316155434, 2),
    ("616263", 479470107, 3),
    ("61626364", -1323649548, 8),
    ("3231", -973932308, 0),
    ("666f6f626172", -790332482, 6),
    ("612d6c6974746c652d6269742d6c6f6e672d737472696e67", -985981536, 8),
    ("612d6c6974746c652d6269742d6c6f6e6765722d737472696e67", -1486304829, 11),
    ("ff800001fe", -173560464, 8),
]


@pytest.mark.parametrize(("key", "hashed", "partition"), JAVA)
def test_java_agrees(key: str, hashed: int, partition: int) -> None:
    data = bytes.fromhex(key)
    assert murmur2(data) == hashed & 0xFFFFFFFF
    assert partition_of(data, 12) == partition


@settings(deadline=None, database=None)
@given(st.binary(max_size=70))
def test_kafka_python_agrees(data: bytes) -> None:
    assert murmur2(data) == kafka_python(data) & 0xFFFFFFFF


@settings(deadline=None, database=None)
@given(st.lists(st.none() | st.binary(max_size=20), max_size=40), st.integers(1, 9))
def test_columns_get_what_single_keys_get(keys: list[bytes | None], partitions: int) -> None:
    assigned = Partitioner(partitions, 100).assign(keys, keys)
    assert all(0 <= each < partitions for each in assigned)
    for key, partition in zip(keys, assigned, strict=True):
        assert key is None or partition == partition_of(key, partitions)


def test_many_keys_are_hashed_as_each_alone() -> None:
    """At once where numpy is, one by one elsewhere."""
    chance = random.Random(7)
    keys = [chance.randbytes(length) for length in [*range(12), 100] for _ in range(chance.randrange(150))]
    keys += [chance.randbytes(1000), chance.randbytes(5000)]
    chance.shuffle(keys)
    assert list(murmur2_of(keys)) == [murmur2(key) for key in keys]


@pytest.mark.parametrize("partitions", [1, 2, 12])
@pytest.mark.parametrize("count", [1, 20, 3000])
def test_rows_of_a_partition_keep_their_order(count: int, partitions: int) -> None:
    chosen = Partitioner(partitions, 100).assign([b"%d" % number for number in range(count)], [b""] * count)
    rows = rows_by_partition(chosen)
    assert sorted(row for each in rows.values() for row in each) == list(range(count))
    assert all(list(each) == sorted(each) and {chosen[row] for row in each} == {key} for key, each in rows.items())


def test_records_without_a_key_stay_together_and_spread() -> None:
    partitioner = Partitioner(4, 1000, random.Random(1))
    values: list[bytes | None] = [b"x" * 99] * 2000
    assigned = partitioner.assign([None] * 2000, values)
    changes = sum(left != right for left, right in pairwise(assigned))
    assert changes == 199, "another partition with every thousand bytes"
    assert min(Counter(assigned).values()) > 300
