"""Moldau's Spark source and sink beside Spark's own Kafka connector: `python -m benchmarks spark`."""
