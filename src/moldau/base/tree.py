"""Operations on a small versioned tree, as plain values: what a change writes, before anybody knows where it is kept.

The pure rooms build these, the coordination store carries them out. Nothing here talks to a store.
"""

from dataclasses import dataclass

ANY_VERSION = -1  # Set, Delete and Check with this version accept whatever version the node has


@dataclass(frozen=True, slots=True)
class Create:
    """A new node, version 0. Its parent must exist.

    An ephemeral node goes with the session that made it. A sequential one gets ten digits appended, greater than
    those of every sequential sibling before it.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """New data for a node, if it still has this version; its version grows by one."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes a node without children, if it still has this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing, but fails its multi if the node is gone or has another version."""

    path: str
    version: int = ANY_VERSION


Op = Create | Set | Delete | Check


def check_path(path: str) -> None:
    """Refuses what ZooKeeper refuses, so that no path works on one store alone."""
    if path == "/":
        return
    start, *names = path.split("/")
    if start or not names or not all(names) or "." in names or ".." in names or "\0" in path:
        raise ValueError(f"not a path of the tree: {path!r}")


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or "/"


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]
