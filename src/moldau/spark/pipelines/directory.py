"""Directory of one pipeline under the data directory, and the locks that tell whether a process runs it.

DIR/pipelines/NAME/lock           held by the process that runs the pipeline; a second run fails to take it
                   alive          held by that process too; readers try a shared lock to see if the process is gone
                   record.json    status, as `control.py` reads it
                   log            log of Spark, and stack traces; log.before is the log of the previous run
                   checkpoints/   Spark's checkpoints, one directory per query name
"""

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from moldau.spark.pipelines.errors import InvalidPipelineName, PipelineAlreadyRunning, PipelineDirectoryError

FOLDER = "pipelines"
STATUS_FILE = "record.json"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
NAME_RULE = "use up to 100 letters, digits, dots, underscores and hyphens, and no dot at the start"


@dataclass(frozen=True, slots=True)
class PipelineDirectory:
    """Paths of one pipeline."""

    data_directory: Path
    name: str

    @property
    def path(self) -> Path:
        return self.data_directory / FOLDER / self.name

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def alive(self) -> Path:
        return self.path / "alive"

    @property
    def status(self) -> Path:
        return self.path / STATUS_FILE

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def log_before(self) -> Path:
        return self.path / "log.before"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"


def pipeline_directory(data_directory: str, name: str) -> PipelineDirectory:
    if not NAME.fullmatch(name):
        raise InvalidPipelineName(f"{name!r} is not a valid pipeline name: {NAME_RULE}")
    return PipelineDirectory(absolute(data_directory), name)


def pipeline_directories(data_directory: str) -> list[PipelineDirectory]:
    """Directories of all pipelines that have run here, by name."""
    root = absolute(data_directory)
    try:
        names = sorted(each.name for each in (root / FOLDER).iterdir() if (each / STATUS_FILE).exists())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as failed:
        raise PipelineDirectoryError(f"cannot read {root / FOLDER}: {failed.strerror}") from failed
    return [PipelineDirectory(root, name) for name in names]


def absolute(path: str) -> Path:
    return Path(path).expanduser().absolute()


class PipelineLocks(NamedTuple):
    """Open files whose locks this process holds."""

    lock: int
    alive: int

    def inherit(self, inheritable: bool) -> None:
        """Keep them over an exec of this process, or not."""
        for fd in self:
            os.set_inheritable(fd, inheritable)


@contextmanager
def locked(directory: PipelineDirectory, inherited: PipelineLocks | None = None) -> Iterator[PipelineLocks]:
    """Create the directory and hold its locks. The kernel drops them when the process ends, however it ends."""
    locks = inherited or _open_locks(directory)
    locks.inherit(False)
    try:
        try:
            fcntl.flock(locks.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineAlreadyRunning(directory.name) from None
        fcntl.flock(locks.alive, fcntl.LOCK_EX)  # waits for readers, which hold it for a moment
        yield locks
    finally:
        for fd in reversed(locks):
            os.close(fd)


def _open_locks(directory: PipelineDirectory) -> PipelineLocks:
    try:
        directory.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory.lock, os.O_RDWR | os.O_CREAT, 0o644)
        alive = os.open(directory.alive, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as failed:
        raise PipelineDirectoryError(f"cannot write to {directory.path}: {failed.strerror}") from failed
    return PipelineLocks(lock, alive)


def inherited_locks(directory: PipelineDirectory, fds: Sequence[int]) -> PipelineLocks | None:
    """Locks that the process held before an exec; None if these are not their files."""
    locks = PipelineLocks(*fds)
    try:
        pairs = ((os.fstat(fd), path.stat()) for fd, path in zip(locks, (directory.lock, directory.alive), strict=True))
        return locks if all(os.path.samestat(*pair) for pair in pairs) else None
    except OSError:
        return None


def is_locked(directory: PipelineDirectory) -> bool:
    """Tell whether a process runs this pipeline now."""
    try:
        alive = os.open(directory.alive, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(alive)
    return False
