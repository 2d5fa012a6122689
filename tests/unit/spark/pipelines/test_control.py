"""List, status and stop of pipelines, with plain processes in the place of Spark."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moldau.spark.pipelines.control import list_pipelines, pipeline_status, stop_pipeline
from moldau.spark.pipelines.directory import locked, pipeline_directory
from moldau.spark.pipelines.errors import InvalidPipelineName, PipelineNotFound, PipelineNotRunning, StopTimeout
from moldau.spark.pipelines.status import PipelineState, PipelineStatus, write_status

PIPELINE = """
import os, signal, sys, time
from moldau.spark.pipelines.directory import locked, pipeline_directory
from moldau.spark.pipelines.status import PipelineState, PipelineStatus
from moldau.spark.pipelines.status_writer import StatusWriter

directory = pipeline_directory(sys.argv[1], "orders")
with locked(directory):
    writer = StatusWriter(directory, PipelineStatus("orders", "orders.py", os.getpid(), "local", 1))

    def stop(*_):
        if sys.argv[2] == "stops":
            writer.transition(PipelineState.STOPPED)
            os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    writer.transition(PipelineState.RUNNING)
    print("running", flush=True)
    while True:
        time.sleep(60)
"""


@contextmanager
def running(folder: Path, how: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", PIPELINE, str(folder), how],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == b"running\n"
            yield
        finally:
            process.kill()


def write(folder: Path, name: str, state: PipelineState) -> None:
    directory = pipeline_directory(str(folder), name)
    with locked(directory):
        write_status(directory, PipelineStatus(name, "f.py", 1, "local", 1, state))


def test_pipelines_are_listed_by_name(tmp_path: Path) -> None:
    assert list_pipelines(str(tmp_path)) == []
    write(tmp_path, "b", PipelineState.STOPPED)
    write(tmp_path, "a", PipelineState.FINISHED)
    found = [(status.name, status.state) for status in list_pipelines(str(tmp_path))]
    assert found == [("a", PipelineState.FINISHED), ("b", PipelineState.STOPPED)]
    assert pipeline_status(str(tmp_path), "b").state is PipelineState.STOPPED


def test_an_unknown_pipeline(tmp_path: Path) -> None:
    write(tmp_path, "a", PipelineState.FINISHED)
    for ask in (pipeline_status, stop_pipeline):
        with pytest.raises(PipelineNotFound, match="there is no pipeline 'orders' in") as missing:
            ask(str(tmp_path), "orders")
        assert (missing.value.directory, missing.value.known) == (tmp_path, ("a",))
        with pytest.raises(InvalidPipelineName):
            ask(str(tmp_path), "a/b")


def test_a_relative_directory_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PipelineNotFound) as missing:
        pipeline_status("data", "orders")
    assert str(tmp_path / "data") in str(missing.value)


def test_stop_waits_for_the_process(tmp_path: Path) -> None:
    with running(tmp_path, "stops"):
        assert pipeline_status(str(tmp_path), "orders").state is PipelineState.RUNNING
        assert stop_pipeline(str(tmp_path), "orders", 30).state is PipelineState.STOPPED
    with pytest.raises(PipelineNotRunning, match="not running: it is stopped"):
        stop_pipeline(str(tmp_path), "orders")


def test_stop_times_out(tmp_path: Path) -> None:
    with running(tmp_path, "goes on"), pytest.raises(StopTimeout, match=r"did not stop within 0\.1 s"):
        stop_pipeline(str(tmp_path), "orders", 0.1)
