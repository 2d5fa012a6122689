"""Rows of Arrow batches as columns, and the digest by which a repeated task recognizes its rows."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="needs PyArrow: pip install '.[spark]'")
pytest.importorskip("pandas", reason="needs pandas: pip install '.[spark]'")

from moldau.spark.sink.digest import Digest  # noqa: E402
from moldau.spark.sink.layout import Layout  # noqa: E402
from moldau.spark.sink.rows import Rows, rows_of  # noqa: E402

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
LAYOUT = Layout(value=1, key=0, headers=2, topic=3, partition=4)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)
ROW = st.tuples(
    st.none() | st.binary(max_size=4),
    st.none() | st.binary(max_size=4),
    st.none() | HEADERS,
    st.text("ab", min_size=1, max_size=2),
    st.none() | st.integers(0, 3),
)


def arrow(rows: list[Any], binary: Any = None) -> Any:
    binary = binary or pa.binary()
    headers = [None if row[2] is None else [{"key": name, "value": each} for name, each in row[2]] for row in rows]
    return pa.record_batch(
        [
            pa.array([row[0] for row in rows], binary),
            pa.array([row[1] for row in rows], binary),
            pa.array(headers, pa.list_(HEADER)),
            pa.array([row[3] for row in rows], pa.string()),
            pa.array([row[4] for row in rows], pa.int32()),
        ],
        names=["key", "value", "headers", "topic", "partition"],
    )


def digest(*batches: list[Any]) -> tuple[int, str]:
    found = Digest()
    for batch in batches:
        found.add(rows_of(arrow(batch), LAYOUT), None)
    return found.rows, str(found)


def back(rows: Rows) -> list[Any]:
    headers = rows.headers or [()] * len(rows)
    partitions = rows.partitions or [None] * len(rows)
    return list(zip(rows.keys, rows.values, map(list, headers), rows.topics, partitions, strict=True))


@given(st.lists(ROW, max_size=20), st.sampled_from([pa.binary(), pa.large_binary()]), st.integers(0, 20))
def test_rows_are_what_arrow_holds(rows: list[Any], binary: Any, start: int) -> None:
    expected = [(key, value, headers or [], topic, partition) for key, value, headers, topic, partition in rows]
    assert back(rows_of(arrow(rows, binary).slice(start), LAYOUT)) == expected[start:]


def test_text_becomes_utf8() -> None:
    batch = pa.record_batch([pa.array(["ü", None]), pa.array(["", "x"], pa.large_string())], names=["key", "value"])
    rows = rows_of(batch, Layout(key=0, value=1))
    assert (rows.keys.tolist(), rows.values.tolist()) == (["ü".encode(), None], [b"", b"x"])
    without = rows_of(batch, Layout(value=1))
    assert without.keys.tolist() == [None, None]


@given(st.lists(ROW, max_size=20), st.randoms(use_true_random=False), st.integers(0, 20))
def test_the_digest_does_not_depend_on_order_or_batches(rows: list[Any], chance: random.Random, cut: int) -> None:
    shuffled = chance.sample(rows, len(rows))
    assert digest(rows) == digest(shuffled[:cut], shuffled[cut:])


@given(st.lists(ROW, max_size=8), st.lists(ROW, max_size=8))
def test_other_rows_have_another_digest(one: list[Any], other: list[Any]) -> None:
    def known(rows: list[Any]) -> list[str]:
        return sorted(repr((key, value, headers or [], topic, at)) for key, value, headers, topic, at in rows)

    assert (digest(one) == digest(other)) == (known(one) == known(other))


def test_what_looks_alike_is_told_apart() -> None:
    rows: list[Any] = [
        (None, b"v", None, "t", None),
        (b"", b"v", None, "t", None),
        (b"nan", b"v", None, "t", None),
        (b"v", None, None, "t", None),
        (b"v", b"", None, "t", None),
        (b"v", b"", [("", b"")], "t", None),
        (b"v", b"", [("", None)], "t", None),
        (b"v", b"", [("a", b"b"), ("c", b"")], "t", None),
        (b"v", b"", [("a", b""), ("bc", b"")], "t", None),
        (b"v", b"", None, "u", None),
        (b"v", b"", None, "t", 0),
    ]
    assert len({digest([row]) for row in rows}) == len(rows)
    assert digest(rows) == digest(*([row] for row in rows))
    swapped = [(b"k1", b"v1"), (b"k2", b"v2")], [(b"k1", b"v2"), (b"k2", b"v1")]
    assert len({digest([(*pair, None, "t", None) for pair in pairs]) for pairs in swapped}) == 2


def test_the_digest_is_the_same_for_ever() -> None:
    """Control offsets of an older Moldau must be understood by a newer one."""
    assert digest([(b"key", b"value", [("name", b"content")], "topic", 1), (None, None, None, "topic", None)]) == (
        2,
        "b26d695488ce9362",
    )
