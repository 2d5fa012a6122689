"""Status of a pipeline: the value, and the file that holds it."""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from moldau.spark.pipelines.directory import PipelineDirectory, is_locked
from moldau.spark.pipelines.errors import PipelineDirectoryError
from moldau.spark.pipelines.health import (
    CurrentNumbers,
    Health,
    Observation,
    QueryState,
    current_numbers,
    query_health,
    worst,
)
from moldau.spark.pipelines.progress import QueryProgress


class PipelineState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"  # it failed, and starts again at `next_try_ms`
    STOPPING = "stopping"
    STOPPED = "stopped"  # on request
    FINISHED = "finished"  # all queries terminated by themselves, as with the availableNow trigger
    FAILED = "failed"


ALIVE = (PipelineState.STARTING, PipelineState.RUNNING, PipelineState.RETRYING, PipelineState.STOPPING)
PROCESS_GONE = "the process ended without reporting a result; it may have been killed"


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """State of a pipeline; the latest progress and observation of each query by its name.

    `failures` counts those in a row after which it was restarted; `last_failure` is the reason of the last one.
    `restarts` are all since the pipeline was run.
    """

    name: str
    file: str
    pid: int
    master: str
    started_ms: int
    state: PipelineState = PipelineState.STARTING
    reason: str = ""
    ended_ms: int | None = None
    queries: Mapping[str, QueryProgress] = field(default_factory=dict)
    observations: Mapping[str, Observation] = field(default_factory=dict)
    failures: int = 0
    restarts: int = 0
    last_failure: str = ""
    next_try_ms: int | None = None

    @property
    def is_alive(self) -> bool:
        return self.state in ALIVE

    def health(self, now_ms: int) -> dict[str, Health]:
        """Health of each query; empty unless the pipeline is running."""
        if self.state is not PipelineState.RUNNING:
            return {}
        return {name: query_health(each, self.observations.get(name), now_ms) for name, each in self.queries.items()}

    def numbers(self, query: str, now_ms: int) -> CurrentNumbers:
        """Rates and lag of a query."""
        health = self.health(now_ms).get(query)
        return current_numbers(self.queries[query], self.observations.get(query), health.state if health else None)

    def overall(self, now_ms: int) -> PipelineState | QueryState:
        """The state in one word: of a running pipeline, that of the query that is worst off."""
        return worst(each.state for each in self.health(now_ms).values()) or self.state


def write_status(directory: PipelineDirectory, status: PipelineStatus) -> None:
    """Replace the file atomically: a reader sees the old status or the new one."""
    unfinished = directory.path / f".record.{os.getpid()}"
    try:
        unfinished.write_text(json.dumps(asdict(status), indent=1))
        unfinished.replace(directory.status)
    except OSError as failed:
        raise PipelineDirectoryError(f"cannot write to {directory.path}: {failed.strerror}") from failed


def read_status(directory: PipelineDirectory) -> PipelineStatus | None:
    """The status; FAILED if the process is gone without having said so. None without a readable file."""
    running = is_locked(directory)  # before reading: a pipeline that ends in between has written its last status
    try:
        document = json.loads(directory.status.read_text())
    except (OSError, ValueError):
        return None
    status = _from_document(document)
    if status is None or running or not status.is_alive:
        return status
    ended_ms = status.ended_ms
    with suppress(OSError):
        ended_ms = int(directory.status.stat().st_mtime * 1000)
    return replace(status, state=PipelineState.FAILED, reason=PROCESS_GONE, ended_ms=ended_ms)


def _from_document(document: Any) -> PipelineStatus | None:
    try:
        status = PipelineStatus(**_known(PipelineStatus, document))
        return replace(
            status,
            state=PipelineState(status.state),
            queries={name: QueryProgress(**_known(QueryProgress, each)) for name, each in status.queries.items()},
            observations={name: Observation(**_known(Observation, each)) for name, each in status.observations.items()},
        )
    except (AttributeError, TypeError, ValueError):
        return None


def _known(kind: type[PipelineStatus] | type[QueryProgress] | type[Observation], document: Any) -> dict[str, Any]:
    """Fields of a document that this version knows: another version may have written it."""
    return {each.name: document[each.name] for each in fields(kind) if each.name in document}


def now_ms() -> int:
    return time.time_ns() // 1_000_000
