"""The numbers and sentences of `moldau pipeline status`: what holds now, not what held in the latest batch."""

from moldau.spark.pipelines.health import Observation
from moldau.spark.pipelines.progress import QueryProgress
from moldau.spark.pipelines.status import PipelineState, PipelineStatus
from moldau.tools.pipeline.show import status_lines

NOW_MS = 1_700_000_000_000
BATCH = QueryProgress(
    batch=7, rows=200, rows_per_second=200.0, processed_per_second=400.0, lag=3, batch_ms=500, at_ms=NOW_MS - 1500
)


def status(seen: Observation, state: PipelineState = PipelineState.RUNNING) -> PipelineStatus:
    return PipelineStatus("orders", "f", 1, "local", 1, state, queries={"q": BATCH}, observations={"q": seen})


def numbers(seen: Observation, state: PipelineState = PipelineState.RUNNING) -> tuple[object, ...]:
    return status(seen, state).numbers("q", NOW_MS)


def test_numbers_of_now() -> None:
    assert numbers(Observation(NOW_MS, 12)) == (200.0, 400.0, 12)
    assert numbers(Observation(NOW_MS)) == (200.0, 400.0, 3), "another format: what its source reported"
    assert numbers(Observation(NOW_MS, unreachable_since_ms=NOW_MS - 70_000)) == (None, None, None)
    assert numbers(Observation(NOW_MS, 5, failed_tasks=1)) == (None, None, 5)
    assert numbers(Observation(NOW_MS, 12), PipelineState.STOPPED) == (None, None, None)


def test_a_line_for_what_is_wrong() -> None:
    away = Observation(NOW_MS, unreachable_since_ms=NOW_MS - 70_000, broker_error="127.0.0.1:9 refuses")
    assert status_lines([status(away)], NOW_MS) == [
        "orders, query q: waiting for the broker: 127.0.0.1:9 refuses (since 2023-11-14T22:12:10.000Z, 1m)"
    ]
    assert status_lines([status(Observation(NOW_MS, 0))], NOW_MS) == []
