"""Run a pipeline in this process: session, queries, status, and an orderly stop. One pipeline per process."""

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from moldau.spark.defaults import BOOTSTRAP_SETTING, START_SETTING
from moldau.spark.masters import master_error
from moldau.spark.pipelines.directory import (
    PipelineDirectory,
    PipelineLocks,
    absolute,
    is_locked,
    locked,
    pipeline_directory,
)
from moldau.spark.pipelines.errors import (
    PipelineAlreadyRunning,
    PipelineError,
    PipelineFileError,
    PipelineRunError,
    SparkStartError,
)
from moldau.spark.pipelines.interception import CHECKPOINTS, InterceptedQueries, PlannedQuery, intercept_queries
from moldau.spark.pipelines.logs import redirect_child_stderr, redirect_py4j_errors, write_stack_trace
from moldau.spark.pipelines.restarts import Restarts
from moldau.spark.pipelines.root_cause import describe_exception, root_cause
from moldau.spark.pipelines.script import Load, Main, load_main, modules_of
from moldau.spark.pipelines.signals import StopRequested, StopSignals
from moldau.spark.pipelines.status import PipelineState, PipelineStatus, now_ms, read_status
from moldau.spark.pipelines.status_writer import StatusWriter
from moldau.spark.pipelines.watcher import Watcher
from moldau.spark.sessions import PACK, SparkUnavailable, session

POLL_S = 0.25
STOP_POLL_S = 0.05
BATCH_GRACE_S = 30.0  # how long a stop waits for the current batch


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A file and how to run it. `start` is earliest, latest or milliseconds; empty strings mean the default."""

    file: str
    name: str
    data_directory: str
    master: str = "local[*]"
    bootstrap: str = ""
    start: str = ""
    pack: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()

    def session_settings(self, checkpoints: Path) -> dict[str, str]:
        own = {BOOTSTRAP_SETTING: self.bootstrap, START_SETTING: self.start, PACK: self.pack}
        chosen = {"spark.ui.enabled": "false", CHECKPOINTS: checkpoints.as_uri()}
        return {**chosen, **{name: value for name, value in own.items() if value}, **self.settings}


class RunListener:
    """Events of a run. Override those that matter to you."""

    def spark_started(self, directory: PipelineDirectory) -> None:
        """The session is up; `main` is called next."""

    def query_started(self, query: PlannedQuery) -> None:
        """`main` has started a streaming query."""

    def no_query_started(self, directory: PipelineDirectory) -> None:
        """`main` returned and has started no streaming query: the pipeline is finished."""

    def stopping(self, directory: PipelineDirectory) -> None:
        """A stop was requested: queries end after their current batch."""

    def retrying(self, directory: PipelineDirectory, reason: str, failures: int, delay_s: float) -> None:
        """The pipeline failed for the n-th time in a row, and starts again after the delay."""


def run_pipeline(
    spec: PipelineSpec, listener: RunListener, restarts: Restarts | None = None, load: Load = load_main
) -> PipelineStatus:
    """Run until the queries terminate or a stop is requested; the status is FINISHED or STOPPED.

    `load` makes the function that starts the queries of the file; by default that is its `main`.
    Call it in the main thread: SIGINT and SIGTERM request the stop. Raises a PipelineError if anything fails, unless
    `restarts` lets it start again. A new pipeline that fails before Spark has started leaves no status behind.
    """
    directory = pipeline_directory(spec.data_directory, spec.name)
    check_master(spec.master)
    held = None if restarts is None else restarts.locks
    if held is None and is_locked(directory):
        raise PipelineAlreadyRunning(spec.name)  # before the file is loaded: loading may have effects
    starting = PipelineStatus(spec.name, str(absolute(spec.file)), os.getpid(), spec.master, now_ms())
    if restarts is not None:
        before = read_status(directory) if restarts.failures else None
        starting = replace(
            starting,
            failures=restarts.failures,
            restarts=0 if before is None else before.restarts + 1,
            last_failure=restarts.last_failure,
        )
    with StopSignals() as signals:
        try:
            main = load(spec.file, spec.arguments)
        except StopRequested:
            return replace(starting, state=PipelineState.STOPPED, ended_ms=now_ms())
        except PipelineFileError as failed:
            if directory.status.exists():
                with locked(directory, held):
                    StatusWriter(directory, starting).transition(PipelineState.FAILED, str(failed))
            raise
        with locked(directory, held) as locks:
            try:
                return _run_locked(spec, main, directory, starting, signals, listener)
            except PipelineError as failed:
                if restarts is None or not restarts.is_worth_it(failed):
                    raise
                return _restart(restarts, failed, directory, starting, locks, signals, listener)


def _restart(
    restarts: Restarts,
    failed: PipelineError,
    directory: PipelineDirectory,
    starting: PipelineStatus,
    locks: PipelineLocks,
    signals: StopSignals,
    listener: RunListener,
) -> PipelineStatus:
    """Wait and relaunch; raise the failure if there were too many. Returns only if a stop is requested meanwhile."""
    status = read_status(directory) or starting
    failures = restarts.failures_after((now_ms() - status.started_ms) / 1000)
    delay_s = restarts.policy.delay_after(failures)
    writer = StatusWriter(directory, status)
    if delay_s is None:
        message = f"{failed}; failed {failures} times in a row, so it is not started again"
        writer.transition(PipelineState.FAILED, message)
        raise PipelineRunError(message) from failed
    try:
        if not signals.rearm():
            raise StopRequested
        writer.retrying(str(failed), failures, now_ms() + round(delay_s * 1000))
        listener.retrying(directory, str(failed), failures, delay_s)
        time.sleep(delay_s)
        signals.raises = False
        if signals.received:
            raise StopRequested
    except StopRequested:
        writer.transition(PipelineState.STOPPED)
        return writer.status
    locks.inherit(True)
    return restarts.relaunch(failures, str(failed), locks)


def _run_locked(
    spec: PipelineSpec,
    main: Main,
    directory: PipelineDirectory,
    starting: PipelineStatus,
    signals: StopSignals,
    listener: RunListener,
) -> PipelineStatus:
    is_new = not directory.status.exists()
    if directory.log.exists():
        directory.log.replace(directory.log_before)
    writer = StatusWriter(directory, starting)
    try:
        state = _run_queries(spec, main, directory, writer, signals, listener)
    except StopRequested:  # while Spark started
        state = PipelineState.STOPPED
    except PipelineError as failed:
        writer.transition(PipelineState.FAILED, str(failed))
        if is_new and isinstance(failed, SparkStartError):
            directory.status.unlink()
        raise
    except BaseException as failed:
        writer.transition(PipelineState.FAILED, f"unexpected {type(failed).__name__}: {failed}")
        raise
    writer.transition(state)
    return writer.status


def _run_queries(
    spec: PipelineSpec,
    main: Main,
    directory: PipelineDirectory,
    writer: StatusWriter,
    signals: StopSignals,
    listener: RunListener,
) -> PipelineState:
    with spark_session(spec, directory.checkpoints, directory.log, signals) as spark:
        from moldau.spark.query_listener import QueryListener

        pickle_by_value(spec.file)
        spark.streams.addListener(QueryListener(started=writer.query_started, progressed=writer.query_progressed))
        listener.spark_started(directory)

        def started(planned: PlannedQuery, query: Any) -> None:
            watcher.add(planned, query)
            listener.query_started(planned)

        with Watcher(spark, writer) as watcher, intercept_queries(started) as intercepted:
            try:
                call_main(main, spark, spec.file, directory.log)
                if not intercepted.queries:
                    listener.no_query_started(directory)
                _await_termination(intercepted, directory)
                return PipelineState.FINISHED
            except StopRequested:
                writer.transition(PipelineState.STOPPING)
                listener.stopping(directory)
                return PipelineState.STOPPED
            finally:
                signals.raises = False
                _stop_queries(intercepted, signals, writer)


def check_master(master: str) -> None:
    wrong = master_error(master)
    if wrong:
        raise SparkStartError(wrong)


@contextmanager
def spark_session(spec: PipelineSpec, checkpoints: Path, log: Path, signals: StopSignals) -> Iterator[Any]:
    """A session with a JVM that logs to the file; raises SparkStartError if it does not start."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    try:
        with redirect_child_stderr(log):
            spark = session(spec.name, spec.master, **spec.session_settings(checkpoints))
    except SparkUnavailable as unavailable:
        raise SparkStartError(
            f"{unavailable} (log: {log})" if log.stat().st_size else str(unavailable)
        ) from unavailable
    except Exception as failed:  # any Java error about settings and masters
        write_stack_trace(log, "Spark did not start", failed)
        raise SparkStartError(f"Spark did not start: {describe_exception(failed)} (log: {log})") from failed
    signals.install()
    with redirect_py4j_errors(log), _jvm_errors(log):
        try:
            yield spark
        finally:
            signals.raises = False
            spark.stop()


@contextmanager
def _jvm_errors(log: Path) -> Iterator[None]:
    """Turn the many errors of a lost connection to the JVM into one."""
    from py4j.protocol import Py4JNetworkError

    try:
        yield
    except (Py4JNetworkError, ConnectionError) as gone:
        write_stack_trace(log, "Lost the connection to Spark's JVM", gone)
        raise PipelineRunError("Spark's JVM is gone; it may have been killed or run out of memory", log) from gone


def pickle_by_value(file: str) -> None:
    """Send functions of the file, and of modules beside it, to Python workers whole: they cannot import them."""
    from pyspark import cloudpickle

    register: Any = cloudpickle.register_pickle_by_value  # it has no types
    for module in modules_of(file):
        register(module)


def call_main(main: Main, spark: Any, file: str, log: Path) -> None:
    path = str(absolute(file))
    try:
        main(spark)
    except (PipelineError, ConnectionError):
        raise
    except (Exception, SystemExit) as failed:
        if isinstance(failed, SystemExit) and not failed.code:
            return
        write_stack_trace(log, f"main in {path} failed", failed)
        raise PipelineRunError(f"main in {path} failed: {describe_exception(failed, path)}", log) from failed


def _await_termination(intercepted: InterceptedQueries, directory: PipelineDirectory) -> None:
    """Wait for all queries; raise when the first one fails."""
    active = list(intercepted.queries)
    while active:
        for query in [each for each in active if not each.isActive]:
            active.remove(query)
            error = query.exception()
            if error is not None:
                name = query.name or query.id
                write_stack_trace(directory.log, f"query {name} failed", str(error))
                raise PipelineRunError(f"query {name} failed: {root_cause(str(error))}", directory.log)
        if active:
            time.sleep(POLL_S)


def _stop_queries(intercepted: InterceptedQueries, signals: StopSignals, writer: StatusWriter) -> None:
    """Stop each query between two batches, if the current one ends in time and no second signal comes.

    A query that waits for its broker is stopped at once.
    """
    deadline = time.monotonic() + BATCH_GRACE_S
    for query in intercepted.queries:
        batch = _batch_of(query)
        while query.isActive and signals.received < 2 and time.monotonic() < deadline:
            if writer.is_waiting(query.name or str(query.id)):
                break
            if not query.status["isTriggerActive"] or _batch_of(query) != batch:
                break
            time.sleep(STOP_POLL_S)
        query.stop()


def _batch_of(query: Any) -> int | None:
    progress = query.lastProgress
    return None if progress is None else progress["batchId"]
