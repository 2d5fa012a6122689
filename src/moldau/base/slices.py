"""A slice of an open file, which the log locates and the network sends."""

from typing import Protocol


class OpenFile(Protocol):
    """A file that stays open while this object is referenced."""

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
        """Whether it was written a moment ago, and is in the page cache."""
