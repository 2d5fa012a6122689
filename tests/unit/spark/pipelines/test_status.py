"""Directory, locks and status file of a pipeline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.spark.pipelines.directory import (
    PipelineDirectory,
    is_locked,
    locked,
    pipeline_directories,
    pipeline_directory,
)
from moldau.spark.pipelines.errors import InvalidPipelineName, PipelineAlreadyRunning, PipelineDirectoryError
from moldau.spark.pipelines.progress import QueryProgress
from moldau.spark.pipelines.status import PROCESS_GONE, PipelineState, PipelineStatus, read_status, write_status

STATUS = PipelineStatus(
    "orders",
    "orders.py",
    4711,
    "local[2]",
    1_700_000_000_000,
    PipelineState.RUNNING,
    queries={"q": QueryProgress(lag=3)},
)


@pytest.fixture
def directory(tmp_path: Path) -> PipelineDirectory:
    return pipeline_directory(str(tmp_path), "orders")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "with space", "x" * 101, "ü"])
def test_invalid_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidPipelineName, match="not a valid pipeline name"):
        pipeline_directory(str(tmp_path), name)


def test_a_second_run_of_one_name_is_refused(directory: PipelineDirectory) -> None:
    again = locked(directory)
    with locked(directory), pytest.raises(PipelineAlreadyRunning, match="the pipeline orders is already running"):
        again.__enter__()
    with locked(directory):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full, a file on a full disk")
def test_a_full_disk_is_named(directory: PipelineDirectory) -> None:
    directory.path.mkdir(parents=True)
    (directory.path / f".record.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(PipelineDirectoryError, match=f"cannot write to {directory.path}: No space left on device"):
        write_status(directory, STATUS)


def test_the_lock_goes_with_the_process(directory: PipelineDirectory) -> None:
    code = (
        "import sys, time\n"
        "from moldau.spark.pipelines.directory import locked, pipeline_directory\n"
        "with locked(pipeline_directory(sys.argv[1], 'orders')):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(directory.data_directory)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == b"locked\n"
        assert is_locked(directory)
        process.kill()
    assert not is_locked(directory)


def test_a_status_is_read_back(directory: PipelineDirectory) -> None:
    with locked(directory):
        write_status(directory, STATUS)
        assert read_status(directory) == STATUS
    assert [each.name for each in pipeline_directories(str(directory.data_directory))] == ["orders"]


def test_a_process_that_is_gone_has_failed(directory: PipelineDirectory) -> None:
    with locked(directory):
        write_status(directory, STATUS)
    found = read_status(directory)
    assert found is not None
    assert found.state is PipelineState.FAILED
    assert found.reason == PROCESS_GONE
    with locked(directory):
        write_status(directory, PipelineStatus("orders", "f", 1, "local", 0, PipelineState.STOPPED))
    found = read_status(directory)
    assert found is not None
    assert found.state is PipelineState.STOPPED


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"name": 1}',
        "\0",
        '{"name":"x","file":"f","pid":1,"state":"?"}',
        '{"name":"x","file":"f","pid":1,"master":"m","started_ms":1,"queries":[1]}',
    ],
)
def test_an_unreadable_status_is_none(directory: PipelineDirectory, text: str) -> None:
    directory.path.mkdir(parents=True)
    directory.status.write_text(text)
    assert read_status(directory) is None


def test_no_pipelines(tmp_path: Path) -> None:
    assert pipeline_directories(str(tmp_path)) == []
    assert pipeline_directories(str(tmp_path / "nowhere")) == []


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(PipelineDirectoryError, match="cannot write to"),
        locked(pipeline_directory(str(tmp_path / "file"), "x")),
    ):
        pass


def test_fields_of_another_version_are_ignored(directory: PipelineDirectory) -> None:
    directory.path.mkdir(parents=True)
    document = {"name": "x", "file": "f", "pid": 1, "master": "m", "started_ms": 1, "state": "stopped", "new": 1}
    directory.status.write_text(json.dumps({**document, "queries": {"q": {"lag": 2, "new": 1}}}))
    assert read_status(directory) == PipelineStatus(
        "x", "f", 1, "m", 1, PipelineState.STOPPED, queries={"q": QueryProgress(lag=2)}
    )
