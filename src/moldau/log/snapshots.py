"""Snapshots: the `.snapshot` files of one log, producer state at segment bases and at a clean shutdown.

A snapshot is taken in memory and written with the next flush. This file chooses the one to load; the caller replays
the batches after it.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from moldau.log.files import mark_deleted, read_whole
from moldau.log.producers import CorruptSnapshotError, Producers, read_snapshot
from moldau.log.segment import file_stem

logger = logging.getLogger("moldau.log")

SNAPSHOT = ".snapshot"


def snapshot_path(directory: str, offset: int) -> str:
    return file_stem(directory, offset) + SNAPSHOT


class Snapshots:
    __slots__ = ("_directory", "_name", "saved", "unsaved")

    def __init__(self, directory: str, name: str, saved: Iterable[int] = ()) -> None:
        self._directory = directory
        self._name = name
        self.saved = sorted(saved)
        self.unsaved: dict[int, bytes] = {}

    def take(self, offset: int, producers: Producers) -> None:
        """Take a snapshot at `offset`, the log end offset, unless there is one."""
        if offset not in self.unsaved and (not self.saved or offset > self.saved[-1]):
            self.unsaved[offset] = producers.snapshot()

    def mark_saved(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.unsaved.pop(offset, None)
            if offset not in self.saved:
                self.saved.append(offset)
        self.saved.sort()

    def drop(self, offsets: Iterable[int]) -> list[Path]:
        """Drop snapshots; returns files to remove."""
        dropped = list(offsets)
        for offset in dropped:
            self.unsaved.pop(offset, None)
            if offset in self.saved:
                self.saved.remove(offset)
        return mark_deleted(snapshot_path(self._directory, offset) for offset in dropped)

    def drop_before(self, offset: int) -> list[Path]:
        return self.drop([at for at in (*self.saved, *self.unsaved) if at < offset])

    def drop_all(self) -> list[Path]:
        return self.drop([*self.saved, *self.unsaved])

    def tidy(self, bases: Iterable[int], end: int) -> list[Path]:
        """Keep those at segment bases, and the newest one up to the log end; returns files to remove."""
        known = {*self.saved, *self.unsaved}
        keep = {at for at in bases if at <= end} | {max((at for at in known if at <= end), default=-1)}
        return self.drop(known - keep)

    def load(self, producers: Producers, start: int, now: int, newest: int) -> tuple[int, list[Path]]:
        """Load `producers` from the newest usable snapshot between `start` and `newest`.

        Returns the offset to replay from, and files to remove.
        """
        producers.clear()
        removed = []
        for at in sorted({*self.saved, *self.unsaved}, reverse=True):
            if at < start:
                break
            if at > newest:
                continue
            try:
                data = self.unsaved.get(at) or read_whole(snapshot_path(self._directory, at)) or b""
                producers.load(read_snapshot(data), now)
            except CorruptSnapshotError as fault:
                logger.warning("%s: deleted the producer snapshot at offset %d: %s.", self._name, at, fault)
                removed += self.drop([at])
                continue
            return at, removed
        return start, removed
