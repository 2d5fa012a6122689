"""Spark without jars: `format("moldau")` with the options of Spark's Kafka source and sink, and a ready session."""

from moldau.spark.sessions import SparkUnavailable, session
from moldau.spark.sink.foreach_batch import sink
from moldau.spark.source_metrics import source_metrics

__all__ = ["SparkUnavailable", "session", "sink", "source_metrics"]
