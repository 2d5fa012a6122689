"""FlushJob: one flush of a log up to an offset, run in a thread. Uses only data captured on the event loop."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from moldau.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from moldau.log.files import LogFile, replace, sync, sync_directory, sync_file, write_tail
from moldau.log.segment import INDEX, TIME_INDEX, TXN_INDEX, Segment
from moldau.log.snapshots import snapshot_path

_sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


@dataclass(slots=True)
class FlushJob:
    """`run` in a thread, one job per log at a time.

    SyncFailed means that the log directory must go offline. After another OSError, such as a full disk, the work
    has to be repeated: `Durability.abandon`.
    """

    directory: str
    end_offset: int
    generation: int  # of the log when captured: a truncation makes the job void
    files: list[LogFile] = field(default_factory=list)
    finished: list[Segment] = field(default_factory=list)
    indexes: list[tuple[str, int, bytes]] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)
    snapshots: dict[int, bytes] = field(default_factory=dict)
    epochs: bytes | None = None
    new_files: bool = False

    def capture(self, segment: Segment, *, whole: bool) -> None:
        """Add a segment; `whole` with its indexes. The active one goes without: recovery checks it anyway."""
        self.files.append(segment.opened())
        if whole:
            live = segment.live
            assert live is not None
            if live.offsets_pending or live.rewrite:
                self.indexes.append((segment.stem + INDEX, live.offsets_written, bytes(live.offsets_pending)))
            times = bytes(live.times[live.times_written :])
            if times or live.rewrite:
                self.indexes.append((segment.stem + TIME_INDEX, live.times_written, times))
            aborted = bytes(live.aborted[live.aborted_written :])
            if aborted:
                self.indexes.append((segment.stem + TXN_INDEX, live.aborted_written, aborted))
            elif live.rewrite and not live.aborted:
                self.emptied.append(segment.stem + TXN_INDEX)

    def run(self) -> None:
        """Write and sync; names last, so that no file under its final name is incomplete."""
        for file in self.files:
            sync(file.fd, _sync)
        for path, position, data in self.indexes:
            write_tail(path, position, data)
        for path in self.emptied:
            Path(path).unlink(missing_ok=True)
        for offset, data in self.snapshots.items():
            replace(snapshot_path(self.directory, offset), data, sync_names=False)
        if self.epochs is not None:
            replace(f"{self.directory}/{LEADER_EPOCHS}", self.epochs, sync_names=False)
        if self.new_files:  # in a new log this file is new too
            sync_file(f"{self.directory}/{PARTITION_METADATA}")
        if self.new_files or self.snapshots or self.epochs is not None:
            sync_directory(self.directory)
        if self.new_files:
            sync_directory(os.path.dirname(self.directory))
