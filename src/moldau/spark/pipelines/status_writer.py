"""StatusWriter: keeps the status of a running pipeline on disk. Events come from threads of PySpark and the watcher."""

import json
import threading
from dataclasses import replace
from typing import Any

from moldau.spark.pipelines.directory import PipelineDirectory
from moldau.spark.pipelines.health import Observation
from moldau.spark.pipelines.progress import QueryProgress, read_progress
from moldau.spark.pipelines.status import ALIVE, PipelineState, PipelineStatus, now_ms, write_status

MIN_INTERVAL_MS = 200  # between writes of progress: batches may be shorter


class StatusWriter:
    """The only writer of a status file."""

    def __init__(self, directory: PipelineDirectory, status: PipelineStatus) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._status = status
        self._written_ms = 0
        self._end_offsets: dict[str, list[str | None]] = {}
        write_status(directory, status)

    @property
    def status(self) -> PipelineStatus:
        return self._status

    def end_offsets(self, name: str) -> list[str | None] | None:
        """Where the query's latest batch of this run ended, per source, as JSON; None before the first."""
        return self._end_offsets.get(name)

    def is_waiting(self, name: str) -> bool:
        """Whether a broker of the query did not answer at the latest look."""
        seen = self._status.observations.get(name)
        return seen is not None and seen.unreachable_since_ms is not None

    def transition(self, state: PipelineState, reason: str = "") -> None:
        with self._lock:
            ended_ms = None if state in ALIVE else now_ms()
            self._status = replace(self._status, state=state, reason=reason, ended_ms=ended_ms)
            write_status(self._directory, self._status)

    def retrying(self, reason: str, failures: int, next_try_ms: int) -> None:
        with self._lock:
            self._status = replace(
                self._status,
                state=PipelineState.RETRYING,
                reason="",
                ended_ms=None,
                failures=failures,
                last_failure=reason,
                next_try_ms=next_try_ms,
            )
            write_status(self._directory, self._status)

    def query_started(self, event: Any) -> None:
        name = event.name or str(event.id)
        if self._status.state is PipelineState.STARTING:
            self.transition(PipelineState.RUNNING)
        started = QueryProgress(id=str(event.id), run_id=str(event.runId), started_ms=now_ms())
        self._update(name, started, at_once=True)

    def query_progressed(self, event: Any) -> None:
        document = json.loads(event.progress.json)
        name = document.get("name") or str(document.get("id"))
        progress = read_progress(document)
        before = self._status.queries.get(name, QueryProgress())
        rows_ms = progress.ended_ms if progress.rows else before.rows_ms
        self._end_offsets[name] = [_text(each.get("endOffset")) for each in document.get("sources") or ()]
        self._update(name, replace(progress, started_ms=before.started_ms, rows_ms=rows_ms))

    def observed(self, name: str, seen: Observation) -> None:
        with self._lock:
            self._status = replace(self._status, observations={**self._status.observations, name: seen})
            write_status(self._directory, self._status)

    def _update(self, name: str, progress: QueryProgress, *, at_once: bool = False) -> None:
        with self._lock:
            self._status = replace(self._status, queries={**self._status.queries, name: progress})
            now = now_ms()
            if at_once or now - self._written_ms >= MIN_INTERVAL_MS:
                self._written_ms = now
                write_status(self._directory, self._status)


def _text(offset: Any) -> str | None:
    return offset if isinstance(offset, str) or offset is None else json.dumps(offset)
