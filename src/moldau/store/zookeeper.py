"""ZooKeeperStore: the metadata store of a cluster, a ZooKeeper ensemble through kazoo. Does not interpret znodes.

See `store.port.Store` for its contract, and `store.zookeeper_session` for kazoo's threads and the event loop. kazoo is
imported when a store is opened: a single node runs without it.
"""

import asyncio
import re
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from moldau.base.tree import Check, Create, Delete, Op, Set, check_path
from moldau.store.port import Conflict, Done, Node, Reason, StoreError, StoreUnavailable, TooMuch
from moldau.store.zookeeper_session import UNIMPLEMENTED, Refused, ZooKeeperSession

if TYPE_CHECKING:
    from moldau.store.kazoo_client import Seen

INSTALL = "pip install '.[cluster]' in a clone of Moldau"
# ZooKeeper closes a connection that sends more than this (jute.maxbuffer) without a response.
MAX_REQUEST_BYTES = 0xFFFFF
# Bytes of a multi on the wire besides paths and data: headers, lengths, versions; for Create also an ACL.
REQUEST_BYTES, OP_BYTES, CREATE_BYTES = 24, 24, 48

RETRY_S = 0.1  # between attempts to create the chroot
MANY = 100  # znodes that one request reads

NO_NODE = -101
NODE_EXISTS = -110
REASONS = {
    NO_NODE: Reason.NO_NODE,
    -103: Reason.BAD_VERSION,
    -108: Reason.EPHEMERAL_PARENT,
    NODE_EXISTS: Reason.NODE_EXISTS,
    -111: Reason.NOT_EMPTY,
}
# A failed multi has one result per operation: those before the failed one were undone, those after it not tried.
UNDONE, NOT_TRIED = 0, -2

HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+)(?::(\d{1,5}))?")


@dataclass(slots=True)
class _Watch:
    """The futures that wait for a znode. kazoo keeps callables in a set: one for all, so that it does not grow."""

    event: Callable[[Any], None]
    waiters: set[asyncio.Future[None]] = field(default_factory=set)


def read_connect(text: str) -> tuple[str, str]:
    """`host:port,host:port/chroot` as hosts and chroot, which may be empty; ValueError for anything else."""
    hosts, slash, chroot = text.strip().partition("/")
    for host in hosts.split(","):
        match = HOST.fullmatch(host.strip())
        if match is None or int(match[1] or 0) > 65535:
            raise ValueError(f"{text!r} is not of the form HOST:PORT,HOST:PORT/PATH: {host!r}")
    root = slash + chroot.rstrip("/") if chroot.strip("/") else ""
    if root:
        check_path(root)
    return ",".join(host.strip() for host in hosts.split(",")), root


class ZooKeeperStore:
    """Open it with `await ZooKeeperStore.open(connect)`; `store.port.Store` is its contract."""

    def __init__(self, hosts: str, root: str, session_timeout_ms: int, tls: ssl.SSLContext | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._root = root
        self._watches: dict[tuple[str, str], _Watch] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._session = ZooKeeperSession(hosts, session_timeout_ms, self._fire_all, self._tell_renewed, tls)
        self._client = self._session.client

    @classmethod
    async def open(
        cls,
        connect: str,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Connect, and create the chroot if there is none. StoreUnavailable if no server responds in time."""
        hosts, root = read_connect(connect)
        try:
            store = cls(hosts, root, session_timeout_ms, tls)
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.partition(".")[0] != "kazoo":
                raise
            raise StoreError(
                f"zookeeper.connect is set, but the package kazoo is not installed. Install it: {INSTALL}"
            ) from None
        await store._session.start(session_timeout_ms if connection_timeout_ms is None else connection_timeout_ms)
        try:
            while True:
                try:
                    await store._make_root()
                    return store
                except StoreUnavailable:
                    await asyncio.sleep(RETRY_S)
        except BaseException:
            await store.close()
            raise

    @property
    def connected(self) -> bool:
        return self._session.connected

    def on_session(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    async def sync(self) -> None:
        """By an empty transaction, which a majority agrees on and this server applies before it responds.

        ZooKeeper's own `sync` is too weak: a leader responds to it while it still applies changes that its followers
        have shown already, and without asking a majority whether it still leads.
        """
        await self.multi([Check("/")])  # a missing root is a conflict, which a majority agreed on too

    async def get(self, path: str) -> Node | None:
        found = await self._ask(self._client.get_async, self._full(path))
        if found is None:
            return None
        data, stat = found
        return Node(data or b"", stat.version)  # other clients may write null

    async def exists(self, path: str) -> bool:
        return await self._ask(self._client.exists_async, self._full(path)) is not None

    async def children(self, path: str) -> list[str]:
        return sorted(await self._ask(self._client.get_children_async, self._full(path)) or ())

    async def subtree(self, path: str) -> dict[str, Node]:
        """Level by level, each level with all of its requests at once: as many round trips as there are levels."""
        nodes: dict[str, Node] = {}
        level = [path]
        while level:
            parts = [level[at : at + MANY] for at in range(0, len(level), MANY)]
            responses = await asyncio.gather(*map(self._read_many, parts))
            below = []
            for each, seen in zip(level, chain.from_iterable(responses), strict=True):
                if seen is not None:
                    nodes[each] = seen.node
                    below += [_join(each, name) for name in seen.children]
            level = below
        return nodes

    async def multi(self, ops: Sequence[Op]) -> list[Done] | Conflict:
        if not ops:
            return []
        size = self._size(ops)
        if size > MAX_REQUEST_BYTES:
            limit = f"{MAX_REQUEST_BYTES:,} bytes of ZooKeeper (jute.maxbuffer)"
            raise TooMuch(f"a transaction of {size:,} bytes is above the limit of {limit}")
        transaction = self._client.transaction()
        for op in ops:
            self._add(transaction, op)
        return self._outcome(ops, await self._session.ask(transaction.commit_async))

    async def watch_data(self, path: str) -> asyncio.Future[None]:
        return await self._watch("data", path)

    async def watch_children(self, path: str) -> asyncio.Future[None]:
        return await self._watch("children", path)

    async def close(self) -> None:
        for watch in list(self._watches.values()):
            for waiter in list(watch.waiters):
                waiter.cancel()
        await self._session.close()

    # Requests

    async def _ask(self, request: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The response; None if there is no such znode."""
        try:
            return await self._session.ask(request, *arguments, **named)
        except Refused as refused:
            if refused.code == NO_NODE:
                return None
            raise

    async def _read_many(self, paths: Sequence[str]) -> list["Seen | None"]:
        from moldau.store.kazoo_client import read_many_async

        try:
            seen: list[Seen | None] = await self._session.ask(
                read_many_async, self._client, [self._full(path) for path in paths]
            )
        except Refused as refused:
            if refused.code == UNIMPLEMENTED:
                raise StoreError("This ZooKeeper is too old: Moldau needs 3.6 or later.") from None
            raise
        return seen

    async def _make_root(self) -> None:
        parts = self._root.split("/")[1:]
        for end in range(1, len(parts) + 1):
            try:
                await self._session.ask(self._client.create_async, "/" + "/".join(parts[:end]))
            except Refused as refused:
                if refused.code != NODE_EXISTS:
                    raise StoreError(f"Cannot create the chroot {self._root} in ZooKeeper: {refused}") from None

    def _full(self, path: str) -> str:
        check_path(path)
        return self._root + path if path != "/" else self._root or "/"

    # Changes

    def _size(self, ops: Iterable[Op]) -> int:
        """An upper bound of the request's size on the wire."""
        size = REQUEST_BYTES
        for op in ops:
            size += OP_BYTES + len(self._root.encode()) + len(op.path.encode())
            if isinstance(op, Create | Set):
                size += len(op.data)
            if isinstance(op, Create):
                size += CREATE_BYTES
        return size

    def _add(self, transaction: Any, op: Op) -> None:
        path = self._full(op.path)
        match op:
            case Create():
                transaction.create(path, op.data, ephemeral=op.ephemeral, sequence=op.sequential)
            case Set():
                transaction.set_data(path, op.data, op.version)
            case Delete():
                transaction.delete(path, op.version)
            case Check():
                transaction.check(path, op.version)

    def _outcome(self, ops: Sequence[Op], results: Sequence[Any]) -> list[Done] | Conflict:
        for index, (op, result) in enumerate(zip(ops, results, strict=True)):
            if isinstance(result, Exception):
                code = getattr(result, "code", NOT_TRIED)
                if code in REASONS:
                    return Conflict(REASONS[code], index, op)
                if code not in (UNDONE, NOT_TRIED):
                    raise StoreError(f"{type(op).__name__} {op.path}: ZooKeeper responded with {type(result).__name__}")
        return [self._done(op, result) for op, result in zip(ops, results, strict=True)]

    def _done(self, op: Op, result: Any) -> Done:
        match op:
            case Create():
                return Done(result[len(self._root) :], 0)
            case Set():
                return Done(op.path, result.version)
            case Delete() | Check():
                return Done(op.path, op.version)

    # Watches

    async def _watch(self, kind: str, path: str) -> asyncio.Future[None]:
        full = self._full(path)
        key = (kind, path)
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = _Watch(partial(self._on_event, key))
        waiter: asyncio.Future[None] = self._loop.create_future()
        watch.waiters.add(waiter)
        waiter.add_done_callback(watch.waiters.discard)
        try:
            await self._arm(kind, full, watch.event)
        except BaseException:
            waiter.cancel()
            raise
        return waiter

    async def _arm(self, kind: str, path: str, event: Callable[[Any], None]) -> None:
        if kind == "data":
            await self._ask(self._client.exists_async, path, watch=event)
            return
        while await self._ask(self._client.get_children_async, path, watch=event) is None:
            # Children of a missing znode cannot be watched. This watch fires when it is created.
            if await self._ask(self._client.exists_async, path, watch=event) is None:
                return

    def _on_event(self, key: tuple[str, str], event: object) -> None:
        """In kazoo's thread: a watch fired, or was dropped with its connection."""
        self._session.post(self._fire, key)

    def _fire(self, key: tuple[str, str]) -> None:
        watch = self._watches.pop(key, None)
        for waiter in list(watch.waiters) if watch is not None else ():
            if not waiter.done():
                waiter.set_result(None)

    # The session

    def _fire_all(self) -> None:
        for key in list(self._watches):
            self._fire(key)

    def _tell_renewed(self) -> None:
        for callback in self._callbacks:
            callback()


def _join(parent: str, name: str) -> str:
    return f"/{name}" if parent == "/" else f"{parent}/{name}"
