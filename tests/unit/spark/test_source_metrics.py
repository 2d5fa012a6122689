"""Description and metrics of a query's sources, from the offsets in its progress."""

import json

from moldau.spark.source_metrics import SourceMetrics, source_metrics


def ours(**topics: dict[str, int]) -> str:
    return json.dumps({"offsets": topics, "cuts": {}, "topicIds": {}})


def test_offsets_behind_the_latest() -> None:
    end = ours(orders={"0": 5, "1": 7}, notes={"0": 2})
    latest = ours(orders={"0": 9, "1": 7, "2": 1}, notes={"0": 2})
    found = source_metrics(
        {
            "sources": [
                {"description": "org.apache.Java@1", "endOffset": end, "latestOffset": latest},
                {"description": "RateStreamV2", "endOffset": "12", "latestOffset": "15"},
            ]
        }
    )
    behind = {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 4, "avgOffsetsBehindLatest": 1.25}
    assert found == [SourceMetrics("moldau[notes, orders]", behind), SourceMetrics("RateStreamV2", {})]


def test_no_sources() -> None:
    assert source_metrics({}) == []
