"""Session defaults of options, and masters."""

import pytest

from moldau.spark.defaults import with_defaults
from moldau.spark.masters import master_error


def test_what_a_query_says_itself_comes_first() -> None:
    session = {"MOLDAU_BOOTSTRAP": "here:1", "MOLDAU_START": "1700"}
    assert with_defaults({}, environment={}) == {}
    assert with_defaults({"a": "b"}, environment=session) == {"a": "b", "kafka.bootstrap.servers": "here:1"}
    streaming = with_defaults({}, stream=True, environment=session)
    assert streaming["startingTimestamp"] == "1700"
    assert streaming["startingOffsetsByTimestampStrategy"] == "latest"
    own = {"Kafka.Bootstrap.Servers": "there:2", "STARTINGOFFSETS": "earliest"}
    assert with_defaults(own, stream=True, environment=session) == own
    words = with_defaults({}, stream=True, environment={"MOLDAU_START": "earliest"})
    assert words == {"startingOffsets": "earliest"}


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[*, 3]", "yarn", "k8s://https://x:1"])
def test_masters_that_spark_knows(master: str) -> None:
    assert master_error(master) is None


@pytest.mark.parametrize("master", ["", "lokal", "local[0]", "local[x]", "http://x", "spark://", "spark://x:y"])
def test_masters_that_it_does_not(master: str) -> None:
    assert "master" in (master_error(master) or "")


def test_a_master_that_is_not_there() -> None:
    assert "cannot reach the master spark://127.0.0.1:1 (" in (master_error("spark://127.0.0.1:1") or "")
