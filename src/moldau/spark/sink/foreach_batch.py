"""`moldau.spark.sink`: a sink for foreachBatch, for output mode update, which Spark refuses for Python sinks.

    query = totals.writeStream.outputMode("update").foreachBatch(moldau.spark.sink(
        {"kafka.bootstrap.servers": "localhost:9092"}, topic="totals", delivery="exactly-once", sinkName="totals"))

A foreachBatch function may also call several sinks, each with its own sinkName. Imports nothing that writes: that
happens in Spark's Python workers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moldau.base.settings import SettingError, SettingsRefused
from moldau.spark.defaults import with_defaults
from moldau.spark.options import WriteOptions, write_options

# Options that pass query and batch to the writer; lower case, as Spark passes them.
QUERY, BATCH = "moldau.query", "moldau.batch"
QUERY_ID = "sql.streaming.queryId"
SPECULATION = "spark.speculation"
NO_SPECULATION = f"{SPECULATION} must be off with exactly-once: attempts of one task would fence each other"
NAMELESS = (
    "sinkName must be set with delivery=exactly-once in foreachBatch, where there can be several sinks: a name that is "
    "unique within the query and never changes"
)
NO_STREAM = (
    "delivery=exactly-once needs a streaming query: a repeated batch query cannot be told from a new one. Use "
    "writeStream or foreachBatch (in the thread in which Spark calls it), or delivery=at-least-once"
)
NO_CONNECT = (
    "delivery=exactly-once is not possible in foreachBatch over Spark Connect, which does not tell the query. Use "
    "writeStream.format('moldau'), a classic session, or delivery=at-least-once"
)


@dataclass(frozen=True)
class Sink:
    """A function for foreachBatch. Returns when the rows are written; raises if they cannot be."""

    options: Mapping[str, str] = field(repr=False)  # may contain a password
    parsed: WriteOptions = field(repr=False)

    def __call__(self, frame: Any, batch_id: int) -> None:
        options = dict(self.options)
        if self.parsed.exactly_once:
            options |= {QUERY: _query(_context(frame)), BATCH: str(batch_id)}
        frame.write.format("moldau").options(**options).mode("append").save()


def sink(options: Mapping[str, object] | None = None, /, **more: object) -> Sink:
    """A sink with the options of `writeStream.format("moldau")`, as a dictionary, as keywords, or both."""
    given = with_defaults({name: _text(value) for name, value in {**(options or {}), **more}.items()})
    parsed = write_options(given)
    if parsed.exactly_once and not parsed.sink_name:
        raise SettingsRefused([SettingError("sinkName", NAMELESS)])
    return Sink(given, parsed)


def _context(frame: Any) -> Any:
    """The SparkContext; raises QueryFailed over Spark Connect, whose sessions have none."""
    from moldau.spark.cluster import QueryFailed

    context = getattr(frame.sparkSession, "sparkContext", None)
    if context is None:
        raise QueryFailed(NO_CONNECT)
    return context


def _query(context: Any) -> str:
    """Id of the calling query; raises QueryFailed if exactly-once is not possible."""
    from moldau.spark.cluster import QueryFailed

    if str(context.getConf().get(SPECULATION, "false")).lower() == "true":
        raise QueryFailed(NO_SPECULATION)
    query = context.getLocalProperty(QUERY_ID)
    if not query:
        raise QueryFailed(NO_STREAM)
    return str(query)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
