"""Runs a pipeline's file: session, queries, record, and an orderly end. One pipeline, one process.

Raises PipelineFailed with one sentence; the stack of what failed is in the log that the sentence names.
"""

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from moldau.spark.defaults import BOOTSTRAP_SETTING, START_SETTING
from moldau.spark.masters import why_not_master
from moldau.spark.pipelines.keeper import Keeper
from moldau.spark.pipelines.logs import children_log_to, write_stack
from moldau.spark.pipelines.places import PipelineFailed, Place, Record, State, held, now_ms, place_of
from moldau.spark.pipelines.script import Main, load_main, modules_of
from moldau.spark.pipelines.signals import Signals, StopAsked
from moldau.spark.pipelines.wording import in_a_sentence, of_exception
from moldau.spark.pipelines.writers import CHECKPOINTS, Noticed, Planned, noticed
from moldau.spark.sessions import PACK, SparkUnavailable, session

LOOK_EVERY_S = 0.25
STOP_LOOK_S = 0.05
BATCH_GRACE_S = 30.0  # how long a stop waits for the batch that runs


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, and how. `start` is earliest, latest or milliseconds; empty strings leave the choice."""

    file: str
    name: str
    directory: str
    master: str = "local[*]"
    bootstrap: str = ""
    start: str = ""
    pack: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()

    def all_settings(self, checkpoints: Path) -> dict[str, str]:
        own = {BOOTSTRAP_SETTING: self.bootstrap, START_SETTING: self.start, PACK: self.pack}
        chosen = {"spark.ui.enabled": "false", CHECKPOINTS: checkpoints.as_uri()}
        return {**chosen, **{name: value for name, value in own.items() if value}, **self.settings}


class Tells(Protocol):
    """What a run says to the person who started it; a command line prints it."""

    def ready(self, place: Place) -> None: ...

    def started(self, query: Planned) -> None: ...

    def idle(self, place: Place) -> None: ...

    def stopping(self, place: Place) -> None: ...


def run(request: Request, tells: Tells) -> State:
    """Runs until the queries end or somebody asks to stop. STOPPED or FINISHED; PipelineFailed otherwise."""
    place = place_of(request.directory, request.name)
    check_master(request.master)
    with Signals() as signals, held(place):
        file = str(Path(request.file).expanduser().absolute())
        if place.log.exists():
            place.log.replace(place.log_before)
        keeper = Keeper(place, Record(request.name, file, os.getpid(), request.master, now_ms()))
        try:
            state = _run_held(request, place, keeper, signals, tells)
        except StopAsked:  # before there was anything to stop
            state = State.STOPPED
        except PipelineFailed as failed:
            keeper.tell(State.FAILED, str(failed))
            raise
        except BaseException as broken:
            keeper.tell(State.FAILED, f"unexpected {type(broken).__name__}: {broken}")
            raise
        keeper.tell(state)
        return state


def _run_held(request: Request, place: Place, keeper: Keeper, signals: Signals, tells: Tells) -> State:
    main = load_main(request.file, request.arguments)
    with spark_session(request, place.checkpoints, place.log, signals) as spark:
        from moldau.spark.listening import Listener

        send_by_value(request.file)
        spark.streams.addListener(Listener(started=keeper.started, progressed=keeper.progressed))
        tells.ready(place)
        with noticed(tells.started) as found:
            try:
                call_main(main, spark, request.file, place.log)
                if not found.queries:
                    tells.idle(place)
                _wait(found, place)
                return State.FINISHED
            except StopAsked:
                keeper.tell(State.STOPPING)
                tells.stopping(place)
                return State.STOPPED
            finally:
                signals.waits = False
                _stop(found, signals)


def check_master(master: str) -> None:
    wrong = why_not_master(master)
    if wrong:
        raise PipelineFailed(wrong)


@contextmanager
def spark_session(request: Request, checkpoints: Path, log: Path, signals: Signals) -> Iterator[Any]:
    """A session whose JVM logs to the file. A session that does not come up is told in one sentence."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    try:
        with children_log_to(log):
            spark = session(request.name, request.master, **request.all_settings(checkpoints))
    except SparkUnavailable as unavailable:
        raise PipelineFailed(f"{unavailable} (log: {log})" if log.stat().st_size else str(unavailable)) from unavailable
    except Exception as failed:  # whatever Java says about settings and masters
        write_stack(log, "Spark does not start", failed)
        raise PipelineFailed(f"Spark does not start: {of_exception(failed)} (log: {log})") from failed
    signals.take()
    with _jvm_lives(log):
        try:
            yield spark
        finally:
            signals.waits = False
            spark.stop()


@contextmanager
def _jvm_lives(log: Path) -> Iterator[None]:
    """If it does not, whatever was asked of it fails in some way: this is said instead."""
    from py4j.protocol import Py4JNetworkError

    try:
        yield
    except (Py4JNetworkError, ConnectionError) as gone:
        write_stack(log, "The connection to Spark's JVM is lost", gone)
        raise PipelineFailed(f"Spark's JVM is gone: was it killed, or out of memory? (log: {log})") from gone


def send_by_value(file: str) -> None:
    """Functions of the file, and of modules beside it, travel to Python workers whole."""
    from pyspark import cloudpickle

    register: Any = cloudpickle.register_pickle_by_value  # it has no types
    for module in modules_of(file):
        register(module)


def call_main(main: Main, spark: Any, file: str, log: Path) -> None:
    path = str(Path(file).expanduser().absolute())
    try:
        main(spark)
    except (PipelineFailed, ConnectionError):
        raise
    except (Exception, SystemExit) as failed:
        if isinstance(failed, SystemExit) and not failed.code:
            return
        write_stack(log, f"main of {path} failed", failed)
        raise PipelineFailed(f"main of {path} failed: {of_exception(failed, path)} (stack: {log})") from failed


def _wait(found: Noticed, place: Place) -> None:
    """Until every query has ended; the first that failed ends them all."""
    waiting = list(found.queries)
    while waiting:
        for query in [each for each in waiting if not each.isActive]:
            waiting.remove(query)
            error = query.exception()
            if error is not None:
                name = query.name or query.id
                write_stack(place.log, f"query {name} failed", str(error))
                raise PipelineFailed(f"query {name} failed: {in_a_sentence(str(error))} (stack: {place.log})")
        if waiting:
            time.sleep(LOOK_EVERY_S)


def _stop(found: Noticed, signals: Signals) -> None:
    """Each query between two batches, if the one that runs ends soon enough."""
    until = time.monotonic() + BATCH_GRACE_S
    for query in found.queries:
        batch = _batch_of(query)
        while query.isActive and not signals.asked > 1 and time.monotonic() < until:
            if not query.status["isTriggerActive"] or _batch_of(query) != batch:
                break
            time.sleep(STOP_LOOK_S)
        query.stop()


def _batch_of(query: Any) -> int | None:
    progress = query.lastProgress
    return None if progress is None else progress["batchId"]
