"""SqliteStore: the metadata store of a single node, one SQLite file. Does not interpret its content.

All statements run in one thread, so that an fsync never blocks the event loop. `synchronous=FULL` in WAL mode: an
answered `multi` survives a power cut. The file is locked while it is open, because ephemeral nodes belong to the one
process that has it open.

On a full disk small transactions (deletions, settings) use a reserve: blocks that are given back to the file system
when SQLite has no room for its write-ahead log. Otherwise nothing could be deleted.
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self, TypeVar

from moldau.base.errors import MAKE_ROOM
from moldau.base.tree import ANY_VERSION, Check, Create, Delete, Op, Set, check_path, name_of, parent_of
from moldau.store.port import Conflict, Done, Node, Reason, StoreDamaged, StoreFull, StoreUnavailable

logger = logging.getLogger("moldau.store")

T = TypeVar("T")

SCHEMA_VERSION = 1
PRIVATE = 0o600
LOCK_TIMEOUT_S = 1.0  # for another process to close the file
SMALL_CHANGE = 2  # nodes that a transaction may add on a full disk: the entry of the change feed and a setting

SCHEMA = """
CREATE TABLE node (
    path      TEXT PRIMARY KEY,
    parent    TEXT NOT NULL,
    data      BLOB NOT NULL,
    version   INTEGER NOT NULL DEFAULT 0,
    sequence  INTEGER NOT NULL DEFAULT 0,
    ephemeral INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX node_by_parent ON node (parent);
INSERT INTO node (path, parent, data) VALUES ('/', '', x'');
"""

# Codes of DatabaseError for which a retry does not help.
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Reserve(Protocol):
    """Disk space that is kept for transactions which must succeed on a full disk."""

    def fill(self) -> None: ...

    def release(self) -> bool:
        """Give a part of it back to the file system; False if none is left."""


class _Refused(Exception):
    def __init__(self, conflict: Conflict) -> None:
        self.conflict = conflict


class SqliteStore:
    """Open it with `await SqliteStore.open(path)`; `store.port.Store` is its contract."""

    def __init__(
        self, path: Path, thread: ThreadPoolExecutor, connection: sqlite3.Connection, reserve: Reserve | None = None
    ) -> None:
        self._path = path
        self._reserve = reserve
        self._thread = thread
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._watches: dict[tuple[str, str], set[asyncio.Future[None]]] = {}
        self._closed = False

    @classmethod
    async def open(cls, path: Path, reserve: Reserve | None = None) -> Self:
        thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        loop = asyncio.get_running_loop()
        try:
            connection = await loop.run_in_executor(thread, _translating_errors, path, lambda: _open(path, reserve))
        except StoreFull as problem:
            thread.shutdown(wait=False)
            raise StoreFull(f"Disk full: {path} cannot be opened. Free some space, then start the broker.") from problem
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(path, thread, connection, reserve)

    @property
    def connected(self) -> bool:
        return not self._closed

    def on_session(self, callback: Callable[[], None]) -> None:
        """Never called: the only session ends when the file is closed."""

    async def sync(self) -> None:
        """Nothing to do: no other process writes to the file."""

    async def get(self, path: str) -> Node | None:
        return await self._run(lambda: _node(self._connection, path))

    async def exists(self, path: str) -> bool:
        return await self.get(path) is not None

    async def children(self, path: str) -> list[str]:
        query = "SELECT path FROM node WHERE parent = ? ORDER BY path"
        return await self._run(lambda: [name_of(child) for (child,) in self._connection.execute(query, (path,))])

    async def subtree(self, path: str) -> dict[str, Node]:
        # '0' is the character after '/': the range is everything that begins with the path and a slash.
        low, high = ("/", "0") if path == "/" else (path + "/", path + "0")
        query = "SELECT path, data, version FROM node WHERE path = ? OR (path >= ? AND path < ?)"
        return await self._run(
            lambda: {p: Node(data, version) for p, data, version in self._connection.execute(query, (path, low, high))}
        )

    async def multi(self, ops: Sequence[Op]) -> list[Done] | Conflict:
        for op in ops:
            check_path(op.path)
        reserve = self._reserve if _nodes_added(ops) <= SMALL_CHANGE else None
        return await self._run(
            lambda: _with_reserve(self._path, lambda: self._transact(ops), reserve, self._connection)
        )

    async def watch_data(self, path: str) -> asyncio.Future[None]:
        return self._watch("data", path)

    async def watch_children(self, path: str) -> asyncio.Future[None]:
        return self._watch("children", path)

    async def close(self) -> None:
        if self._closed:
            return
        try:
            await self._run(lambda: _end(self._connection))
        finally:
            self._closed = True
            self._thread.shutdown(wait=False)
            for watchers in list(self._watches.values()):
                for watcher in list(watchers):
                    watcher.cancel()

    async def _run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"The metadata store {self._path} is closed.")
        # Shielded: the work is done even if the caller is cancelled.
        return await asyncio.shield(self._loop.run_in_executor(self._thread, _translating_errors, self._path, work))

    def _transact(self, ops: Sequence[Op]) -> list[Done] | Conflict:
        """In the store's thread. Watches fire from here, since the caller may have been cancelled."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            done = [_execute(connection, index, op) for index, op in enumerate(ops)]
            connection.execute("COMMIT")
        except _Refused as refused:
            connection.execute("ROLLBACK")
            return refused.conflict
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._loop.call_soon_threadsafe(self._fire, _touched(ops, done))
        return done

    def _watch(self, kind: str, path: str) -> asyncio.Future[None]:
        check_path(path)
        key = (kind, path)
        watcher: asyncio.Future[None] = self._loop.create_future()
        self._watches.setdefault(key, set()).add(watcher)
        watcher.add_done_callback(lambda done: self._forget(key, done))
        return watcher

    def _forget(self, key: tuple[str, str], watcher: asyncio.Future[None]) -> None:
        watchers = self._watches.get(key, set())
        watchers.discard(watcher)
        if not watchers:
            self._watches.pop(key, None)

    def _fire(self, touched: Iterable[tuple[str, str]]) -> None:
        for key in touched:
            for watcher in list(self._watches.get(key, ())):
                if not watcher.done():
                    watcher.set_result(None)


def _open(path: Path, reserve: Reserve | None) -> sqlite3.Connection:
    if reserve is not None:
        reserve.fill()
    return _with_reserve(path, lambda: _connect(path), reserve)


def _make_private(path: Path) -> None:
    """Let the owner alone read the file, which holds credentials. SQLite gives its mode to the files beside it."""
    with suppress(OSError):  # SQLite says what is wrong; a file of another owner is that owner's business
        if path.exists():
            path.chmod(PRIVATE)  # not opened: closing it would give up SQLite's locks
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


def _connect(path: Path) -> sqlite3.Connection:
    _make_private(path)
    # check_same_thread off: the connection is used in one thread, but may be freed in another.
    connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone leaves data in the drive's cache
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise StoreDamaged(
                f"{path} was written by a newer Moldau (format {version}; this release reads {SCHEMA_VERSION})"
            )
        connection.execute("BEGIN EXCLUSIVE")
        if version == 0:
            if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() != (0,):
                raise StoreDamaged(f"{path} is an SQLite file, but not one of Moldau's")
            for statement in SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        # The session of a crashed process is over.
        connection.execute("DELETE FROM node WHERE ephemeral")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _end(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("DELETE FROM node WHERE ephemeral")
    finally:
        connection.close()


def _with_reserve(
    path: Path, work: Callable[[], T], reserve: Reserve | None, connection: sqlite3.Connection | None = None
) -> T:
    """`work`, again with each part of the reserve for as long as the disk is full; then fill the reserve."""
    told = False
    try:
        while True:
            try:
                return work()
            except sqlite3.DatabaseError as error:
                if _code(error) != sqlite3.SQLITE_FULL or reserve is None or not reserve.release():
                    raise
                if not told:
                    logger.warning("Disk full: %s is written with the help of its reserve. %s", path, MAKE_ROOM)
                    told = True
                if connection is not None:
                    _reuse_log(connection)
    finally:
        if reserve is not None:
            reserve.fill()


def _reuse_log(connection: sqlite3.Connection) -> None:
    """Let the next transaction overwrite the write-ahead log, which then need not grow."""
    with suppress(sqlite3.DatabaseError):
        connection.execute("PRAGMA wal_checkpoint(RESTART)")


def _nodes_added(ops: Sequence[Op]) -> int:
    return sum((isinstance(op, Create) and not op.ephemeral) - isinstance(op, Delete) for op in ops)


def _code(error: sqlite3.DatabaseError) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF  # the low byte is the primary code


def _translating_errors(path: Path, work: Callable[[], T]) -> T:
    """Turn SQLite's errors into those of the contract."""
    try:
        return work()
    except sqlite3.DatabaseError as error:
        code = _code(error)
        if code == sqlite3.SQLITE_FULL:
            raise StoreFull(f"Disk full: {path} has no room for the change. {MAKE_ROOM}") from error
        raise (StoreDamaged if code in DAMAGE else StoreUnavailable)(f"{path}: {error}") from error


def _node(connection: sqlite3.Connection, path: str) -> Node | None:
    row = connection.execute("SELECT data, version FROM node WHERE path = ?", (path,)).fetchone()
    return Node(*row) if row else None


def _execute(connection: sqlite3.Connection, index: int, op: Op) -> Done:
    match op:
        case Create():
            return _create(connection, index, op)
        case Set():
            return _set(connection, index, op)
        case Delete():
            return _delete(connection, index, op)
        case Check():
            _expect(connection, index, op)
            return Done(op.path, op.version)


def _create(connection: sqlite3.Connection, index: int, op: Create) -> Done:
    path, parent = op.path, parent_of(op.path)
    row = connection.execute("SELECT ephemeral, sequence FROM node WHERE path = ?", (parent,)).fetchone()
    if row is None:
        raise _Refused(Conflict(Reason.NO_NODE, index, op))
    ephemeral_parent, sequence = row
    if ephemeral_parent:
        raise _Refused(Conflict(Reason.EPHEMERAL_PARENT, index, op))
    if op.sequential:
        path = f"{path}{sequence:010d}"
        connection.execute("UPDATE node SET sequence = sequence + 1 WHERE path = ?", (parent,))
    insert = "INSERT OR IGNORE INTO node (path, parent, data, ephemeral) VALUES (?, ?, ?, ?)"
    if connection.execute(insert, (path, parent, op.data, op.ephemeral)).rowcount == 0:
        raise _Refused(Conflict(Reason.NODE_EXISTS, index, op))
    return Done(path, 0)


def _set(connection: sqlite3.Connection, index: int, op: Set) -> Done:
    version = _expect(connection, index, op) + 1
    connection.execute("UPDATE node SET data = ?, version = ? WHERE path = ?", (op.data, version, op.path))
    return Done(op.path, version)


def _delete(connection: sqlite3.Connection, index: int, op: Delete) -> Done:
    _expect(connection, index, op)
    if connection.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (op.path,)).fetchone():
        raise _Refused(Conflict(Reason.NOT_EMPTY, index, op))
    connection.execute("DELETE FROM node WHERE path = ?", (op.path,))
    return Done(op.path, op.version)


def _expect(connection: sqlite3.Connection, index: int, op: Set | Delete | Check) -> int:
    """The node's version, if it is the expected one."""
    node = _node(connection, op.path)
    if node is None:
        raise _Refused(Conflict(Reason.NO_NODE, index, op))
    if op.version not in (ANY_VERSION, node.version):
        raise _Refused(Conflict(Reason.BAD_VERSION, index, op))
    return node.version


def _touched(ops: Sequence[Op], done: Sequence[Done]) -> list[tuple[str, str]]:
    """The watches that a multi fires."""
    keys: list[tuple[str, str]] = []
    for op, result in zip(ops, done, strict=True):
        if not isinstance(op, Check):
            keys.append(("data", result.path))
        if isinstance(op, Create | Delete):
            keys.append(("children", parent_of(result.path)))
        if isinstance(op, Delete):
            keys.append(("children", result.path))
    return keys
