"""Operations on a versioned tree of nodes, as values: the writes of a metadata change.

Pure rooms build them, the metadata store executes them.
"""

from dataclasses import dataclass

ANY_VERSION = -1  # Set, Delete and Check with this version accept any version of the node


@dataclass(frozen=True, slots=True)
class Create:
    """A new node, version 0. Its parent must exist.

    An ephemeral node is removed with its session. A sequential one gets ten digits appended, greater than
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
    """Refuse paths that ZooKeeper refuses, so that every path works on all stores."""
    if path == "/":
        return
    start, *names = path.split("/")
    if start or not names or not all(names) or "." in names or ".." in names or "\0" in path:
        raise ValueError(f"not a path of the tree: {path!r}")


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or "/"


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]
