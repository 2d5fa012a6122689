"""The language of Kafka Streams in Python, run by Spark: `from moldau.streams import Streams`."""

from moldau.streams.app import Streams, processing_time, record_time
from moldau.streams.sql.errors import StreamsError
from moldau.streams.topology.formats import json, raw, string
from moldau.streams.topology.mappers import spark_sql
from moldau.streams.topology.processors import Context, Mapped, Processor, Value, Values
from moldau.streams.topology.refusals import TopologyRefused
from moldau.streams.topology.stream import KStream
from moldau.streams.topology.table import GlobalKTable, KTable
from moldau.streams.topology.windows import (
    Hopping,
    Session,
    Sliding,
    Tumbling,
    days,
    final,
    hours,
    milliseconds,
    minutes,
    seconds,
    updates,
)

__all__ = [
    "Context",
    "GlobalKTable",
    "Hopping",
    "KStream",
    "KTable",
    "Mapped",
    "Processor",
    "Session",
    "Sliding",
    "Streams",
    "StreamsError",
    "TopologyRefused",
    "Tumbling",
    "Value",
    "Values",
    "days",
    "final",
    "hours",
    "json",
    "milliseconds",
    "minutes",
    "processing_time",
    "raw",
    "record_time",
    "seconds",
    "spark_sql",
    "string",
    "updates",
]
