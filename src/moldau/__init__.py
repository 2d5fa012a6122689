"""Moldau: a streaming platform that speaks Kafka's wire protocol."""

from moldau import compiled as compiled  # before any other module of the package: it decides how they are loaded

__version__ = "0.1.0"
