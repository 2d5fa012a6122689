"""The coordination store: a small versioned tree with compare-and-set, watches and ephemeral nodes, as ZooKeeper has.

This is the promise that the embedded store and a ZooKeeper ensemble both keep; it knows neither of them, nor what is
kept in the tree. Three rules for callers:

- `multi` is all or nothing, and its operations see each other's effects in order. A conflict is an answer, not an
  exception. When `multi` raises StoreUnavailable the change may or may not have been made: read, then decide again.
- A watch fires once. It says that something may have changed, not what: arm it, then read, then wait for it. It may
  fire without a change (a lost connection), never the other way round.
- `subtree` is for reading much at once. It is one snapshot on the embedded store and many reads on ZooKeeper: who needs
  a consistent picture compares a version before and after.

And two for a store that others write to. A session sees its own changes at once, those of other sessions a little
later: `sync` first where that matters. A session can end without having been closed (the process stood still, the
network was cut): its ephemeral nodes are gone then, and `on_session` tells when there is a new one.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from moldau.base.tree import Op


class StoreError(Exception):
    """The store could not do what it was asked; the text says why."""


class StoreUnavailable(StoreError):
    """Locked, read-only, out of space, out of reach: it may work later, with no change to the program."""


class StoreFull(StoreUnavailable):
    """The disk has no room for the change; the text says how to make some."""


class TooMuch(StoreError):
    """More than the store takes in one transaction: nothing was changed, and trying again does not help."""


class StoreDamaged(StoreError):
    """The store's content is corrupt, or newer than this program: trying again does not help."""


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Done:
    """What one operation of a multi did: the node's path (with its digits, if sequential) and version after it.

    After a Delete or a Check the version is the one asked for.
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
    """Why a multi changed nothing: the first operation that did not fit."""

    reason: Reason
    index: int
    op: Op

    def __str__(self) -> str:
        return f"{type(self.op).__name__} {self.op.path}: {self.reason}"


class Store(Protocol):
    @property
    def connected(self) -> bool:
        """Whether it can be asked now. If not, everything but `close` raises StoreUnavailable at once."""

    def on_session(self, callback: Callable[[], None]) -> None:
        """Calls it, on the loop, when a new session took the place of one that ended: ephemeral nodes are gone."""

    async def sync(self) -> None:
        """Reads that are asked for after this see every change that was made before it, whoever made it."""

    async def get(self, path: str) -> Node | None: ...

    async def exists(self, path: str) -> bool: ...

    async def children(self, path: str) -> list[str]:
        """The names (not paths) below a node, sorted; empty also where there is no such node."""

    async def subtree(self, path: str) -> dict[str, Node]:
        """A node and everything below it, by path; empty if there is no such node."""

    async def multi(self, ops: Sequence[Op]) -> list[Done] | Conflict: ...

    async def watch_data(self, path: str) -> asyncio.Future[None]:
        """Done when the node is created, set or deleted next; the node need not exist. Cancel it to stop watching."""

    async def watch_children(self, path: str) -> asyncio.Future[None]:
        """Done when a child appears or goes next, or the node itself goes. Cancel it to stop watching."""

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes go, its watches are cancelled."""
