"""The frames of a query: from topics to its operator with state, and in each batch to where records leave."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from moldau.streams.compiler.native import aggregated, is_native, output_mode, pairs_joined, streams_joined
from moldau.streams.compiler.processor import with_state
from moldau.streams.compiler.stateless import Frame, stateless
from moldau.streams.sql.types import Field, Struct
from moldau.streams.topology.nodes import (
    Aggregate,
    GlobalJoin,
    JoinKind,
    Merge,
    Node,
    Regroup,
    Shape,
    Source,
    StreamJoin,
    is_stateful,
    reshaped,
)
from moldau.streams.topology.queries import Internal, Outlet, Query, flow_parents, roots_of


class World(Protocol):
    """Where records come from and go to: topics of a broker, or a test."""

    def source(self, source: Source) -> Frame:
        """The records of a topic as they come, with the columns of its shape."""

    def internal(self, internal: Internal, shape: Shape) -> Frame:
        """The records of an internal topic as they come."""

    def table(self, source: Source) -> Frame:
        """The rows of a global table as they are now: key and value."""

    def write(self, query: Query, outlet: Outlet, frame: Frame, batch: int) -> None:
        """Write the records of a batch to where they leave the query."""


def output_shape(node: Node) -> Shape:
    """The records of a node as they are: those of a grouped table have a row that leaves and one that enters."""
    if isinstance(node, Regroup):
        row = node.shape.value
        return reshaped(node.shape, value=Struct((Field("leaves", row), Field("enters", row))), model=None)
    return node.shape


def streaming_frame(query: Query, world: World) -> Frame:
    """What a query reads, up to its operator with state and with it."""
    root = query.root
    if isinstance(root, Source):
        return world.source(root)
    inputs = {internal.side: internal for internal in query.inputs}
    frames = [
        world.internal(inputs[side], output_shape(parent)) if side in inputs else up_to(parent, world)
        for side, parent in enumerate(flow_parents(root))
    ]
    if isinstance(root, GlobalJoin):
        return frames[0]
    if isinstance(root, Aggregate) and is_native(root):
        return aggregated(root, frames[0])
    if isinstance(root, StreamJoin):
        return streams_joined(root, *frames)
    return with_state(root, frames, output_shape(root))


def up_to(node: Node, world: World) -> Frame:
    """A node without state above it, as a stream."""
    if isinstance(node, Source):
        return world.source(node)
    if isinstance(node, Merge):
        return _union([up_to(parent, world) for parent in node.parents])
    return stateless(node, up_to(node.parents[0], world))


def batch_writer(query: Query, world: World) -> Callable[[Frame, int], None]:
    """The function for foreachBatch: operators behind the one with state, and writing."""

    def write(frame: Frame, batch: int) -> None:
        if isinstance(query.root, GlobalJoin):
            frame = global_joined(query.root, frame, world)
        kept: list[Frame] = []
        if len(query.outlets) > 1:
            frame = frame.persist()
            kept.append(frame)
        try:
            made: dict[Node, Frame] = {query.root: frame}
            for outlet in query.outlets:
                world.write(query, outlet, _down_to(outlet.node, query.root, made), batch)
        finally:
            for each in kept:
                each.unpersist()

    return write


def _down_to(node: Node, root: Node, made: dict[Node, Frame]) -> Frame:
    if node not in made:
        parents = [parent for parent in flow_parents(node) if root in roots_of(parent)]
        frames = [_down_to(parent, root, made) for parent in parents]
        made[node] = _union(frames) if isinstance(node, Merge) else stateless(node, frames[0])
    return made[node]


def _union(frames: list[Frame]) -> Frame:
    whole = frames[0]
    for each in frames[1:]:
        whole = whole.union(each)
    return whole


def global_joined(node: GlobalJoin, frame: Frame, world: World) -> Frame:
    from pyspark.sql import functions as f

    from moldau.streams.compiler.stateless import mapped

    source = node.parents[1]
    assert isinstance(source, Source)
    rows = world.table(source).selectExpr("key AS found", "value AS right")
    window = ["window"] if node.shape.windowed else []
    looking = frame.where("value IS NOT NULL").selectExpr(
        f"{mapped(node.on)} AS wanted", "key", "value AS left", "timestamp", *window, "partition", "offset"
    )
    how = "left" if node.how is JoinKind.LEFT else "inner"
    joined = looking.join(f.broadcast(rows), f.expr("wanted = found"), how)
    return pairs_joined(node, joined.select("key", "left", "right", "timestamp", *window, "partition", "offset"))


def start(query: Query, world: World, spark: Any, options: Mapping[str, str], *, name: str = "") -> Any:
    """Start a query; returns PySpark's StreamingQuery. Without a name there can be several of it."""
    mode = output_mode(query.root) if is_stateful(query.root) else "append"
    # As in Kafka Streams, the newest record of either side is the time of a join; Spark's default is the oldest.
    spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max")
    frame = streaming_frame(query, world)
    writer = frame.writeStream.outputMode(mode).options(**options)
    writer = writer.queryName(name) if name else writer
    return writer.foreachBatch(batch_writer(query, world)).start()
