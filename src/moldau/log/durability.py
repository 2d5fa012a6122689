"""Durability: how far a log is flushed. Captures the data for a flush, and records its end.

The work itself is a `FlushJob`, run in a thread. After a crash the log is checked from the recovery point on.
"""

from pathlib import Path

from moldau.base.ids import Offset
from moldau.log import checkpoints
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import remove
from moldau.log.flush import FlushJob
from moldau.log.segments import Segments
from moldau.log.snapshots import Snapshots, snapshot_path


class Durability:
    """`new_files`: the directory has names that are not synced yet."""

    __slots__ = ("_directory", "_epochs", "_segments", "_snapshots", "new_files", "recovery_point")

    def __init__(self, directory: str, segments: Segments, epochs: LeaderEpochs, snapshots: Snapshots) -> None:
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self._snapshots = snapshots
        self.new_files = False
        self.recovery_point: Offset = 0

    @property
    def flush_due(self) -> bool:
        """A segment was finished that is not durable yet."""
        each = self._segments.each
        return len(each) > 1 and each[-2].live is not None

    @property
    def checkpoint(self) -> Offset:
        """The recovery point to checkpoint, before finished segments without indexes on disk."""
        return self._segments.indexed_to(self.recovery_point)

    def complete(self, end_offset: Offset) -> bool:
        """Nothing is left to flush: records, index of the active segment, epochs, snapshots, names of files."""
        live = self._segments.each[-1].live
        unwritten = live is None or live.unwritten or self.new_files
        return not (unwritten or self._epochs.changed or self._snapshots.unsaved or end_offset > self.recovery_point)

    def capture(self, end_offset: Offset, generation: int, *, whole: bool) -> FlushJob:
        """A job with everything that is not durable yet; `whole` with the index of the active segment."""
        job = FlushJob(self._directory, end_offset, generation, new_files=self.new_files)
        job.finished = [segment for segment in self._segments.each[:-1] if segment.live is not None]
        for segment in job.finished:
            job.capture(segment, whole=True)
        if whole or end_offset > self.recovery_point:
            job.capture(self._segments.each[-1], whole=whole)
        job.snapshots = dict(self._snapshots.unsaved)
        if self._epochs.changed:
            job.epochs = checkpoints.epochs_file(self._epochs.entries())
            self._epochs.changed = False
        self.new_files = False
        return job

    def finish(self, job: FlushJob, generation: int) -> None:
        """The job succeeded: its data can leave memory, and recovery need not check it."""
        for segment in job.finished:
            if segment.gone and segment.base not in self._segments.bases:  # else a new segment has these names
                remove(segment.mark_deleted())  # the job wrote index files of a deleted segment again
        if job.generation != generation:
            self._epochs.changed = True
            for offset in job.snapshots:  # of truncated records
                Path(snapshot_path(self._directory, offset)).unlink(missing_ok=True)
            return
        for segment in job.finished:
            segment.live = None
        self._snapshots.mark_saved(job.snapshots)
        self.recovery_point = max(self.recovery_point, job.end_offset)

    def abandon(self, job: FlushJob) -> None:
        """The job failed: the next one repeats its work."""
        self.new_files |= job.new_files
        self._epochs.changed |= job.epochs is not None

    def truncate(self, offset: Offset) -> None:
        self.recovery_point = min(self.recovery_point, offset)
