"""Runs that fail before Spark has started: a new pipeline is not listed afterwards, a known one has failed."""

import sys
from pathlib import Path

import pytest

from moldau.spark.pipelines import run
from moldau.spark.pipelines.control import list_pipelines
from moldau.spark.pipelines.directory import locked, pipeline_directory
from moldau.spark.pipelines.errors import PipelineAlreadyRunning, PipelineError, PipelineFileError, SparkStartError
from moldau.spark.pipelines.run import PipelineSpec, RunListener, run_pipeline
from moldau.spark.pipelines.status import PipelineState, PipelineStatus, write_status
from moldau.spark.sessions import SparkUnavailable


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))

    def unavailable(*_: object, **__: object) -> None:
        raise SparkUnavailable("no Java here")

    monkeypatch.setattr(run, "session", unavailable)


@pytest.fixture(params=["def main(spark): ...", "x ="], ids=["no Spark", "invalid file"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> PipelineSpec:
    file = tmp_path / "orders.py"
    file.write_text(request.param)
    return PipelineSpec(str(file), "orders", str(tmp_path / "data"), "local")


def test_a_new_pipeline_that_never_started_is_not_listed(spec: PipelineSpec) -> None:
    with pytest.raises((SparkStartError, PipelineFileError), match=r"no Java here|not valid Python"):
        run_pipeline(spec, RunListener())
    assert list_pipelines(spec.data_directory) == []


def test_a_known_pipeline_that_did_not_start_again_has_failed(spec: PipelineSpec) -> None:
    directory = pipeline_directory(spec.data_directory, "orders")
    with locked(directory):
        write_status(directory, PipelineStatus("orders", "f.py", 1, "local", 1, PipelineState.FINISHED))
    with pytest.raises(PipelineError) as failed:
        run_pipeline(spec, RunListener())
    [status] = list_pipelines(spec.data_directory)
    assert (status.state, status.reason) == (PipelineState.FAILED, str(failed.value))


def test_a_second_run_does_not_load_the_file(spec: PipelineSpec) -> None:
    with locked(pipeline_directory(spec.data_directory, "orders")), pytest.raises(PipelineAlreadyRunning):
        run_pipeline(spec, RunListener())


def test_a_master_that_spark_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(SparkStartError, match="'lokal' is not a Spark master"):
        run_pipeline(PipelineSpec("orders.py", "orders", str(tmp_path), "lokal"), RunListener())
