"""Restarts of failed pipelines: delays, limits, and a stop while one waits."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from moldau.spark.pipelines import run
from moldau.spark.pipelines.control import pipeline_status
from moldau.spark.pipelines.directory import (
    PipelineDirectory,
    PipelineLocks,
    inherited_locks,
    is_locked,
    locked,
    pipeline_directory,
)
from moldau.spark.pipelines.errors import PipelineDirectoryError, PipelineError, PipelineRunError, SparkStartError
from moldau.spark.pipelines.restarts import HEALTHY_S, RestartPolicy, Restarts
from moldau.spark.pipelines.run import PipelineSpec, RunListener, run_pipeline
from moldau.spark.pipelines.status import PipelineState
from moldau.spark.sessions import SparkUnavailable

NO_DELAY = RestartPolicy(limit=3, delay_s=0)


class Relaunched(Exception):
    """Instead of a new process."""


def relaunch(failures: int, last_failure: str, locks: PipelineLocks) -> NoReturn:
    raise Relaunched(failures, last_failure, [os.get_inheritable(fd) for fd in locks])


def test_the_delay_doubles_up_to_five_minutes() -> None:
    policy = RestartPolicy(limit=0, delay_s=5)
    assert [policy.delay_after(number) for number in (1, 2, 3, 6, 7, 8, 1000)] == [5, 10, 20, 160, 300, 300, 300]
    assert RestartPolicy(limit=0, delay_s=600).delay_after(2) == 600


def test_the_limit_counts_restarts_in_a_row() -> None:
    assert [RestartPolicy(limit=2).delay_after(number) for number in (1, 2, 3)] == [5, 10, None]
    restarts = Restarts(NO_DELAY, relaunch, failures=2)
    assert (restarts.failures_after(HEALTHY_S - 1), restarts.failures_after(HEALTHY_S)) == (3, 1)


@pytest.mark.parametrize(
    ("failures", "error", "worth"),
    [
        (0, PipelineRunError("query failed"), True),
        (0, SparkStartError("no Java"), False),
        (1, SparkStartError("no memory"), True),
        (1, PipelineDirectoryError("full"), False),
    ],
)
def test_failures_worth_a_restart(failures: int, error: PipelineError, worth: bool) -> None:
    assert Restarts(NO_DELAY, relaunch, failures).is_worth_it(error) is worth


@pytest.fixture
def directory(tmp_path: Path) -> PipelineDirectory:
    return pipeline_directory(str(tmp_path / "data"), "orders")


def test_locks_are_held_over_a_restart(directory: PipelineDirectory) -> None:
    with locked(directory) as locks:
        locks.inherit(True)
        kept = PipelineLocks(*(os.dup(fd) for fd in locks))
    assert is_locked(directory)
    found = inherited_locks(directory, kept)
    assert found == kept
    with locked(directory, found):
        assert is_locked(directory)
        assert not any(os.get_inheritable(fd) for fd in kept), "or Spark's JVM would hold them"
    assert not is_locked(directory)
    assert inherited_locks(directory, (0, 10_000)) is None


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineSpec:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))

    def unavailable(*_: object, **__: object) -> None:
        raise SparkUnavailable("no memory")

    monkeypatch.setattr(run, "session", unavailable)
    file = tmp_path / "orders.py"
    file.write_text("def main(spark): ...")
    return PipelineSpec(str(file), "orders", str(tmp_path / "data"), "local")


def test_a_failed_run_is_launched_again(spec: PipelineSpec) -> None:
    with pytest.raises(Relaunched) as relaunched:
        run_pipeline(spec, RunListener(), Restarts(NO_DELAY, relaunch, 1))
    assert relaunched.value.args == (2, "no memory", [True, True])


def test_too_many_failures(spec: PipelineSpec) -> None:
    with pytest.raises(PipelineRunError, match="no memory; failed 4 times in a row, so it is not started again"):
        run_pipeline(spec, RunListener(), Restarts(NO_DELAY, relaunch, 3))


def test_a_signal_ends_the_wait(spec: PipelineSpec) -> None:
    class Impatient(RunListener):
        def retrying(self, directory: PipelineDirectory, reason: str, failures: int, delay_s: float) -> None:
            status = pipeline_status(spec.data_directory, "orders")
            assert (status.state, status.failures, status.last_failure) == (PipelineState.RETRYING, 2, "no memory")
            assert status.next_try_ms is not None
            os.kill(os.getpid(), signal.SIGINT)

    status = run_pipeline(spec, Impatient(), Restarts(RestartPolicy(delay_s=600), relaunch, 1))
    assert status.state is PipelineState.STOPPED
    assert not pipeline_status(spec.data_directory, "orders").is_alive
