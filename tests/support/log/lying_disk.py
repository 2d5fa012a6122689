"""A disk that lies: it keeps what was synced and, of the rest, whatever a seed decides. It also fails when asked to.

While `lying` is on, the file system calls of this process go through a `LyingDisk` for all paths below its root. They
are carried out on real files, which are what the program sees, and noted in a model of what a power cut would leave:
the bytes of a file count once the file was synced, a name (made, renamed, removed) once its directory was. What was not
synced may survive in part: a file's writes up to any byte, or its size with holes in it; a directory's changes up to
any of them, in order, as journalling file systems keep them.

A crash comes at the n-th call that changes something: `PowerCut` ends the program, and `leave` writes down what is
found afterwards. Everything follows from the numbers given, so a failing seed fails again.
"""

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moldau.log import flush, log

SECTOR = 512  # bytes that reach a disk together

_real = {name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))}


class PowerCut(BaseException):
    """The program ends here. No `except Exception` or `except OSError` may go on after it."""


class File:
    """A file's bytes, as the program sees them and as the disk has them for sure."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = content
        self.pending: list[tuple[int, bytes | None]] = []  # position and bytes of writes; None: truncated there

    def write(self, position: int, data: bytes) -> None:
        _overwrite(self.content, position, data)
        self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        _resize(self.content, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.pending.clear()

    def left(self, dice: random.Random) -> bytes:
        """What a power cut leaves of it."""
        kind = dice.choice(("durable", "torn", "torn", "holes", "all")) if self.pending else "durable"
        if kind == "durable":
            return self.durable
        found = bytearray(self.durable)
        last = dice.randrange(len(self.pending)) if kind == "torn" else len(self.pending) - 1
        for place, (position, data) in enumerate(self.pending[: last + 1]):
            if data is None:
                _resize(found, position)
            else:
                part = dice.randint(0, len(data)) if kind == "torn" and place == last else len(data)
                _overwrite(found, position, data[:part])
        if kind == "holes":  # the size is there, some sectors are not
            for start in range(0, len(found), SECTOR):
                if dice.random() < 0.3:
                    end = min(start + SECTOR, len(found))
                    found[start:end] = self.durable[start:end].ljust(end - start, b"\0")
        return bytes(found)


class Directory:
    """Names and what they stand for."""

    def __init__(self) -> None:
        self.entries: dict[str, File | Directory] = {}
        self.durable: dict[str, File | Directory] = {}
        self.pending: list[Callable[[dict[str, Any]], object]] = []

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        change(self.entries)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def left(self, dice: random.Random) -> dict[str, "File | Directory"]:
        names = dict(self.durable)
        many = dice.choice((0, len(self.pending), dice.randint(0, len(self.pending))))
        for change in self.pending[:many]:
            change(names)
        return names


class LyingDisk:
    """`root` exists and is empty, or what is in it counts as durable."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.root = str(root.resolve())
        self.steps = 0  # calls so far that change something
        self.cut_at: int | None = None
        self.room: int | None = None  # bytes that can still be written; None: without end
        self.failures: dict[str, Callable[[str, int], int | None]] = {}  # by call: its path and number → an errno
        self.calls: dict[str, int] = {}
        self.dead = False
        self._dice = random.Random(seed)
        self._tree = self._scan(Path(self.root))
        self._open: dict[int, tuple[str, File | Directory]] = {}

    def fail(self, call: str, number: int, code: int = errno.EIO, path: str = "") -> None:
        """Has the number-th call of a kind (on paths that contain `path`) fail with an error of the system."""
        seen = 0

        def decide(where: str, _: int) -> int | None:
            nonlocal seen
            if path not in where:
                return None
            seen += 1
            return code if seen == number else None

        self.failures[call] = decide

    def leave(self, target: Path, *, power: bool = True, seed: int | None = None) -> None:
        """Writes what is found after a power cut; without `power`, after the death of the process alone."""
        dice = self._dice if seed is None else random.Random(seed)
        self._write(self._tree, target, dice if power else None)

    def _write(self, directory: Directory, target: Path, dice: random.Random | None) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for name, found in (directory.entries if dice is None else directory.left(dice)).items():
            if isinstance(found, Directory):
                self._write(found, target / name, dice)
            else:
                (target / name).write_bytes(bytes(found.content) if dice is None else found.left(dice))

    def _scan(self, path: Path) -> Directory:
        directory = Directory()
        for entry in path.iterdir():
            directory.entries[entry.name] = self._scan(entry) if entry.is_dir() else File(entry.read_bytes())
        directory.sync()
        return directory

    # ── what the program does ──

    def _inside(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path below the root, or None where it is none of ours."""
        if isinstance(path, int):
            return self._open[path][0] if path in self._open else None
        text = os.fsdecode(path)
        if dir_fd is not None:
            text = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), text)
        text = os.path.abspath(text)
        return text if text == self.root or text.startswith(self.root + "/") else None

    def _find(self, path: str) -> "File | Directory | None":
        found: File | Directory | None = self._tree
        for name in path[len(self.root) + 1 :].split("/") if path != self.root else ():
            found = found.entries.get(name) if isinstance(found, Directory) else None
        return found

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent = self._find(os.path.dirname(path))
        assert isinstance(parent, Directory), path
        return parent, os.path.basename(path)

    def _step(self, call: str, path: str) -> None:
        """A call that changes something is about to happen: or the power goes, or the call fails."""
        if self.dead:
            raise PowerCut
        self.steps += 1
        self.calls[call] = self.calls.get(call, 0) + 1
        if self.steps == self.cut_at:
            self.dead = True
            if call != "write":
                raise PowerCut
        decide = self.failures.get(call)
        code = decide(path, self.calls[call]) if decide is not None else None
        if code is not None:
            raise OSError(code, os.strerror(code), path)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        where = self._inside(path, dir_fd)
        if where is None:
            return int(_real["open"](path, flags, mode, dir_fd=dir_fd))
        known = self._find(where)
        if known is None and flags & os.O_CREAT:
            self._step("create", where)
        fd = int(_real["open"](path, flags, mode, dir_fd=dir_fd))
        if known is None:
            known = made = File()
            parent, name = self._parent(where)
            parent.change(lambda names: names.__setitem__(name, made))
        elif flags & os.O_TRUNC and isinstance(known, File) and known.content:
            self._step("truncate", where)
            known.truncate(0)
        self._open[fd] = (where, known)
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        _real["close"](fd)

    def write(self, fd: int, data: Any) -> int:
        return self.writev(fd, [data])

    def writev(self, fd: int, pieces: Any) -> int:
        where, file = self._open.get(fd, ("", None))
        data = b"".join(bytes(piece) for piece in pieces)
        if not isinstance(file, File):
            return int(_real["write"](fd, data))
        self._step("write", where)
        if self.dead:
            data = data[: self._dice.randint(0, len(data))]
        elif self.room is not None:
            if data and not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where)
            data = data[: self.room]
            self.room -= len(data)
        written = int(_real["write"](fd, data)) if data else 0
        if written:
            file.write(int(_real["lseek"](fd, 0, os.SEEK_CUR)) - written, data)
        if self.dead:
            raise PowerCut
        return written

    def ftruncate(self, fd: int, size: int) -> None:
        where, file = self._open.get(fd, ("", None))
        if isinstance(file, File) and len(file.content) != size:
            self._step("truncate", where)
            file.truncate(size)
        _real["ftruncate"](fd, size)

    def truncate(self, path: Any, size: int) -> None:
        where = self._inside(path)
        file = self._find(where) if where else None
        if where and isinstance(file, File) and len(file.content) != size:
            self._step("truncate", where)
            file.truncate(size)
        _real["truncate"](path, size)

    def fsync(self, fd: int) -> None:
        where, found = self._open.get(fd, ("", None))
        if found is not None:  # the real disk is left alone: this one decides
            self._step("sync", where)
            found.sync()

    def rename(self, source: Any, target: Any) -> None:
        old, new = self._inside(source), self._inside(target)
        if old is None or new is None:
            _real["rename"](source, target)
            return
        if self._find(old) is not None:
            self._step("rename", new)
        _real["rename"](source, target)
        parent, name = self._parent(old)
        _, new_name = self._parent(new)
        assert os.path.dirname(old) == os.path.dirname(new), "only within a directory"
        moved = parent.entries[name]

        def change(names: dict[str, Any]) -> None:
            names.pop(name, None)
            names[new_name] = moved

        parent.change(change)
        self._open = {fd: (where.replace(old, new, 1), found) for fd, (where, found) in self._open.items()}

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        where = self._inside(path, dir_fd)
        if where is not None and self._find(where) is not None:
            self._step("unlink", where)
        _real["unlink"](path, dir_fd=dir_fd)
        if where is not None:
            parent, name = self._parent(where)
            parent.change(lambda names: names.pop(name, None))

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        where = self._inside(path, dir_fd)
        if where is not None and self._find(where) is None:
            self._step("mkdir", where)
        _real["mkdir"](path, mode, dir_fd=dir_fd)
        if where is not None:
            parent, name = self._parent(where)
            made = Directory()
            parent.change(lambda names: names.__setitem__(name, made))

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        where = self._inside(path, dir_fd)
        if where is not None:
            self._step("rmdir", where)
        _real["rmdir"](path, dir_fd=dir_fd)
        if where is not None:
            parent, name = self._parent(where)
            parent.change(lambda names: names.pop(name, None))


CALLS = ("open", "close", "write", "writev", "ftruncate", "truncate", "fsync", "rename", "unlink", "mkdir", "rmdir")
ALIASES = {"replace": "rename", "remove": "unlink", "fdatasync": "fsync"}


@contextmanager
def lying(disk: LyingDisk) -> Iterator[LyingDisk]:
    """From here on the process writes to this disk, as far as its paths are below the disk's root."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (*CALLS, *ALIASES):
            patch.setattr(os, name, getattr(disk, ALIASES.get(name, name)))
        patch.setattr(log, "_writev", disk.writev)  # bound when the module was imported, for speed
        patch.setattr(flush, "_sync", disk.fsync)
        yield disk


def _overwrite(content: bytearray, position: int, data: bytes) -> None:
    if len(content) < position:
        _resize(content, position)
    content[position : position + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if len(content) > size:
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
