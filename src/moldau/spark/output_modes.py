"""Refuse output mode update before a query starts, with the way that works.

Spark refuses it for Python sinks, but only after the start, and does not say what to do. PySpark has no hook for this,
so `DataStreamWriter.start` is replaced, in sessions of `moldau.spark.session` only.
"""

from typing import Any

from moldau.spark.cluster import QueryFailed
from moldau.spark.plans import FORMAT, sink_of

ARGUMENTS = ("format", "outputMode")  # of start, after the path
UPDATE = (
    'outputMode("update") is not possible with format("moldau"): Spark does not support it for Python sinks. Replace '
    'format("moldau") and its options by foreachBatch(moldau.spark.sink({...}, topic="...")), which takes the same '
    'options, or use outputMode("complete")'
)


def refuse_update_mode() -> None:
    """For all sessions of this process; does nothing the second time."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    pyspark_start = DataStreamWriter.start
    if getattr(pyspark_start, "refuses_update", False):
        return

    def start(writer: Any, path: str | None = None, *args: Any, **kwargs: Any) -> Any:
        planned = sink_of(writer, path)
        given = {**dict(zip(ARGUMENTS, args, strict=False)), **kwargs}
        form, mode = given.get("format") or planned.format, given.get("outputMode") or planned.mode
        if (form, mode.lower()) == (FORMAT, "update"):
            raise QueryFailed(UPDATE)
        return pyspark_start(writer, path, *args, **kwargs)

    start.refuses_update = True  # type: ignore[attr-defined]
    DataStreamWriter.start = start  # type: ignore[method-assign, assignment]
