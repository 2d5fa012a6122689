"""Benchmarks: Moldau beside Apache Kafka on the same machine. Run with `python -m benchmarks`."""
