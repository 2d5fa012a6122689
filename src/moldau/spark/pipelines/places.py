"""Where a pipeline keeps what it knows: its folder under the data directory, the lock in it, and its record.

DIR/pipelines/NAME/lock           held by the process that runs it; no other `run` gets it
                   alive          held by that process too: who can take it for a moment knows that it is gone
                   record.json    what `moldau pipeline list` and `status` show
                   log            what Spark says, and the stack of what failed; log.before is of the run before
                   checkpoints/   Spark's own, a folder for each query's name
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

FOLDER = "pipelines"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
NAME_RULE = "up to 100 letters, digits, dots, underscores and hyphens, and not a dot first"


class PipelineFailed(Exception):
    """A pipeline cannot run or did not: one sentence why, and what to do."""


class State(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"  # because somebody asked
    FINISHED = "finished"  # because its queries had no more to do
    FAILED = "failed"


ALIVE = (State.STARTING, State.RUNNING, State.STOPPING)


@dataclass(frozen=True, slots=True)
class Record:
    """What a pipeline tells of itself. `queries` has a summary of the latest progress for each query's name."""

    name: str
    file: str
    pid: int
    master: str
    started_ms: int
    state: State = State.STARTING
    reason: str = ""
    ended_ms: int | None = None
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of one pipeline."""

    directory: Path
    name: str

    @property
    def folder(self) -> Path:
        return self.directory / FOLDER / self.name

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def alive(self) -> Path:
        return self.folder / "alive"

    @property
    def record(self) -> Path:
        return self.folder / "record.json"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def log_before(self) -> Path:
        return self.folder / "log.before"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"


def place_of(directory: str, name: str) -> Place:
    if not NAME.fullmatch(name):
        raise PipelineFailed(f"{name!r} is no name for a pipeline: names have {NAME_RULE}")
    return Place(Path(directory).expanduser().absolute(), name)


def all_places(directory: str) -> list[Place]:
    """Every pipeline that ever ran here, by name."""
    root = Path(directory).expanduser().absolute()
    try:
        names = sorted(each.name for each in (root / FOLDER).iterdir() if (each / "record.json").exists())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as failed:
        raise PipelineFailed(f"cannot read {root / FOLDER}: {failed.strerror}") from failed
    return [Place(root, name) for name in names]


@contextmanager
def held(place: Place) -> Iterator[None]:
    """Makes the folder and holds its locks; they go with the process, however that ends."""
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(place.lock, os.O_RDWR | os.O_CREAT, 0o644)
        alive = os.open(place.alive, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as failed:
        raise PipelineFailed(f"cannot write to {place.folder}: {failed.strerror}. Name another with --dir") from failed
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineFailed(
                f"the pipeline {place.name} is running already. Stop it with: moldau pipeline stop {place.name}; "
                "or give this one another --name"
            ) from None
        fcntl.flock(alive, fcntl.LOCK_EX)  # waits for those who are just looking
        yield
    finally:
        os.close(alive)
        os.close(lock)


def is_held(place: Place) -> bool:
    """Whether a process runs this pipeline now."""
    try:
        alive = os.open(place.alive, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(alive)
    return False


def write_record(place: Place, record: Record) -> None:
    """Replaces the record at once: a reader finds the old one or the new one, never half of one."""
    unfinished = place.folder / f".record.{os.getpid()}"
    unfinished.write_text(json.dumps(asdict(record), indent=1))
    unfinished.replace(place.record)


def read_record(place: Place) -> Record | None:
    """The record, with the truth about a process that ended without a word. None if there is none that makes sense."""
    running = is_held(place)  # asked first: a pipeline that ends in between has written its end by then
    try:
        document = json.loads(place.record.read_text())
    except (OSError, ValueError):
        return None
    record = _from_document(document)
    if record is None or running or record.state not in ALIVE:
        return record
    ended = record.ended_ms
    with suppress(OSError):
        ended = int(place.record.stat().st_mtime * 1000)
    return replace(
        record, state=State.FAILED, reason="its process is gone without a word: was it killed?", ended_ms=ended
    )


def _from_document(document: Any) -> Record | None:
    if not isinstance(document, dict):
        return None
    known = {each.name: document[each.name] for each in fields(Record) if each.name in document}
    try:
        record = Record(**known)
        return replace(record, state=State(record.state))
    except (TypeError, ValueError):
        return None


def now_ms() -> int:
    return time.time_ns() // 1_000_000
