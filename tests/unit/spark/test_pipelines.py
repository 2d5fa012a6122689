"""The parts of pipelines that need no Spark: places, records, files, wording, numbers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moldau.spark.defaults import with_defaults
from moldau.spark.masters import why_not_master
from moldau.spark.pipelines.places import (
    PipelineFailed,
    Place,
    Record,
    State,
    all_places,
    held,
    is_held,
    place_of,
    read_record,
    write_record,
)
from moldau.spark.pipelines.script import load_main, modules_of
from moldau.spark.pipelines.summary import summarize, total_lag
from moldau.spark.pipelines.wording import in_a_sentence, of_exception

RECORD = Record("orders", "orders.py", 4711, "local[2]", 1_700_000_000_000, State.RUNNING)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_of(str(tmp_path), "orders")


# ── places and records ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "with space", "x" * 101, "ü"])
def test_names_that_are_no_folders_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PipelineFailed, match="no name for a pipeline"):
        place_of(str(tmp_path), name)


def test_a_second_run_of_one_name_is_refused(place: Place) -> None:
    again = held(place)
    with held(place), pytest.raises(PipelineFailed, match=r"running already.*moldau pipeline stop orders"):
        again.__enter__()
    with held(place):
        pass


def test_the_lock_goes_with_the_process(place: Place) -> None:
    code = (
        "import sys, time\n"
        "from moldau.spark.pipelines.places import held, place_of\n"
        "with held(place_of(sys.argv[1], 'orders')):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(place.directory)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == b"held\n"
        assert is_held(place)
        process.kill()
    assert not is_held(place)


def test_a_record_comes_back(place: Place) -> None:
    with held(place):
        write_record(place, RECORD)
        assert read_record(place) == RECORD
    assert [each.name for each in all_places(str(place.directory))] == ["orders"]


def test_a_process_that_is_gone_has_failed(place: Place) -> None:
    with held(place):
        write_record(place, RECORD)
    found = read_record(place)
    assert found is not None
    assert found.state is State.FAILED
    assert "gone" in found.reason
    with held(place):
        write_record(place, Record("orders", "f", 1, "local", 0, State.STOPPED))
    found = read_record(place)
    assert found is not None
    assert found.state is State.STOPPED


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": 1}', "\0", '{"name":"x","file":"f","pid":1,"state":"?"}'])
def test_a_record_that_makes_no_sense_is_none(place: Place, text: str) -> None:
    place.folder.mkdir(parents=True)
    place.record.write_text(text)
    assert read_record(place) is None


def test_no_pipelines(tmp_path: Path) -> None:
    assert all_places(str(tmp_path)) == []
    assert all_places(str(tmp_path / "nowhere")) == []


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineFailed, match=r"cannot write to .*--dir"), held(place_of(str(tmp_path / "file"), "x")):
        pass


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def main(spark:\n  pass", "is not valid Python: .*line 1"),
        ("x = 1 / 0", r"ZeroDivisionError: division by zero \(line 1\)"),
        ("import no_such_module", "No module named 'no_such_module'.*line 1"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("x = 1", r"has no main\(spark\)"),
        ("main = 1", "is not a function"),
        ("def main(): ...", "must take one argument"),
        ("async def main(spark): ...", "not async"),
    ],
)
@pytest.mark.usefixtures("_as_before")
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "orders.py"
    file.write_text(text)
    with pytest.raises(PipelineFailed, match=words) as failed:
        load_main(str(file), ())
    assert str(file) in str(failed.value)
    assert "\n" not in str(failed.value)


@pytest.mark.usefixtures("_as_before")
def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match="No such file"):
        load_main(str(tmp_path / "nowhere.py"), ())
    with pytest.raises(PipelineFailed, match="is a directory"):
        load_main(str(tmp_path), ())
    (tmp_path / "binary.py").write_bytes(b"\0\1")
    with pytest.raises(PipelineFailed, match="not a Python file"):
        load_main(str(tmp_path / "binary.py"), ())


@pytest.mark.usefixtures("_as_before")
def test_a_file_sees_its_arguments_and_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("ANSWER = 42")
    (tmp_path / "any name").write_text(
        "import sys, beside_it\ndef main(spark, more=1):\n    return beside_it.ANSWER, sys.argv[1:]"
    )
    main = load_main(str(tmp_path / "any name"), ["a", "-b"])
    assert main(None) == (42, ["a", "-b"])
    assert {each.__name__ for each in modules_of(str(tmp_path / "any name"))} == {"moldau_pipeline_file", "beside_it"}


# ── wording ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SPARKS = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed:
Traceback (most recent call last):
  File "/x/stream.py", line 3, in latestOffset
    raise QueryFailed(text)
moldau.spark.link.QueryFailed: the topic orders is gone
 SQLSTATE: 38000
\tat org.apache.spark.sql.errors.X(X.scala:1)
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SPARKS, "the topic orders is gone"),
        ("[X.Y] A table is missing. SQLSTATE: 42P01;\n'Project [x]", "A table is missing.;"),
        (
            "Job aborted due to stage failure: Task 0 failed\nTraceback (most recent call last):\n  File x\n"
            "ValueError: no such\nproduct\n\n\tat java.base",
            "ValueError: no such product",
        ),
        (
            "Writing job aborted.\n\tat x\nCaused by: java.io.IOException: disk is full\n\tat y",
            "disk is full",
        ),
        ("", ""),
    ],
)
def test_one_sentence(text: str, sentence: str) -> None:
    assert in_a_sentence(text) == sentence


def test_a_long_one_is_cut() -> None:
    assert len(in_a_sentence("x" * 10_000)) == 400


def test_an_exception_without_a_word() -> None:
    assert of_exception(ValueError()) == "ValueError"
    assert of_exception(KeyError("x")) == "KeyError: 'x'"


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_summary() -> None:
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
    found = summarize(progress)
    assert found["rows_per_second"] == 12.3
    assert found["processed_per_second"] is None
    assert (found["batch_ms"], found["state_rows"], found["lag"], found["batch"]) == (321, 7, 6, 7)
    assert found["at_ms"] == 1_769_860_800_000
    assert summarize({})["lag"] is None


def test_lag_of_our_own_offsets() -> None:
    end = '{"offsets": {"t": {"0": 5}}, "cuts": {"t": {"0": [1, 5]}}, "topicIds": {"t": "x"}}'
    latest = '{"offsets": {"t": {"0": 8}}, "cuts": {}, "topicIds": {"t": "x"}}'
    assert total_lag([{"endOffset": end, "latestOffset": latest}]) == 3
    assert total_lag([{"endOffset": "12", "latestOffset": "15"}]) is None
    assert total_lag([{"endOffset": "{", "latestOffset": None}]) is None


# ── defaults and masters ────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_query_says_itself_comes_first() -> None:
    session = {"MOLDAU_BOOTSTRAP": "here:1", "MOLDAU_START": "1700"}
    assert with_defaults({}, environment={}) == {}
    assert with_defaults({"a": "b"}, environment=session) == {"a": "b", "kafka.bootstrap.servers": "here:1"}
    streaming = with_defaults({}, stream=True, environment=session)
    assert streaming["startingTimestamp"] == "1700"
    assert streaming["startingOffsetsByTimestampStrategy"] == "latest"
    own = {"Kafka.Bootstrap.Servers": "there:2", "STARTINGOFFSETS": "earliest"}
    assert with_defaults(own, stream=True, environment=session) == own
    words = with_defaults({}, stream=True, environment={"MOLDAU_START": "earliest"})
    assert words == {"startingOffsets": "earliest"}


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[*, 3]", "yarn", "k8s://https://x:1"])
def test_masters_that_spark_knows(master: str) -> None:
    assert why_not_master(master) is None


@pytest.mark.parametrize("master", ["", "lokal", "local[0]", "local[x]", "http://x", "spark://", "spark://x:y"])
def test_masters_that_it_does_not(master: str) -> None:
    assert "master" in (why_not_master(master) or "")


def test_a_master_that_is_not_there() -> None:
    assert "cannot reach the master spark://127.0.0.1:1 (" in (why_not_master("spark://127.0.0.1:1") or "")
