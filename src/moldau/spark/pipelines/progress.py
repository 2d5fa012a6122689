"""QueryProgress: the numbers of a streaming query's latest batch, from the JSON of Spark's StreamingQueryProgress."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moldau.spark.source_metrics import offsets_behind


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """Rates, durations and state rows. None where Spark does not report a number.

    `lag` is that of the latest batch, by what the source saw then; health.py has the lag now. `started_ms` and
    `rows_ms`, when the query started and when its last batch with rows ended, are kept by status_writer.py.
    """

    id: str | None = None
    run_id: str | None = None
    batch: int | None = None
    rows: int | None = None
    rows_per_second: float | None = None
    processed_per_second: float | None = None
    batch_ms: int | None = None
    lag: int | None = None
    state_rows: int | None = None
    watermark: str | None = None
    at_ms: int | None = None
    started_ms: int | None = None
    rows_ms: int | None = None

    @property
    def ended_ms(self) -> int | None:
        """When the latest batch ended."""
        return None if self.at_ms is None else self.at_ms + (self.batch_ms or 0)


def read_progress(progress: Mapping[str, Any]) -> QueryProgress:
    operators = progress.get("stateOperators") or []
    durations = progress.get("durationMs") or {}
    return QueryProgress(
        id=progress.get("id"),
        run_id=progress.get("runId"),
        batch=progress.get("batchId"),
        rows=progress.get("numInputRows"),
        rows_per_second=_rate(progress.get("inputRowsPerSecond")),
        processed_per_second=_rate(progress.get("processedRowsPerSecond")),
        batch_ms=durations.get("triggerExecution", progress.get("batchDuration")),
        lag=total_lag(progress.get("sources") or []),
        state_rows=sum(each.get("numRowsTotal") or 0 for each in operators) if operators else None,
        watermark=(progress.get("eventTime") or {}).get("watermark"),
        at_ms=_timestamp_ms(progress.get("timestamp")),
    )


def total_lag(sources: Sequence[Mapping[str, Any]]) -> int | None:
    """Records between the end of the latest batch and the log end, over all sources that report both."""
    known = [behind for each in sources if (behind := offsets_behind(each)) is not None]
    return sum(map(sum, known)) if known else None


def _rate(value: Any) -> float | None:
    """Spark reports NaN or infinity where it has no rate."""
    if not isinstance(value, int | float) or value != value or value in (float("inf"), float("-inf")):
        return None
    return round(float(value), 1)


def _timestamp_ms(text: Any) -> int | None:
    try:
        return round(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except ValueError:
        return None
