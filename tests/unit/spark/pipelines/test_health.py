"""The state of a query, from its latest batch and the latest look at its topics."""

import pytest

from moldau.spark.pipelines.health import Observation, QueryState, query_health, worst
from moldau.spark.pipelines.progress import QueryProgress
from moldau.spark.pipelines.status import PipelineState, PipelineStatus

NOW_MS = 1_700_000_000_000
BUSY = QueryProgress(batch=7, rows=200, rows_per_second=200.0, batch_ms=500, at_ms=NOW_MS - 1500, rows_ms=NOW_MS - 1000)
QUIET = QueryProgress(batch=7, rows=0, batch_ms=20, at_ms=NOW_MS - 9020, rows_ms=NOW_MS - 40_000)
OLD = QueryProgress(batch=7, rows=200, batch_ms=500, at_ms=NOW_MS - 70_500, rows_ms=NOW_MS - 70_000)
SLOW = QueryProgress(batch=7, rows=200, batch_ms=30_000, at_ms=NOW_MS - 100_000, rows_ms=NOW_MS - 70_000)
FIRST = QueryProgress(started_ms=NOW_MS - 5000)


def seen(**values: object) -> Observation:
    return Observation(**{"at_ms": NOW_MS - 1000, "lag": 0, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("progress", "observation", "state", "since_ms"),
    [
        (FIRST, None, QueryState.STARTING, None),
        (FIRST, seen(lag=None), QueryState.STARTING, NOW_MS - 5000),
        (BUSY, None, QueryState.RUNNING, None),
        (BUSY, seen(), QueryState.RUNNING, None),
        (BUSY, seen(lag=50, trigger_active=True), QueryState.RUNNING, None),
        (QUIET, seen(), QueryState.IDLE, NOW_MS - 40_000),
        (OLD, seen(), QueryState.IDLE, NOW_MS - 70_000),
        (QUIET, seen(lag=3), QueryState.RUNNING, None),
        (BUSY, seen(unreachable_since_ms=NOW_MS - 2000), QueryState.WAITING, NOW_MS - 2000),
        (OLD, seen(unreachable_since_ms=NOW_MS - 70_000, lag=None), QueryState.WAITING, NOW_MS - 70_000),
        (FIRST, seen(unreachable_since_ms=NOW_MS - 4000, lag=None), QueryState.WAITING, NOW_MS - 4000),
        (OLD, seen(lag=3, trigger_active=True), QueryState.STALLED, NOW_MS - 70_000),
        (OLD, seen(lag=3), QueryState.RUNNING, None),  # between two triggers
        (SLOW, seen(lag=3, trigger_active=True), QueryState.RUNNING, None),
        (OLD, seen(lag=3, trigger_active=True, failed_tasks=2), QueryState.FAILING, NOW_MS - 70_000),
        (BUSY, seen(at_ms=NOW_MS - 31_000), QueryState.STALLED, NOW_MS - 31_000),
    ],
)
def test_states(
    progress: QueryProgress, observation: Observation | None, state: QueryState, since_ms: int | None
) -> None:
    found = query_health(progress, observation, NOW_MS)
    assert (found.state, found.since_ms) == (state, since_ms)


def test_reasons() -> None:
    gone = query_health(OLD, seen(unreachable_since_ms=1, broker_error="127.0.0.1:9 refuses"), NOW_MS)
    assert gone.reason == "waiting for the broker: 127.0.0.1:9 refuses"
    assert query_health(OLD, seen(failed_tasks=1), NOW_MS).reason == "1 task of this batch failed; Spark tries again"
    stalled = query_health(OLD, seen(lag=1234, trigger_active=True), NOW_MS)
    assert stalled.reason == "no batch has ended since, and 1,234 records wait"
    assert query_health(BUSY, seen(at_ms=1), NOW_MS).reason == "its process does not report"


def test_a_pipeline_is_as_its_worst_query() -> None:
    assert worst([]) is None
    assert worst([QueryState.IDLE, QueryState.RUNNING]) is QueryState.RUNNING
    assert worst([QueryState.RUNNING, QueryState.WAITING, QueryState.STALLED]) is QueryState.WAITING
    status = PipelineStatus(
        "orders",
        "f",
        1,
        "local",
        1,
        PipelineState.RUNNING,
        queries={"a": BUSY, "b": OLD},
        observations={"a": seen(), "b": seen(unreachable_since_ms=NOW_MS - 70_000)},
    )
    assert status.overall(NOW_MS) is QueryState.WAITING
    stopped = PipelineStatus("orders", "f", 1, "local", 1, PipelineState.STOPPED, queries={"a": BUSY})
    assert stopped.overall(NOW_MS) is PipelineState.STOPPED
    assert stopped.health(NOW_MS) == {}
