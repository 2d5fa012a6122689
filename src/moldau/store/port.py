"""Store: the contract of the metadata store, a small versioned tree with transactions, watches and ephemeral nodes.

Both the embedded SQLite store and a ZooKeeper ensemble keep it; neither interprets its content. For callers:

- `multi` is all or nothing, and its operations see each other's effects in order. A conflict is a result, not an
  exception. When `multi` raises StoreUnavailable the change may or may not have been made: read, then decide again.
- A watch fires once, and says that something may have changed, not what: arm it, then read, then wait for it. It may
  fire without a change (after a lost connection), never the other way round.
- `subtree` reads much at once: one snapshot on SQLite, many reads on ZooKeeper. For a consistent picture compare a
  version before and after.
- On ZooKeeper a session sees its own changes at once, those of other sessions a little later: `sync` first where that
  matters. A session can expire (a paused process, a network failure): its ephemeral nodes are gone then, and
  `on_session` reports the new one.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from moldau.base.tree import Op


class StoreError(Exception):
    """The store could not carry out a request; the text says why."""


class StoreUnavailable(StoreError):
    """Locked, read-only, full or unreachable: a retry may work."""


class StoreFull(StoreUnavailable):
    """The disk has no room for the change; the text says how to make some."""


class TooMuch(StoreError):
    """A transaction above the store's limit: nothing was changed, and a retry does not help."""


class StoreDamaged(StoreError):
    """The store's content is corrupt, or written by a newer release: a retry does not help."""


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Done:
    """The result of one operation of a multi: the node's path (with its digits, if sequential) and new version.

    After a Delete or a Check the version is the expected one.
    """

    path: str
    version: int


class Reason(StrEnum):
    NODE_EXISTS = "the node exists"
    NO_NODE = "no such node"
    BAD_VERSION = "the node has another version"
    NOT_EMPTY = "the node has children"
    EPHEMERAL_PARENT = "an ephemeral node cannot have children"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a multi changed nothing: its first failed operation."""

    reason: Reason
    index: int
    op: Op

    def __str__(self) -> str:
        return f"{type(self.op).__name__} {self.op.path}: {self.reason}"


class Store(Protocol):
    @property
    def connected(self) -> bool:
        """Whether it can be used now. If not, everything but `close` raises StoreUnavailable at once."""

    def on_session(self, callback: Callable[[], None]) -> None:
        """Have it called, on the loop, when a new session replaced an expired one: ephemeral nodes are gone."""

    async def sync(self) -> None:
        """Later reads see every change that any session made before."""

    async def get(self, path: str) -> Node | None: ...

    async def exists(self, path: str) -> bool: ...

    async def children(self, path: str) -> list[str]:
        """The names (not paths) below a node, sorted; empty also where there is no such node."""

    async def subtree(self, path: str) -> dict[str, Node]:
        """A node and everything below it, by path; empty if there is no such node."""

    async def multi(self, ops: Sequence[Op]) -> list[Done] | Conflict: ...

    async def watch_data(self, path: str) -> asyncio.Future[None]:
        """Done at the next creation, change or deletion of the node, which need not exist. Cancel it to stop."""

    async def watch_children(self, path: str) -> asyncio.Future[None]:
        """Done when a child is next created or deleted, or the node itself deleted. Cancel it to stop."""

    async def close(self) -> None:
        """End the session: its ephemeral nodes are deleted, its watches cancelled."""
