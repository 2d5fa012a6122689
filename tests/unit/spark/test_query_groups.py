"""What a named query commits for the group of its name. Needs PySpark for the journal's types, but starts no Spark."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

from moldau.base.ids import TopicPartition
from moldau.spark.plans import SourcePlan
from moldau.spark.query_groups import connection_of, reached


def ours(bootstrap: str = "here:9092", **more: str) -> Any:
    return connection_of(SourcePlan("moldau", {"kafka.bootstrap.servers": bootstrap, "subscribe": "orders", **more}))


def end(**offsets: int) -> str:
    by_partition = {name[1:]: offset for name, offset in offsets.items()}
    return json.dumps({"offsets": {"orders": by_partition}, "cuts": {}, "topicIds": {}})


def test_which_sources_are_reported() -> None:
    assert ours() is not None
    assert ours(**{"kafka.group.id": "billing"}) is None, "its reader commits"
    assert ours(subscribe="") is None, "the query itself will say what is wrong"
    assert connection_of(SourcePlan("kafka", {})) is None


def test_where_a_query_is() -> None:
    here, there = ours(), ours("there:9092")
    sources = [here, None, there]
    ends = [end(p0=5, p1=7), "12", end(p0=1)]
    assert reached(here, sources, ends) == {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 7}
    assert reached(there, sources, ends) == {TopicPartition("orders", 0): 1}


def test_of_two_sources_the_one_that_is_behind_counts() -> None:
    here = ours()
    assert reached(here, [here, here], [end(p0=5), end(p0=3)]) == {TopicPartition("orders", 0): 3}


def test_a_source_that_is_read_once_but_planned_twice() -> None:
    here, there = ours(), ours("there:9092")
    assert reached(here, [here, here], [end(p0=5)]) == {TopicPartition("orders", 0): 5}
    assert reached(here, [here, there], [end(p0=5)]) == {}, "nobody knows whose it is"


def test_what_is_no_offset_of_ours() -> None:
    here = ours()
    for text in (None, "{}", "null", "[1]", "{", '{"logOffset": 3}'):
        assert reached(here, [here], [text]) == {}
