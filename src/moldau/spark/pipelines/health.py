"""Health of a running query: running, idle, waiting for the broker, stalled or failing. Pure: reads no clock.

It is judged from the latest batch (progress.py) and the latest observation of the run (watcher.py) when the status is
read: an old observation says something, too.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from moldau.spark.pipelines.progress import QueryProgress

SILENT_MS = 30_000  # the run observes its queries every few seconds, even without a broker
IDLE_MS = 15_000  # Spark reports an idle query every 10 s
STALLED_MS = 60_000
STALLED_BATCHES = 5  # a batch is expected to take as long as the one before, and some more


class QueryState(StrEnum):
    """By severity: a pipeline is in the first of these states that one of its queries is in."""

    FAILING = "failing"  # tasks fail and Spark retries them
    WAITING = "waiting"  # for a broker
    STALLED = "stalled"
    STARTING = "starting"  # no batch has ended in this run
    RUNNING = "running"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Observation:
    """A look of the run at a query and its topics. `lag` and what is behind are None if they are unknown.

    `min_behind`, `max_behind` and `avg_behind` are offsets behind the log end, over the partitions that are read.
    """

    at_ms: int
    lag: int | None = None
    min_behind: int | None = None
    max_behind: int | None = None
    avg_behind: float | None = None
    unreachable_since_ms: int | None = None
    broker_error: str = ""
    trigger_active: bool = False
    failed_tasks: int = 0


@dataclass(frozen=True, slots=True)
class Health:
    """A state, since when, and the reason as a sentence; both may be missing where nothing is wrong."""

    state: QueryState
    since_ms: int | None = None
    reason: str = ""


def query_health(progress: QueryProgress, seen: Observation | None, now_ms: int) -> Health:
    if seen is None:
        return Health(QueryState.STARTING if progress.batch is None else QueryState.RUNNING)
    if now_ms - seen.at_ms > SILENT_MS:
        return Health(QueryState.STALLED, seen.at_ms, "its process does not report")
    if seen.unreachable_since_ms is not None:
        return Health(QueryState.WAITING, seen.unreachable_since_ms, f"waiting for the broker: {seen.broker_error}")
    ended_ms = progress.ended_ms
    if seen.failed_tasks:
        tasks = "1 task" if seen.failed_tasks == 1 else f"{seen.failed_tasks} tasks"
        return Health(QueryState.FAILING, ended_ms, f"{tasks} of this batch failed; Spark tries again")
    if ended_ms is None:
        return Health(QueryState.STARTING, progress.started_ms)
    expected_ms = max(STALLED_MS, STALLED_BATCHES * (progress.batch_ms or 0))
    if seen.lag and seen.trigger_active and now_ms - ended_ms > expected_ms:
        return Health(QueryState.STALLED, ended_ms, f"no batch has ended since, and {seen.lag:,} records wait")
    if not seen.lag and (progress.rows == 0 or now_ms - ended_ms > IDLE_MS):
        return Health(QueryState.IDLE, progress.rows_ms)
    return Health(QueryState.RUNNING)


class CurrentNumbers(NamedTuple):
    """Rates and lag as far as they hold now, and not only for the latest batch."""

    rows_per_second: float | None
    processed_per_second: float | None
    lag: int | None


def current_numbers(progress: QueryProgress, seen: Observation | None, state: QueryState | None) -> CurrentNumbers:
    """`state` is None if the query does not run."""
    lag = None if seen is None or state is None else seen.lag
    if state not in (QueryState.RUNNING, QueryState.IDLE):
        return CurrentNumbers(None, None, lag)
    lag = progress.lag if lag is None else lag  # a source of another format
    if state is QueryState.IDLE:
        return CurrentNumbers(0.0, 0.0, lag)
    return CurrentNumbers(progress.rows_per_second, progress.processed_per_second, lag)


def worst(states: Iterable[QueryState]) -> QueryState | None:
    """The most severe state; None of none."""
    found = set(states)
    return next((state for state in QueryState if state in found), None)
