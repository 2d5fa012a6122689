"""StatusWriter: keeps the status of a running pipeline on disk. Events come from threads of PySpark."""

import json
import threading
from dataclasses import replace
from typing import Any

from moldau.spark.pipelines.directory import PipelineDirectory
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
        write_status(directory, status)

    @property
    def status(self) -> PipelineStatus:
        return self._status

    def transition(self, state: PipelineState, reason: str = "") -> None:
        with self._lock:
            ended_ms = None if state in ALIVE else now_ms()
            self._status = replace(self._status, state=state, reason=reason, ended_ms=ended_ms)
            write_status(self._directory, self._status)

    def query_started(self, event: Any) -> None:
        name = event.name or str(event.id)
        if self._status.state is PipelineState.STARTING:
            self.transition(PipelineState.RUNNING)
        self._update(name, QueryProgress(id=str(event.id), run_id=str(event.runId)), at_once=True)

    def query_progressed(self, event: Any) -> None:
        progress = json.loads(event.progress.json)
        self._update(progress.get("name") or str(progress.get("id")), read_progress(progress))

    def _update(self, name: str, progress: QueryProgress, *, at_once: bool = False) -> None:
        with self._lock:
            self._status = replace(self._status, queries={**self._status.queries, name: progress})
            now = now_ms()
            if at_once or now - self._written_ms >= MIN_INTERVAL_MS:
                self._written_ms = now
                write_status(self._directory, self._status)
