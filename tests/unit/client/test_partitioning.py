"""Partitions of keys are Java's; records without keys stick together for a while."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python

from moldau.client.direct.partitioning import Partitioner, murmur2, murmur2_of, partition_of

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


@settings(deadline=None, database=None)
@given(st.lists(st.none() | st.binary(max_size=20), max_size=80), st.integers(1, 9), st.integers(1, 200), st.randoms())
def test_rows_without_keys_stick_as_one_by_one(
    values: list[bytes | None], partitions: int, stick_bytes: int, chance: random.Random
) -> None:
    seed = chance.random()
    at_once = Partitioner(partitions, stick_bytes, random.Random(seed))
    one_by_one = Partitioner(partitions, stick_bytes, random.Random(seed))
    for _ in range(2):
        found = at_once.rows([None] * len(values), values)
        assert sorted(row for rows in found.values() for row in rows) == list(range(len(values)))
        assert all(list(rows) == sorted(rows) for rows in found.values())
        for row, value in enumerate(values):
            (partition,) = one_by_one.rows([None], [value])
            assert row in found[partition]


def test_many_keys_go_where_each_alone_goes() -> None:
    chance = random.Random(3)
    keys: list[bytes | None] = [chance.randbytes(chance.choice((0, 1, 7, 8, 8, 8, 30))) for _ in range(500)]
    found = Partitioner(7, 100).rows(keys, keys)
    for partition, rows in found.items():
        assert list(rows) == [row for row, key in enumerate(keys) if partition_of(key or b"", 7) == partition]
    assert sum(map(len, found.values())) == len(keys)


def test_many_keys_are_hashed_as_each_alone() -> None:
    """At once where numpy is, one by one elsewhere."""
    chance = random.Random(7)
    keys = {chance.randbytes(length) for length in range(12) for _ in range(100)}
    assert murmur2_of(keys) == {key: murmur2(key) for key in keys}


def test_records_without_a_key_stay_together_and_spread() -> None:
    partitioner = Partitioner(4, 1000, random.Random(1))
    values: list[bytes | None] = [b"x" * 99] * 2000
    assigned = partitioner.assign([None] * 2000, values)
    changes = sum(left != right for left, right in pairwise(assigned))
    assert changes == 199, "another partition with every thousand bytes"
    assert min(Counter(assigned).values()) > 300
