"""Open files of the log, atomic replacement, syncing and deletion. Knows no formats."""

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Protocol

DELETED = ".deleted"  # suffix of a file that is no longer part of the log
TEMPORARY = ".tmp"
OPEN_SEGMENTS = 1024  # segments with open files; a finished one has two descriptors (log and index)


FULL = (errno.ENOSPC, errno.EDQUOT)
TRANSIENT = (*FULL, errno.EMFILE, errno.ENFILE)  # nothing is lost, and a retry may work


class SyncFailed(OSError):
    """A failed fsync. The kernel may have dropped the data: a second fsync that succeeds would mean nothing."""


def is_transient(problem: OSError) -> bool:
    """Whether an error passes without a restart: a full disk, or too many open files."""
    return problem.errno in TRANSIENT and not isinstance(problem, SyncFailed)


def out_of_space(problem: OSError) -> bool:
    return problem.errno in FULL


class LogFile:
    """An open `.log` file, closed with its last reference."""

    __slots__ = ("__weakref__", "fd")

    def __init__(self, path: str) -> None:
        self.fd = -1
        # O_APPEND: after a truncation the next write is at the new end.
        self.fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Opened(Protocol):
    """A segment, as the pool of open files sees it."""

    touched: bool

    def open_file(self) -> LogFile: ...

    def release_file(self) -> None: ...


class OpenFiles:
    """A bounded pool of segments with open files, with second-chance eviction: a hit sets one attribute.

    Logs may be opened and closed in threads while others are in use: each step below is one call of an OrderedDict,
    which no thread can interrupt, and a file that is taken from a segment stays open while it is being read.
    """

    __slots__ = ("_open", "limit")

    def __init__(self, limit: int = OPEN_SEGMENTS) -> None:
        self.limit = limit
        self._open: OrderedDict[Opened, None] = OrderedDict()  # oldest first

    def __len__(self) -> int:
        return len(self._open)

    def open(self, segment: Opened) -> LogFile:
        while len(self._open) >= self.limit:
            try:
                oldest, _ = self._open.popitem(last=False)
            except KeyError:  # other threads took them all
                break
            if oldest.touched:
                oldest.touched = False
                self._open[oldest] = None
            else:
                oldest.release_file()
        file = segment.open_file()
        self._open[segment] = None
        return file

    def leave_open(self, segment: Opened) -> None:
        """Take the segment out of the pool; its files stay open while it is referenced."""
        self._open.pop(segment, None)

    def forget(self, segment: Opened) -> None:
        self._open.pop(segment, None)
        segment.release_file()


def sync(fd: int, call: Callable[[int], None] | None = None) -> None:
    """fsync; raises SyncFailed."""
    try:
        (call or os.fsync)(fd)
    except OSError as problem:
        raise SyncFailed(problem.errno, f"fsync failed: {problem.strerror}") from problem


def sync_directory(path: str | Path) -> None:
    """Make creations, renames and deletions in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(fd)
    finally:
        os.close(fd)


def sync_file(path: str | Path) -> None:
    """Make a file's content durable, but not its name."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


def replace(path: str | Path, data: bytes, *, durable: bool = True, sync_names: bool = True) -> None:
    """Replace a file atomically: readers, also after a crash, see the old content or the new.

    Without `sync_names` the caller syncs the directory, once for several files.
    """
    temporary = f"{path}{TEMPORARY}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, data)
        if durable:
            sync(fd)
    except OSError:
        with suppress(OSError):  # a full disk gets its blocks back; the error is raised below
            os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    os.replace(temporary, path)
    if durable and sync_names:
        sync_directory(os.path.dirname(path) or ".")


def cut_back(fd: int, size: int) -> None:
    """Undo a partial write. If that fails, later batches would be at wrong positions: an EIO."""
    try:
        os.ftruncate(fd, size)
    except OSError as problem:
        raise OSError(errno.EIO, f"a partial write cannot be undone: {problem.strerror}") from problem


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_tail(path: str, position: int, data: bytes) -> None:
    """Replace the file's content from `position` on, and sync it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, position)
        os.lseek(fd, position, os.SEEK_SET)
        write_all(fd, data)
        sync(fd)
    finally:
        os.close(fd)


def read_whole(path: str | Path) -> bytes | None:
    """The file's bytes, or None where there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(fd).st_size
        data = os.read(fd, size + 1)
        while len(data) < size:
            more = os.read(fd, size - len(data))
            if not more:
                break
            data += more
        return data
    finally:
        os.close(fd)


def mark_deleted(paths: Iterable[str]) -> list[Path]:
    """Rename files out of the log; returns the paths that `remove` unlinks later, in a thread.

    On a full disk a directory may have no room for the longer name. Then the file goes at once; open readers keep it.
    """
    renamed = []
    for path in paths:
        with suppress(FileNotFoundError):
            try:
                os.rename(path, path + DELETED)
            except OSError as problem:
                if not out_of_space(problem):
                    raise
                os.unlink(path)
            else:
                renamed.append(Path(path + DELETED))
    return renamed


def remove(paths: Iterable[Path]) -> None:
    """Delete files and directory trees. Slow for large ones: run it in a thread."""
    for path in paths:
        if path.is_dir():
            rmtree(path)
        else:
            path.unlink(missing_ok=True)
