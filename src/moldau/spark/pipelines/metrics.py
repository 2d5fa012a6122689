"""Metrics of pipelines as values, with names and types of Prometheus. Pure: reads no clock and exposes nothing.

They are computed from the status of pipelines (control.py), so any process that sees the data directory has them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from moldau.spark.pipelines.health import CurrentNumbers, Observation, QueryState
from moldau.spark.pipelines.progress import QueryProgress
from moldau.spark.pipelines.status import PipelineState, PipelineStatus


class MetricType(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with its samples. One whose values are unknown has fewer of them, or none."""

    name: str
    type: MetricType
    doc: str
    samples: tuple[Sample, ...]


class _PipelineRow(NamedTuple):
    name: str
    type: MetricType
    doc: str
    value: Callable[[PipelineStatus], float | None]


class _QueryRow(NamedTuple):
    """Of a gauge."""

    name: str
    doc: str
    value: Callable[[QueryProgress, Observation, CurrentNumbers], float | None]


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


PIPELINE_METRICS: Final = (
    _PipelineRow(
        "moldau_pipeline_start_time_seconds",
        MetricType.GAUGE,
        "Time of the latest start, in seconds since 1970.",
        lambda status: status.started_ms / 1000,
    ),
    _PipelineRow(
        "moldau_pipeline_restarts_total",
        MetricType.COUNTER,
        "Restarts after failures (--restart on-failure) since the pipeline was run.",
        lambda status: status.restarts,
    ),
)
QUERY_METRICS: Final = (
    _QueryRow(
        "moldau_pipeline_query_lag_records",
        "Records between the end of the latest batch and the log end.",
        lambda _progress, _seen, now: now.lag,
    ),
    _QueryRow(
        "moldau_pipeline_query_lag_records_max",
        "The same of the partition that is furthest behind.",
        lambda _progress, seen, _now: seen.max_behind,
    ),
    _QueryRow(
        "moldau_pipeline_query_input_rows_per_second",
        "Rate at which rows arrive.",
        lambda _progress, _seen, now: now.rows_per_second,
    ),
    _QueryRow(
        "moldau_pipeline_query_processed_rows_per_second",
        "Rate at which rows are processed.",
        lambda _progress, _seen, now: now.processed_per_second,
    ),
    _QueryRow(
        "moldau_pipeline_query_batch_duration_seconds",
        "Duration of the latest batch.",
        lambda progress, _seen, _now: _seconds(progress.batch_ms),
    ),
    _QueryRow(
        "moldau_pipeline_query_batch_end_time_seconds",
        "When the latest batch ended, in seconds since 1970.",
        lambda progress, _seen, _now: _seconds(progress.ended_ms),
    ),
    _QueryRow(
        "moldau_pipeline_query_batch_id", "Number of the latest batch.", lambda progress, _seen, _now: progress.batch
    ),
    _QueryRow(
        "moldau_pipeline_query_state_rows",
        "Rows in the state of the query.",
        lambda progress, _seen, _now: progress.state_rows,
    ),
    _QueryRow(
        "moldau_pipeline_query_failed_tasks",
        "Failed tasks of the current batch, which Spark tries again.",
        lambda _progress, seen, _now: seen.failed_tasks,
    ),
)
PIPELINE_STATE: Final = "moldau_pipeline_state"
QUERY_STATE: Final = "moldau_pipeline_query_state"


def pipeline_metrics(pipelines: Iterable[PipelineStatus], now_ms: int) -> list[Metric]:
    """All metrics of these pipelines, each with a sample per pipeline or query."""
    known = list(pipelines)
    found = [
        Metric(
            PIPELINE_STATE,
            MetricType.GAUGE,
            "1 for the state that the pipeline is in, 0 for the others.",
            tuple(sample for each in known for sample in _states({"pipeline": each.name}, each.state, PipelineState)),
        )
    ]
    for row in PIPELINE_METRICS:
        samples = tuple(
            Sample({"pipeline": each.name}, value) for each in known if (value := row.value(each)) is not None
        )
        found.append(Metric(row.name, row.type, row.doc, samples))
    return [*found, *_query_metrics(known, now_ms)]


def _query_metrics(known: list[PipelineStatus], now_ms: int) -> Iterator[Metric]:
    """Queries of pipelines that run: those of others have no state."""
    healths = [(each, each.health(now_ms)) for each in known]
    queries = [(status, name, health.state) for status, found in healths for name, health in found.items()]
    states = (
        sample
        for status, name, state in queries
        for sample in _states({"pipeline": status.name, "query": name}, state, QueryState)
    )
    yield Metric(
        QUERY_STATE, MetricType.GAUGE, "1 for the state that the query is in, 0 for the others.", tuple(states)
    )
    for row in QUERY_METRICS:
        samples = []
        for status, name, _ in queries:
            seen = status.observations.get(name, Observation(0))
            value = row.value(status.queries[name], seen, status.numbers(name, now_ms))
            if value is not None:
                samples.append(Sample({"pipeline": status.name, "query": name}, value))
        yield Metric(row.name, MetricType.GAUGE, row.doc, tuple(samples))


def _states(labels: Mapping[str, str], state: StrEnum, states: type[StrEnum]) -> Iterator[Sample]:
    for each in states:
        yield Sample({**labels, "state": str(each)}, float(each is state))
