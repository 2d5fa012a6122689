"""Moldau: a streaming platform that speaks Kafka's wire protocol."""

from moldau import compiled

__version__ = "0.1.0"

compiled.install()
