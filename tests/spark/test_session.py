"""A real Spark session: started by our command line, with this Python, and with our source known to it."""

import sys
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")


def test_it_runs_what_was_asked_for(spark: Any) -> None:
    assert spark.range(10).count() == 10
    assert spark.sparkContext.appName == "tests"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    megabytes = spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
    assert 900 < megabytes <= 1024, "the JVM's memory is the driver's, less what its collector keeps free"


def test_python_workers_run_this_interpreter(spark: Any) -> None:
    rows = spark.sparkContext.parallelize([1], 1).map(lambda _: sys.executable).collect()
    assert rows == [sys.executable]


def test_python_workers_import_the_installed_pyspark(spark: Any) -> None:
    """Spark's zip file of the same modules is not compiled: a second for each new process."""
    rows = spark.sparkContext.parallelize([1], 1).map(lambda _: sys.modules["pyspark"].__file__).collect()
    assert rows == [pyspark.__file__]


def test_our_source_is_known(spark: Any) -> None:
    frame = spark.read.format("moldau").option("subscribe", "orders").load()
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    with_headers = spark.read.format("moldau").option("INCLUDEHEADERS", "true").load()
    assert with_headers.schema["headers"].simpleString() == "headers:array<struct<key:string,value:binary>>"


def test_decoding_asks_for_the_columns(spark: Any) -> None:
    with pytest.raises(Exception, match=r"decode needs the schema of the values: \.schema\(\.\.\.\)"):
        spark.read.format("moldau").option("decode", "json").load()


def test_another_session_of_the_program_knows_our_source(spark: Any) -> None:
    frame = spark.newSession().read.format("moldau").option("subscribe", "orders").load()
    assert frame.columns[:2] == ["key", "value"]


def test_spark_does_not_look_for_sources_where_ours_is_the_only_one(spark: Any) -> None:
    """The lookup costs two processes. The variable is Spark's own; where it is gone, only the start is slower."""
    from moldau.spark.registration import SOURCES

    found = getattr(getattr(spark._jvm, SOURCES), "MODULE$").dataSourceBuilders()
    assert found.get().keySet().toString() == "Set(moldau)"
