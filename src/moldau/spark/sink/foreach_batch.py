"""`moldau.spark.sink`: a sink for foreachBatch, which serves output mode update, as format("moldau") does the others.

    query = totals.writeStream.outputMode("update").foreachBatch(moldau.spark.sink(
        {"kafka.bootstrap.servers": "localhost:9092"}, topic="totals", delivery="exactly-once", sinkName="totals"))

It may also be called in a function of the user's own, several of them after each other, each with a name of its own.
Imports nothing that writes: that happens in Spark's Python workers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moldau.base.settings import SettingError, SettingsRefused
from moldau.spark.defaults import with_defaults
from moldau.spark.options import WriteOptions, write_options

# Options by which the sink tells the writer where it is; all lower case, as Spark hands them on.
QUERY, BATCH = "moldau.query", "moldau.batch"
QUERY_ID = "sql.streaming.queryId"
SPECULATION = "spark.speculation"
NO_SPECULATION = f"{SPECULATION} must be off with exactly-once: attempts of one task would shut each other out"
NAMELESS = (
    "sinkName must be set with delivery=exactly-once in foreachBatch, where there can be several sinks: a name that no "
    "other sink of the query has, and that stays"
)
NO_STREAM = (
    "delivery=exactly-once needs a streaming query: a batch query that runs again cannot be told from another one. Use "
    "writeStream or foreachBatch (and there the thread in which Spark calls it), or delivery=at-least-once"
)


@dataclass(frozen=True)
class Sink:
    """What foreachBatch calls. Returns when the batch's rows are written; raises if they cannot be."""

    options: Mapping[str, str] = field(repr=False)  # there may be a password in it
    parsed: WriteOptions = field(repr=False)

    def __call__(self, frame: Any, batch_id: int) -> None:
        options = dict(self.options)
        if self.parsed.exactly_once:
            options |= {QUERY: _query(frame.sparkSession.sparkContext), BATCH: str(batch_id)}
        frame.write.format("moldau").options(**options).mode("append").save()


def sink(options: Mapping[str, object] | None = None, /, **more: object) -> Sink:
    """A sink with the options of `writeStream.format("moldau")`, as a dictionary, by name, or both."""
    given = with_defaults({name: _text(value) for name, value in {**(options or {}), **more}.items()})
    parsed = write_options(given)
    if parsed.exactly_once and not parsed.sink_name:
        raise SettingsRefused([SettingError("sinkName", NAMELESS)])
    return Sink(given, parsed)


def _query(context: Any) -> str:
    """The query that calls, if it can have what it wants."""
    from moldau.spark.cluster import QueryFailed

    if str(context.getConf().get(SPECULATION, "false")).lower() == "true":
        raise QueryFailed(NO_SPECULATION)
    query = context.getLocalProperty(QUERY_ID)
    if not query:
        raise QueryFailed(NO_STREAM)
    return str(query)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
