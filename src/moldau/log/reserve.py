"""DiskReserve: a preallocated file that gives its blocks to small writes which must succeed on a full disk.

The blocks are given back part by part: producers that retry may take a part first, but not all. Knows nothing of the
files that are written with them.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from moldau.log.files import out_of_space, write_all

PARTS = 8
_allocate: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)  # macOS has none


class DiskReserve:
    """Used by one thread at a time."""

    __slots__ = ("_held", "_part", "_path", "_size")

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._part = size // PARTS
        self._size = self._part * PARTS
        self._held = 0  # until `fill` has looked

    def fill(self) -> None:
        """Take as much of the reserve as the disk has room for; the rest is taken the next time."""
        if self._held == self._size:
            return
        with suppress(OSError):  # a disk that is full or broken has no reserve
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._held = min(os.fstat(fd).st_size // self._part * self._part, self._size)
                self._extend(fd)
            finally:
                os.close(fd)

    def _extend(self, fd: int) -> None:
        try:
            while self._held < self._size:
                if _allocate is not None:
                    _allocate(fd, self._held, self._part)
                else:
                    os.lseek(fd, self._held, os.SEEK_SET)
                    write_all(fd, bytes(self._part))
                self._held += self._part
        finally:
            os.ftruncate(fd, self._held)

    def release(self) -> bool:
        """Give one part back to the file system; False if none is left."""
        if self._held <= 0:
            return False
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.ftruncate(fd, self._held - self._part)
            self._held -= self._part
            os.fsync(fd)  # a journaling file system gives blocks back when it commits
        finally:
            os.close(fd)
        return True

    def use(self, write: Callable[[], None]) -> None:
        """`write`, again with each part of the reserve for as long as the disk is full; then fill the reserve."""
        try:
            while True:
                try:
                    return write()
                except OSError as problem:
                    if not out_of_space(problem) or not self.release():
                        raise
        finally:
            self.fill()
