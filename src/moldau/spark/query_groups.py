"""Commit the progress of named queries to a group of the query's name, for lag tools and `moldau group describe`.

A reader does not know its query, but query listeners in the driver get the offsets of each source after a batch. A
source with its own `kafka.group.id` is skipped, because its reader commits. The checkpoint is the source of truth:
committed offsets are never read back.
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

TIMEOUT_MS = 5000  # other listeners wait meanwhile

Sources = list[Connection | None]  # by source; None for other formats and sources that commit themselves


class QueryGroups:
    """Listener of one session: holds a reporter for each named query, from start to end."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._lock = threading.Condition()  # notified when a query has ended
        self._reports: dict[str, QueryReporter] = {}

    def started(self, event: Any) -> None:
        """Runs in Spark's thread, before the query reads anything."""
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
        """At exit: wait for the last events of terminated queries, so that their last batch is committed too."""
        from py4j.protocol import Py4JError

        if self._spark.sparkContext._jsc is None:  # stopped: no more events
            return
        try:
            running = {str(query.runId) for query in self._spark.streams.active}
        except (Py4JError, ConnectionError):  # the JVM is gone, which the program has been told
            return
        with self._lock:
            self._lock.wait_for(lambda: self._reports.keys() <= running, TIMEOUT_MS / 1000)


class QueryReporter:
    """Commits the progress of one query to the clusters of its sources."""

    def __init__(self, name: str, sources: Sources) -> None:
        self._sources = sources
        self._clusters: list[tuple[Connection, Cluster, GroupCommitter]] = []
        for connection in sources:
            if connection is not None and all(connection != each for each, _, _ in self._clusters):
                cluster = open_cluster(connection, timeout_ms=TIMEOUT_MS)  # connects on first use
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
    except SettingsRefused:  # the query itself reports it
        return None
    return options.connection if options.group_id is None else None


def reached(connection: Connection, sources: Sources, ends: Sequence[Any]) -> dict[TopicPartition, int]:
    """Offsets of the query on one cluster: the lower one, if two sources read the same partition."""
    if len(sources) != len(ends):  # Spark reads a source that the plan has twice only once
        same = all(each in (None, connection) for each in sources)
        sources = [connection if same else None] * len(ends)
    found: dict[TopicPartition, int] = {}
    for source, end in zip(sources, ends, strict=True):
        if source != connection or not isinstance(end, str):
            continue
        try:
            mark = stream_offsets.read(json.loads(end))
        except (QueryFailed, ValueError):  # not written by our source
            continue
        for tp, offset in mark.offsets.items():
            found[tp] = min(offset, found.get(tp, offset))
    return found
