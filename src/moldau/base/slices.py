"""FileSlice: a part of an open file, which the log locates and the network sends. Reads nothing."""

from typing import Protocol


class OpenFile(Protocol):
    """A file that stays open while this object is referenced."""

    fd: int


class FileSlice:
    __slots__ = ("file", "hot", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int, hot: bool) -> None:
        """`hot`: it was written a moment ago, and is in the page cache."""
        self.file = file
        self.position = position
        self.length = length
        self.hot = hot
