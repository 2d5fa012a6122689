"""Bytes between the high watermark and the end of a log: delayed fetches count them when they are committed."""

from collections import deque
from typing import Final

from moldau.base.ids import Offset

RANGES_AT_MOST: Final = 4096  # kept apart; beyond that the newest ones are counted as one


class Uncommitted:
    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: deque[tuple[Offset, int]] = deque()  # end offset and bytes

    def add(self, end: Offset, size: int) -> None:
        ranges = self._ranges
        if len(ranges) >= RANGES_AT_MOST:
            size += ranges.pop()[1]
        ranges.append((end, size))

    def take(self, high_watermark: Offset) -> int:
        """Bytes that were committed since the last call."""
        ranges = self._ranges
        total = 0
        while ranges and ranges[0][0] <= high_watermark:
            total += ranges.popleft()[1]
        return total

    def cut(self, end: Offset) -> None:
        while self._ranges and self._ranges[-1][0] > end:
            self._ranges.pop()
