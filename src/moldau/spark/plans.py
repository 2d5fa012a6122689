"""Sources and sink of a streaming query, read from Spark's objects before or while it runs.

PySpark has no API for it, so this reads fields of the JVM's writer and leaves of its plan. They are not public, so all
of it is in this file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STREAMING_RELATION = "StreamingRelation"  # of V1 sources; that of others ends in V2
FORMAT = "moldau"


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """Format and options of a source, as the user gave them."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # they may hold passwords


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """Query name, format, output mode, checkpoint (if set) and options of a writer."""

    name: str | None
    format: str
    mode: str
    checkpoint: str | None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def sources_of(plan: Any) -> list[SourcePlan]:
    """The streaming sources of a plan (a Java LogicalPlan), in Spark's order."""
    leaves = plan.collectLeaves()
    found = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        kind = leaf.getClass().getSimpleName()
        if kind == f"{STREAMING_RELATION}V2":
            found.append(SourcePlan(leaf.sourceName(), dict(leaf.extraOptions().asCaseSensitiveMap())))
        elif kind == STREAMING_RELATION:
            found.append(SourcePlan(leaf.sourceName(), _scala_map(leaf.dataSource().options())))
    return found


def sources_of_frame(frame: Any) -> list[SourcePlan]:
    return sources_of(frame._jdf.queryExecution().analyzed())


def sources_of_query(query: Any) -> list[SourcePlan]:
    """Sources of a started query."""
    return sources_of(query._jsq.streamingQuery().analyzedPlan())


def sink_of(writer: Any, path: str | None = None) -> SinkPlan:
    """Sink of a DataStreamWriter that is about to start."""
    given = {name.lower(): value for name, value in _scala_map(_field(writer, "extraOptions")).items()}
    options = _scala_map(_field(writer, "extraOptions"))
    if path is not None:
        options["path"] = path
    return SinkPlan(
        name=given.get("queryname"),
        format=_sink_format(writer),
        mode=str(_field(writer, "outputMode").toString()).lower(),
        checkpoint=given.get("checkpointlocation"),
        options=options,
    )


def _sink_format(writer: Any) -> str:
    named = _field(writer, "source")
    return str(named) if named is not None else str(writer._spark.conf.get("spark.sql.sources.default"))


def _field(writer: Any, name: str) -> Any:
    java = writer._jwrite
    held = java.getClass().getDeclaredField(name)
    held.setAccessible(True)
    return held.get(java)


def _scala_map(values: Any) -> dict[str, str]:
    found = {}
    pairs = values.iterator()
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1())] = str(pair._2())
    return found
