"""Spark without jars: a session that just works, and options as Spark's own Kafka source and sink have them."""

from moldau.spark.sessions import SparkUnavailable, session
from moldau.spark.sink.foreach_batch import sink

__all__ = ["SparkUnavailable", "session", "sink"]
