"""The benchmark report: what is read from ProducerPerformance, the arithmetic of rounds, and the chart."""

import io
import math
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from benchmarks import chart, drive, report, stats
from benchmarks.measures import MEASURES, WORKLOADS, Measure, chosen, workloads_of

PROGRESS = "14321 records sent, 2864.2 records/sec (0.27 MB/sec), 12.5 ms avg latency, 605.0 ms max latency.\n"
WHOLE = (
    "20000 records sent, 19379.844961 records/sec (1.85 MB/sec), 252.18 ms avg latency, 629.00 ms max latency, "
    "258 ms 50th, 343 ms 95th, 354 ms 99th, 355 ms 99.9th.\n"
)
STEADY = (
    "10000 steady state records sent, 24038.461538 records/sec (2.29 MB/sec), 223.46 ms avg latency, "
    "343.00 ms max latency, 248 ms 50th, 337 ms 95th, 341 ms 99th, 343 ms 99.9th.\n"
)


def test_the_summary_of_a_run_is_read_and_its_progress_lines_are_not() -> None:
    result = drive.parse_summary(PROGRESS + WHOLE)
    assert (result.records, result.records_per_s, result.mb_per_s) == (20_000, 19379.844961, 1.85)
    assert (result.avg_ms, result.max_ms, result.p50_ms) == (252.18, 629.0, 258.0)
    assert (result.p95_ms, result.p99_ms, result.p999_ms) == (343.0, 354.0, 355.0)


def test_the_steady_state_counts_where_there_was_a_warm_up() -> None:
    result = drive.parse_summary("Warmup first 10000 records.\n" + PROGRESS + WHOLE + STEADY)
    assert (result.records, result.records_per_s, result.p99_ms) == (10_000, 24038.461538, 341.0)


@pytest.mark.parametrize("output", ["", PROGRESS, "org.apache.kafka.common.KafkaException: no\n"])
def test_a_run_without_a_summary_is_an_error(output: str) -> None:
    with pytest.raises(ValueError, match="no summary"):
        drive.parse_summary(output)


MORE = Measure("m", "more", "w", "rate", "records/s", "higher", 1.3)
LESS = Measure("l", "less", "w", "cpu", "µs", "lower", 0.7)


@pytest.mark.parametrize(
    ("measure", "value", "expected"),
    [(MORE, 1.3, True), (MORE, 1.29, False), (LESS, 0.7, True), (LESS, 0.71, False)],
)
def test_a_floor_is_reached_from_the_side_that_is_better(measure: Measure, value: float, expected: bool) -> None:
    assert stats.reached(measure, value) is expected


def test_the_ratio_is_that_of_the_medians_and_its_range_that_of_the_rounds() -> None:
    rounds = {"ours": [{"rate": v} for v in (10.0, 30.0, 20.0)], "theirs": [{"rate": v} for v in (10.0, 10.0, 5.0)]}
    row = stats.summarise(MORE, rounds)
    assert row["ours"] == {"median": 20.0, "least": 10.0, "most": 30.0}
    assert row["theirs"]["median"] == 10.0
    assert (row["ratio"], row["ratio_least"], row["ratio_most"], row["reached"]) == (2.0, 1.0, 4.0, True)


def test_two_values_below_the_resolution_of_a_tool_are_equal() -> None:
    assert stats.ratio(0.0, 0.0) == 1.0
    assert stats.ratio(1.0, 0.0) == math.inf


def test_without_apache_kafka_there_are_figures_but_no_ratio() -> None:
    row = stats.summarise(MORE, {"ours": [{"rate": 1.0}]})
    assert row["ours"]["median"] == 1.0
    assert "ratio" not in row


def test_a_figure_that_a_tool_does_not_give_is_left_out() -> None:
    row = stats.summarise(MORE, {"ours": [{}], "theirs": [{"rate": math.nan}]})
    assert row["ours"] is None
    assert "ratio" not in row


@pytest.mark.parametrize(
    ("value", "text"),
    [(1_234_567, "1.23 M"), (45_600, "45.6 k"), (4567.0, "4567"), (0.0714, "0.0714"), (12.3, "12.3")],
)
def test_figures_are_short(value: float, text: str) -> None:
    assert chart.number(value) == text


def test_every_measure_has_its_workload_and_can_be_chosen_by_name() -> None:
    assert {measure.workload for measure in MEASURES} == {workload.name for workload in WORKLOADS}
    assert [measure.name for measure in chosen(["memory"])] == ["memory"]
    assert [workload.name for workload in workloads_of(chosen(["cpu-consume"]))] == ["consume"]
    assert chosen(["no such"]) == []


def results(theirs: str | None = "Apache Kafka 4.3.1") -> dict[str, Any]:
    def rounds(measure: Measure) -> dict[str, list[dict[str, float]]]:
        ours = [{measure.figure: value} for value in (3.0, 4.0, 5.0)]
        return {"ours": ours} if theirs is None else {"ours": ours, "theirs": [{measure.figure: 2.0}] * 3}

    return {
        "date": "2026-01-02T03:04:05+00:00",
        "machine": {"cores": 2, "cpu": "A & B <CPU>", "memory_gb": 8, "python": "3.11.7", "java": "17"},
        "ours": "Moldau 0.1.0",
        "theirs": theirs,
        "rounds": 3,
        "consumer": "confluent-kafka",
        "measures": [stats.summarise(measure, rounds(measure)) for measure in MEASURES],
    }


def test_the_chart_is_well_formed_and_names_every_measure_it_shows() -> None:
    drawing = ElementTree.fromstring(chart.draw(results()))
    text = " ".join(drawing.itertext())
    for measure in MEASURES:
        assert (measure.title in text) == measure.shown
    assert "A & B <CPU>" in text
    assert "2026-01-02" in text
    assert "prefers-color-scheme: dark" in text


def test_no_bar_of_the_chart_leaves_the_picture() -> None:
    drawing = ElementTree.fromstring(chart.draw(results()))
    width = float(drawing.attrib["width"])
    bars = [node for node in drawing.iter() if node.tag.endswith("rect")]
    assert bars
    assert all(float(bar.attrib["x"]) + float(bar.attrib["width"]) <= width for bar in bars)


@pytest.mark.parametrize("theirs", ["Apache Kafka 4.3.1", None])
def test_the_table_shows_every_measure(theirs: str | None) -> None:
    console = Console(file=io.StringIO(), width=200)
    report.show(results(theirs), console)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert all(measure.title in printed for measure in MEASURES)
    assert ("ratio" in printed) == (theirs is not None)
