"""The comparison of Sparks: the arithmetic of its figures, and what one failure costs."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import report
from benchmarks.measures import Measure
from benchmarks.spark import compare, connector, measures, sides
from benchmarks.spark.measures import MEASURES, WORKLOADS, Workload
from benchmarks.stats import summarise

SPEED = Measure("speed", "speed", "load", "records_per_s", "records/s", "higher", 1.5)


class FakeSide:
    """As much of a side as a comparison sees."""

    def __init__(self, label: str) -> None:
        self.label = label


def rounds_of(workload: Workload, rounds: int = 2) -> tuple[dict[str, list[dict[str, float]]], list[str]]:
    failures: list[str] = []
    pair: Any = [FakeSide("ours"), FakeSide("theirs")]
    nothing: Any = None
    return compare._run(nothing, pair, workload, rounds, failures, lambda _: None), failures


def test_every_measure_has_its_workload_and_every_name_is_used_once() -> None:
    names = [measure.name for measure in MEASURES]
    assert len(set(names)) == len(names)
    assert {measure.workload for measure in MEASURES} == {workload.name for workload in WORKLOADS}


def test_the_base_is_taken_off_time_and_cpu() -> None:
    base, found = {"seconds": 1.0, "cpu_s": 0.5}, {"seconds": 3.0, "cpu_s": 4.5, "records": 1000}
    figures = measures._figures(1000, base, found, 0.1)
    assert (figures["records_per_s"], figures["records_per_cpu_s"]) == (500.0, 250.0)
    assert figures["whole_records_per_s"] == pytest.approx(333.3, rel=1e-3)


def test_a_stream_that_read_too_little_is_no_figure() -> None:
    base, found = {"seconds": 1.0, "cpu_s": 0.5}, {"seconds": 3.0, "cpu_s": 4.5, "records": 999}
    with pytest.raises(RuntimeError, match="999 records instead of 1000"):
        measures._figures(1000, base, found, 0.1)


def test_sums_that_are_not_those_of_the_topic_are_an_error() -> None:
    assert measures._checked({"records": 2, "bytes": 200, "digest": 5}, 2, 200)["digest"] == 5
    with pytest.raises(RuntimeError, match="were expected"):
        measures._checked({"records": 1, "bytes": 100, "digest": 5}, 2, 200)


def test_the_sides_take_turns_in_going_first_and_the_warm_round_does_not_count() -> None:
    order: list[str] = []

    def run(_: object, side: Any) -> dict[str, float]:
        order.append(side.label)
        return {"records_per_s": float(len(order))}

    taken, failures = rounds_of(Workload("load", "", run))
    assert order == ["theirs", "ours", "ours", "theirs", "theirs", "ours"]
    assert (taken["ours"], taken["theirs"]) == (
        [{"records_per_s": 3.0}, {"records_per_s": 6.0}],
        [{"records_per_s": 4.0}, {"records_per_s": 5.0}],
    )
    assert failures == []


def test_a_failed_round_is_told_and_costs_the_pair_only() -> None:
    rounds = 0

    def run(_: object, side: Any) -> dict[str, float]:
        nonlocal rounds
        rounds += 1
        if side.label == "theirs" and rounds < 5:
            raise sides.JobFailed("it broke")
        return {"records_per_s": 30.0 if side.label == "ours" else 10.0}

    taken, failures = rounds_of(Workload("load", "", run))
    assert failures == ["load, theirs: it broke"] * 2
    row = summarise(SPEED, taken)
    assert (row["ratio"], row["reached"]) == (3.0, True)


def test_a_measure_that_never_worked_has_no_ratio_and_the_others_are_shown() -> None:
    def run(_: object, side: Any) -> dict[str, float]:
        raise sides.JobFailed("it broke")

    taken, failures = rounds_of(Workload("load", "", run))
    good = {"ours": [{"records_per_s": 20.0}], "theirs": [{"records_per_s": 10.0}]}
    results = {
        "ours": "A", "theirs": "B", "rounds": 2, "spark": {"master": "local[2]"}, "failures": failures,
        "measures": [summarise(SPEED, taken), summarise(SPEED, good)],
    }  # fmt: skip
    output = io.StringIO()
    report.show_spark(results, Console(file=output, width=200))
    assert "2.00" in output.getvalue()
    assert "load, theirs: it broke" in output.getvalue()


def test_sides_that_read_other_things_are_told_apart() -> None:
    def check(_: object, side: Any) -> dict[str, Any]:
        return {"digest": side.label}

    _, failures = rounds_of(Workload("load", "", lambda *_: {"records_per_s": 1.0}, check))
    assert len(failures) == 1
    assert "the sides differ" in failures[0]


def test_cpu_and_memory_are_those_of_the_whole_tree(tmp_path: Path) -> None:
    """A driver that has a child which works and is waited for, and another that keeps running."""
    driver = tmp_path / "driver.py"
    driver.write_text(
        "import subprocess, sys, json\n"
        "burn = 'import time\\nwhile time.process_time() < 0.3: pass\\n'\n"
        "print(json.dumps({}), flush=True)\n"
        "subprocess.run([sys.executable, '-c', burn])\n"
        "child = subprocess.Popen([sys.executable, '-c', burn + 'input()'], stdin=subprocess.PIPE)\n"
        "for line in sys.stdin:\n"
        "    print(json.dumps({'job': json.loads(line)['job']}), flush=True)\n"
        "child.communicate()\n"
    )
    flavour = sides.Flavour("ours", "a driver", Path(sys.executable), "moldau", driver=driver)
    with sides.running(flavour, tmp_path) as side:
        assert side.run("hello")["job"] == "hello"
        while side.python_processes() < 2 or side.cpu_seconds() < 0.55:
            side.run("again")
        assert side.memory_mb() > 1


def test_a_driver_that_dies_says_its_last_words(tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text("import sys\nsys.exit('no Java here')\n")
    flavour = sides.Flavour("ours", "a driver", Path(sys.executable), "moldau", driver=driver)
    with pytest.raises(sides.JobFailed, match="died: no Java here"), sides.running(flavour, tmp_path):
        raise AssertionError("it must not start")


@pytest.mark.parametrize(
    ("jar", "artifact"),
    [
        ("kafka-clients-3.9.0.jar", "kafka-clients"),
        ("zstd-jni-1.5.6-9.jar", "zstd-jni"),
        ("spark-tags_2.13-4.0.0.jar", "spark-tags_2.13"),
    ],
)
def test_jars_are_told_apart_by_what_they_are_not_by_version(jar: str, artifact: str) -> None:
    assert connector._artifact(Path(jar)) == artifact
