"""A query's name as its group: commits the progress of named queries, for lag tools and `moldau group describe` to see.

A reader cannot do it: Spark tells it neither the query nor its name. But Spark tells listeners, in the driver, where
each source of a named query is once a batch is finished. A source with a `kafka.group.id` of its own is left alone, as
its reader commits for that one. The checkpoint is the truth, the group is the report: nothing is ever read back.
"""

import json
import threading
from collections.abc import Sequence
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.base.settings import SettingsRefused
from moldau.client.direct.metadata import Cluster
from moldau.spark.cluster import QueryFailed, open_cluster
from moldau.spark.connection import Connection
from moldau.spark.defaults import with_defaults
from moldau.spark.options import read_options
from moldau.spark.plans import FORMAT, SourcePlan, sources_of_query
from moldau.spark.source import stream_offsets
from moldau.spark.source.group_commits import GroupCommitter

TIMEOUT_MS = 5000  # others listen behind us

Sources = list[Connection | None]  # by source; None for one that is not ours or commits by itself


class QueryGroups:
    """Listens to one session. Knows of a query from its start to its end."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._lock = threading.Condition()  # notified when a query has ended
        self._reports: dict[str, QueryReporter] = {}

    def started(self, event: Any) -> None:
        """In Spark's own thread, before the query reads anything."""
        if not event.name:
            return
        query = self._spark.streams.get(str(event.id))
        sources = [connection_of(each) for each in sources_of_query(query)] if query is not None else []
        if any(sources):
            with self._lock:
                self._reports[str(event.runId)] = QueryReporter(event.name, sources)

    def progressed(self, event: Any) -> None:
        with self._lock:
            report = self._reports.get(str(event.progress.runId))
            if report is not None:
                report.commit([source.endOffset for source in event.progress.sources])

    def ended(self, event: Any) -> None:
        with self._lock:
            report = self._reports.pop(str(event.runId), None)
            if report is not None:
                report.close()
            self._lock.notify_all()

    def settle(self) -> None:
        """When the process ends: Spark tells later than a query ends, and its last batch is to be committed too."""
        if self._spark.sparkContext._jsc is None:  # stopped: nothing more is told
            return
        running = {str(query.runId) for query in self._spark.streams.active}
        with self._lock:
            self._lock.wait_for(lambda: self._reports.keys() <= running, TIMEOUT_MS / 1000)


class QueryReporter:
    """What one query commits, and to which clusters."""

    def __init__(self, name: str, sources: Sources) -> None:
        self._sources = sources
        self._clusters: list[tuple[Connection, Cluster, GroupCommitter]] = []
        for connection in sources:
            if connection is not None and all(connection != each for each, _, _ in self._clusters):
                cluster = open_cluster(connection, timeout_ms=TIMEOUT_MS)  # connects when it is asked something
                self._clusters.append((connection, cluster, GroupCommitter(name)))

    def commit(self, ends: Sequence[Any]) -> None:
        for connection, cluster, progress in self._clusters:
            progress.report(cluster, reached(connection, self._sources, ends))

    def close(self) -> None:
        for _, cluster, _ in self._clusters:
            cluster.close()


def connection_of(reads: SourcePlan) -> Connection | None:
    if reads.format != FORMAT:
        return None
    try:
        options = read_options(with_defaults(reads.options, stream=True), stream=True)
    except SettingsRefused:  # the query will say it better
        return None
    return options.connection if options.group_id is None else None


def reached(connection: Connection, sources: Sources, ends: Sequence[Any]) -> dict[TopicPartition, int]:
    """Where the query is on one cluster: of two sources that read one partition the one that is behind."""
    if len(sources) != len(ends):  # Spark reads a source once that the plan has twice
        same = all(each in (None, connection) for each in sources)
        sources = [connection if same else None] * len(ends)
    found: dict[TopicPartition, int] = {}
    for source, end in zip(sources, ends, strict=True):
        if source != connection or not isinstance(end, str):
            continue
        try:
            mark = stream_offsets.read(json.loads(end))
        except (QueryFailed, ValueError):  # not one of ours after all
            continue
        for tp, offset in mark.offsets.items():
            found[tp] = min(offset, found.get(tp, offset))
    return found
