"""A stretch of an open file, as the log plans it and the network sends it. Says nothing of what is in it."""

from typing import Protocol


class OpenFile(Protocol):
    """A file whose descriptor stays open for as long as this object is referred to."""

    fd: int


class FileSlice(Protocol):
    @property
    def file(self) -> OpenFile: ...
    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def hot(self) -> bool:
        """Written a moment ago: the page cache has it."""
