"""Watcher: a thread of the run that looks at its queries, their tasks and their topics every few seconds.

Spark reports a query when a batch ends. While none ends, because the broker is away or a task fails again and again,
only this thread knows.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moldau.spark.checkpoints import UnreadableCheckpoint, finished_offsets
from moldau.spark.pipelines.errors import PipelineDirectoryError
from moldau.spark.pipelines.health import Observation
from moldau.spark.pipelines.interception import PlannedQuery
from moldau.spark.pipelines.status import now_ms
from moldau.spark.pipelines.status_writer import StatusWriter
from moldau.spark.pipelines.topic_lag import BrokerSilent, EndOffsets, QueryTopics, SilentBrokers

INTERVAL_S = 2.0
STOP_S = 1.0  # a look at a silent broker takes longer, and may go on

logger = logging.getLogger("moldau.spark")


@dataclass(slots=True)
class WatchedQuery:
    """A query, its topics, and since when a broker of it does not answer."""

    query: Any
    topics: QueryTopics
    checkpoint: Path
    silent_since_ms: int | None = None

    @property
    def name(self) -> str:
        return self.query.name or str(self.query.id)


class Watcher:
    """Writes an observation of each active query to the status. Leave it before Spark stops."""

    def __init__(self, spark: Any, writer: StatusWriter) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._writer = writer
        self._lock = threading.Lock()
        self._queries: list[WatchedQuery] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moldau-watcher", daemon=True)

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(STOP_S)

    def add(self, planned: PlannedQuery, query: Any) -> None:
        with self._lock:
            self._queries.append(WatchedQuery(query, QueryTopics(planned), Path(planned.checkpoint)))

    def _run(self) -> None:
        from py4j.protocol import Py4JError

        while not self._ended.wait(INTERVAL_S):
            try:
                self._round()
            except (Py4JError, ConnectionError):  # the JVM is gone; the main thread finds out and tells it
                break
            except PipelineDirectoryError as failed:
                logger.warning("The status of the pipeline is not up to date: %s", failed)
        for watched in self._queries:
            watched.topics.close()

    def _round(self) -> None:
        with self._lock:
            queries = list(self._queries)
        silent = SilentBrokers()
        for watched in queries:
            if self._ended.is_set():
                return
            if watched.query.isActive:
                self._writer.observed(watched.name, self._observe(watched, silent))

    def _observe(self, watched: WatchedQuery, silent: SilentBrokers) -> Observation:
        found = watched.topics.behind(self._end_offsets(watched), silent)
        at_ms = now_ms()
        if isinstance(found, BrokerSilent):
            watched.silent_since_ms = watched.silent_since_ms or at_ms
            return Observation(at_ms, unreachable_since_ms=watched.silent_since_ms, broker_error=found.reason)
        watched.silent_since_ms = None
        active = bool(watched.query.status["isTriggerActive"])
        return observation(at_ms, found, active, self._failed_tasks(str(watched.query.runId)))

    def _end_offsets(self, watched: WatchedQuery) -> EndOffsets | None:
        reported = self._writer.end_offsets(watched.name)
        if reported is not None:
            return reported
        try:
            return finished_offsets(watched.checkpoint)
        except UnreadableCheckpoint:  # the query itself reports it
            return None

    def _failed_tasks(self, run_id: str) -> int:
        """Failed tasks of the query's running batch, whose job group is the run id."""
        failed = 0
        active = set(self._tracker.getActiveJobsIds())
        for job_id in active.intersection(self._tracker.getJobIdsForGroup(run_id)):
            job = self._tracker.getJobInfo(job_id)
            for stage_id in job.stageIds if job is not None else ():
                stage = self._tracker.getStageInfo(stage_id)
                failed += stage.numFailedTasks if stage is not None else 0
        return failed


def observation(at_ms: int, behind: Sequence[int] | None, trigger_active: bool, failed_tasks: int) -> Observation:
    if not behind:
        return Observation(
            at_ms, None if behind is None else 0, trigger_active=trigger_active, failed_tasks=failed_tasks
        )
    total = sum(behind)
    return Observation(
        at_ms,
        total,
        min(behind),
        max(behind),
        total / len(behind),
        trigger_active=trigger_active,
        failed_tasks=failed_tasks,
    )
