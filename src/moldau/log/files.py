"""Open files of the log and how they change on disk: descriptors, atomic replacement, removal. Knows no formats."""

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple, Protocol

DELETED = ".deleted"  # of a file that is out of the log and waits for its removal
TEMPORARY = ".tmp"
OPEN_SEGMENTS = 1024  # segments with open descriptors at a time; a cold one takes two (the file and its index)


FULL = (errno.ENOSPC, errno.EDQUOT)
TRANSIENT = (*FULL, errno.EMFILE, errno.ENFILE)  # nothing is lost, and later it may work again


class SyncFailed(OSError):
    """The system could not write what it had accepted, and may have dropped it: a second fsync that works would lie."""


def is_transient(problem: OSError) -> bool:
    """Whether it is a full disk or the like, not a broken one."""
    return problem.errno in TRANSIENT and not isinstance(problem, SyncFailed)


def out_of_space(problem: OSError) -> bool:
    return problem.errno in FULL


class LogFile:
    """An open `.log` file. Whoever may still read it holds a reference; the last one to let go closes it."""

    __slots__ = ("__weakref__", "fd")

    def __init__(self, path: str) -> None:
        self.fd = -1
        # Appending is the kernel's business: after a truncation the next write lands at the new end.
        self.fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Slice(NamedTuple):
    """A part of a file to send, without having read it."""

    file: LogFile
    position: int
    length: int
    hot: bool  # written a moment ago: the page cache has it


class Opened(Protocol):
    """What a pool of open files needs of the segment that it opens a file for."""

    touched: bool

    def open_file(self) -> LogFile: ...

    def release_file(self) -> None: ...


class OpenFiles:
    """Bounds how many segments keep files open: second chance, so that a hit costs one attribute.

    Logs may be opened and closed in threads while others are in use: each step below is one call of an OrderedDict,
    which no thread can interrupt, and a file that is taken from a segment stays open for whoever reads it just then.
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
        """The segment's files stay open until nobody refers to it."""
        self._open.pop(segment, None)

    def forget(self, segment: Opened) -> None:
        self._open.pop(segment, None)
        segment.release_file()


def sync(fd: int, call: Callable[[int], None] | None = None) -> None:
    """Makes what was written survive a power cut, or raises SyncFailed."""
    try:
        (call or os.fsync)(fd)
    except OSError as problem:
        raise SyncFailed(problem.errno, f"fsync failed: {problem.strerror}") from problem


def sync_directory(path: str | Path) -> None:
    """Makes creations, renames and removals in a directory survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(fd)
    finally:
        os.close(fd)


def sync_file(path: str | Path) -> None:
    """Makes a file's bytes survive a power cut; its name is its directory's business."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


def replace(path: str | Path, data: bytes, *, durable: bool = True, sync_names: bool = True) -> None:
    """Replaces a file as a whole: a reader, or a crash, finds the old content or the new.

    Without `sync_names` the caller syncs the directory, once for several files.
    """
    temporary = f"{path}{TEMPORARY}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, data)
        if durable:
            sync(fd)
    except OSError:
        with suppress(OSError):  # a full disk gets its bytes back; what went wrong is told below
            os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    os.replace(temporary, path)
    if durable and sync_names:
        sync_directory(os.path.dirname(path) or ".")


def cut_back(fd: int, size: int) -> None:
    """Takes back a write that got only part of its bytes. If that fails, what follows would stand in a wrong place."""
    try:
        os.ftruncate(fd, size)
    except OSError as problem:
        raise OSError(errno.EIO, f"a write in part cannot be taken back: {problem.strerror}") from problem


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_tail(path: str, position: int, data: bytes) -> None:
    """Makes `data` the file's content from `position` on; whatever stood behind it goes."""
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
    """Unlinks files and directory trees. Slow for large ones: belongs in a thread."""
    for path in paths:
        if path.is_dir():
            rmtree(path)
        else:
            path.unlink(missing_ok=True)
