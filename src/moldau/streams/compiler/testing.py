"""`app.test(engine="spark")`: the same tests on Spark's own operators, without a broker.

Each batch is one file per query, which its stream reads; what leaves a query is collected and goes to the results, or
into the next batch of the query that reads the internal topic.
"""

import pickle
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as parquet

from moldau.streams.compiler.columns import RowReader, Rows, RowWriter, frame_schema
from moldau.streams.compiler.plan import output_shape, start
from moldau.streams.compiler.stateless import Frame
from moldau.streams.operators.records import Record, frozen
from moldau.streams.topology.nodes import Apply, Flow, Node, Shape, Sink, Source, Topology
from moldau.streams.topology.queries import Internal, Outlet, Query, members, queries_of

LINES: Final = "input string, record binary, number bigint"
ARROW: Final = pa.schema([("input", pa.string()), ("record", pa.binary()), ("number", pa.int64())])


class SparkEngine:
    """The queries of a topology on a running Spark; batches go in, and what came to each sink comes out."""

    def __init__(self, topology: Topology, spark: Any) -> None:
        self._spark = spark
        self._sources = topology.sources
        self._folder = tempfile.TemporaryDirectory(prefix="moldau-streams-")
        self._queries = [_TestQuery(query, topology, spark, Path(self._folder.name)) for query in queries_of(topology)]
        self._tables: dict[Source, dict[Any, Record]] = {}
        self._sinks = topology.sinks
        self._waiting: dict[str, list[Record]] = {}

    def batch(self, sources: dict[Source, list[Record]]) -> dict[Sink, list[Record]]:
        results: dict[Sink, list[Record]] = {sink: [] for sink in self._sinks}
        waiting = {source.name: records for source, records in sources.items()}
        for source, records in sources.items():
            rows = self._tables.setdefault(source, {})
            rows.update({frozen(record.key): record for record in records if record.key is not None})
        for query in self._queries:
            for node, internal, records in query.batch(waiting, self._tables):
                if internal is not None:
                    waiting.setdefault(internal.topic, []).extend(records)
                elif isinstance(node, Sink):
                    results[node] += records
        return results

    def late(self) -> dict[str, int]:
        """Spark counts late records in the progress of its queries, not here."""
        return {}

    def close(self) -> None:
        for query in self._queries:
            query.stop()
        self._folder.cleanup()


class _TestQuery:
    """A query of Spark, and the folder of files that it reads."""

    def __init__(self, query: Query, topology: Topology, spark: Any, folder: Path) -> None:
        self._inputs = {node.name for node in members(query, topology) if isinstance(node, Source)}
        self._inputs |= {internal.topic for internal in query.inputs}
        self._files = folder / query.name / "batches"
        self._files.mkdir(parents=True)
        self._spark = spark
        self._count = 0
        self._collected: list[tuple[Node, Internal | None, list[Record]]] = []
        self._tables: dict[Source, dict[Any, Record]] = {}
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        self._lines = spark.readStream.schema(LINES).parquet(str(self._files))
        options = {"checkpointLocation": str(folder / query.name / "checkpoint")}
        self._query = start(query, self, spark, options)

    def batch(
        self, waiting: dict[str, list[Record]], tables: dict[Source, dict[Any, Record]]
    ) -> Iterable[tuple[Node, Internal | None, list[Record]]]:
        given = {name: records for name, records in waiting.items() if name in self._inputs and records}
        self._tables = tables
        self._collected = []
        if given:
            self._write(given)
            self._query.processAllAvailable()
        return self._collected

    def stop(self) -> None:
        self._query.stop()

    def source(self, source: Source) -> Frame:
        return self._records(source.name, source.shape)

    def internal(self, internal: Internal, shape: Shape) -> Frame:
        return self._records(internal.topic, shape)

    def table(self, source: Source) -> Frame:
        rows = [(record, 0, 0) for record in self._tables.get(source, {}).values() if record.value is not None]
        return self._spark.createDataFrame(pa.Table.from_batches(RowWriter(source.shape).write(rows)))

    def write(self, query: Query, outlet: Outlet, frame: Frame, batch: int) -> None:
        node = outlet.node
        if isinstance(node, Apply) and node.flow is Flow.FOR_EACH:
            frame.write.format("noop").mode("append").save()
            return
        reader = RowReader(output_shape(node))
        records = [record for record, *_ in reader.read(frame.toArrow().to_batches())]
        self._collected.append((node, outlet.internal, records))

    def _records(self, name: str, shape: Shape) -> Frame:
        def read(batches: Rows) -> Rows:
            rows = (row for batch in batches for row in batch.to_pylist())
            return RowWriter(shape).write((pickle.loads(row["record"]), 0, row["number"]) for row in rows)

        return self._lines.where(f"input = '{name}'").mapInArrow(read, frame_schema(shape))

    def _write(self, given: dict[str, list[Record]]) -> None:
        rows = [
            {"input": name, "record": pickle.dumps(record), "number": number}
            for name, records in given.items()
            for number, record in enumerate(records)
        ]
        self._count += 1
        hidden = self._files / f".{self._count}.parquet"
        parquet.write_table(pa.Table.from_pylist(rows, ARROW), hidden)
        hidden.rename(self._files / f"{self._count:09}.parquet")
