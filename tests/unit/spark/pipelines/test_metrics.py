"""Metrics of pipelines: what Prometheus is told of states, rates, lag, batches and restarts."""

from moldau.spark.pipelines.health import Observation
from moldau.spark.pipelines.metrics import PIPELINE_STATE, QUERY_STATE, Metric, MetricType, pipeline_metrics
from moldau.spark.pipelines.progress import QueryProgress
from moldau.spark.pipelines.status import PipelineState, PipelineStatus

NOW_MS = 1_700_000_000_000
BATCH = QueryProgress(
    batch=7,
    rows=200,
    rows_per_second=200.0,
    processed_per_second=400.0,
    batch_ms=500,
    state_rows=3,
    at_ms=NOW_MS - 1500,
    rows_ms=NOW_MS - 1000,
)
BEHIND = Observation(NOW_MS, 12, 0, 9, 6.0)
AWAY = Observation(NOW_MS, unreachable_since_ms=NOW_MS - 70_000, broker_error="127.0.0.1:9 refuses")
QUERY = {"pipeline": "orders", "query": "q"}


def status(seen: Observation, **values: object) -> PipelineStatus:
    made = {"state": PipelineState.RUNNING, "queries": {"q": BATCH}, "observations": {"q": seen}, "restarts": 2}
    return PipelineStatus("orders", "f", 1, "local", NOW_MS - 60_000, **{**made, **values})  # type: ignore[arg-type]


def by_name(*pipelines: PipelineStatus) -> dict[str, Metric]:
    return {each.name: each for each in pipeline_metrics(pipelines, NOW_MS)}


def values(found: dict[str, Metric]) -> dict[str, float]:
    """Of one pipeline with one query, without the states."""
    return {
        name.removeprefix("moldau_pipeline_"): sample.value
        for name, metric in found.items()
        for sample in metric.samples
        if "state" not in sample.labels
    }


def states(metric: Metric) -> dict[str, float]:
    return {sample.labels["state"]: sample.value for sample in metric.samples if sample.value}


def test_a_query_that_runs() -> None:
    found = by_name(status(BEHIND))
    assert values(found) == {
        "start_time_seconds": 1_699_999_940.0,
        "restarts_total": 2,
        "query_lag_records": 12,
        "query_lag_records_max": 9,
        "query_input_rows_per_second": 200.0,
        "query_processed_rows_per_second": 400.0,
        "query_batch_duration_seconds": 0.5,
        "query_batch_end_time_seconds": 1_699_999_999.0,
        "query_batch_id": 7,
        "query_state_rows": 3,
        "query_failed_tasks": 0,
    }
    assert found["moldau_pipeline_query_lag_records"].samples[0].labels == QUERY
    assert (states(found[PIPELINE_STATE]), states(found[QUERY_STATE])) == ({"running": 1}, {"running": 1})
    assert len(found[QUERY_STATE].samples) > 1, "states that it is not in are 0, so that none is stale"
    assert found["moldau_pipeline_restarts_total"].type is MetricType.COUNTER
    assert all(metric.doc.endswith(".") for metric in found.values())


def test_what_is_not_known_has_no_sample() -> None:
    found = by_name(status(AWAY))
    assert not {"query_lag_records", "query_input_rows_per_second"} & values(found).keys()
    assert states(found[QUERY_STATE]) == {"waiting": 1}


def test_a_pipeline_that_ended_has_no_queries() -> None:
    found = by_name(status(BEHIND, state=PipelineState.FAILED))
    assert states(found[PIPELINE_STATE]) == {"failed": 1}
    assert values(found).keys() == {"start_time_seconds", "restarts_total"}
    assert found[QUERY_STATE].samples == ()


def test_none() -> None:
    assert all(metric.samples == () for metric in pipeline_metrics([], NOW_MS))
