"""Progress of queries, from Spark's JSON."""

from typing import Any

from moldau.spark.pipelines.progress import read_progress, total_lag


def test_numbers_of_a_batch() -> None:
    progress: dict[str, Any] = {
        "id": "a",
        "runId": "b",
        "batchId": 7,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "numInputRows": 10,
        "inputRowsPerSecond": 12.345,
        "processedRowsPerSecond": "Infinity",
        "durationMs": {"triggerExecution": 321, "addBatch": 100},
        "stateOperators": [{"numRowsTotal": 3}, {"numRowsTotal": 4}],
        "sources": [{"endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 9, "1": 2}}}],
    }
    found = read_progress(progress)
    assert found.rows_per_second == 12.3
    assert found.processed_per_second is None
    assert (found.batch_ms, found.state_rows, found.lag, found.batch) == (321, 7, 6, 7)
    assert found.at_ms == 1_769_860_800_000
    assert read_progress({}).lag is None


def test_lag_of_our_own_offsets() -> None:
    end = '{"offsets": {"t": {"0": 5}}, "cuts": {"t": {"0": [1, 5]}}, "topicIds": {"t": "x"}}'
    latest = '{"offsets": {"t": {"0": 8}}, "cuts": {}, "topicIds": {"t": "x"}}'
    assert total_lag([{"endOffset": end, "latestOffset": latest}]) == 3
    assert total_lag([{"endOffset": "12", "latestOffset": "15"}]) is None
    assert total_lag([{"endOffset": "{", "latestOffset": None}]) is None
