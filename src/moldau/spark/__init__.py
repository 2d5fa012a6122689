"""Spark without jars: `format("moldau")` with the options of Spark's Kafka source and sink, and a ready session."""

from moldau.spark.sessions import SparkUnavailable, session
from moldau.spark.sink.foreach_batch import sink

__all__ = ["SparkUnavailable", "session", "sink"]
