"""Log: the segments of one partition as one sequence of offsets. Knows nothing of replication, requests or clocks.

`append` and `locate` run on the event loop for every request: no per-record work, no logging, one system call at most
in the common case. Blocking work (fsync, deletion) is returned as a value, to be run in a thread.
"""

import errno
import logging
import os
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from moldau.base.ids import Epoch, Offset
from moldau.base.slices import FileSlice
from moldau.log.aborted import Aborted
from moldau.log.durability import Durability
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import OpenFiles, cut_back, out_of_space, remove
from moldau.log.flush import FlushJob
from moldau.log.follower_append import FetchedBatches, fitting, write_batches
from moldau.log.header import RawHeader
from moldau.log.partition_locations import deletion_path
from moldau.log.partition_metadata import check_topic_id
from moldau.log.producer_state import ProducerStateManager
from moldau.log.producers import Producers
from moldau.log.reading import StoredBatch
from moldau.log.recovery import Loader, epochs_in, read_epochs, rebuild_indexes, reopen
from moldau.log.replay import update_producers
from moldau.log.segment import MAX_RELATIVE_OFFSET, NO_OFFSET, Segment, create, file_stem
from moldau.log.segments import Segments
from moldau.log.settings import LogConfig
from moldau.log.snapshots import Snapshots
from moldau.wire.batch import ASSIGNED, ASSIGNED_SIZE, CONTROL, PREFIX_SIZE, TRANSACTIONAL, BatchHeader

logger: Final = logging.getLogger("moldau.log")

HOT_TAIL: Final = 16 * 1024 * 1024  # bytes at the log end that are surely in the page cache
DEFAULT_FILES: Final = OpenFiles()
_writev: Final = os.writev
_assign: Final = ASSIGNED.pack


class Log:
    __slots__ = (
        "_active",
        "_epoch",
        "_files",
        "_finished_bytes",
        "_roll_ms",
        "_segment_bytes",
        "config",
        "directory",
        "durability",
        "end_offset",
        "epochs",
        "first_dirty_offset",
        "generation",
        "name",
        "on_roll",
        "producer_state",
        "producers",
        "segments",
        "start_offset",
        "topic_id",
    )

    def __init__(self, directory: Path, name: str, config: LogConfig, files: OpenFiles, topic_id: UUID) -> None:
        """Not for callers: `Log.open`."""
        self.directory = str(directory)
        self.name = name
        self.topic_id = topic_id
        self.on_roll: Callable[[Log], None] | None = None  # called after each roll: a flush is due
        self.start_offset: Offset = 0
        self.end_offset: Offset = 0
        self.first_dirty_offset: Offset = 0  # compaction is done up to here
        self.generation = 0  # another one after records were cut off at the end
        self.epochs = LeaderEpochs()
        self._files = files
        self.segments = Segments(config, name)  # for others to look at; `repair` may change them
        snapshots = Snapshots(self.directory, name)
        self.producer_state = ProducerStateManager(self.segments, snapshots)
        self.producers: Producers = self.producer_state.producers  # `append` takes no detour
        self.durability = Durability(self.directory, self.segments, self.epochs, snapshots)
        self._finished_bytes = 0  # of all segments but the active one
        self._active: Segment
        self.configure(config)

    # -- opening and closing -----------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        directory: Path,
        name: str,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: Offset = 0,
        log_start: Offset = 0,
        now: int,
        topic_id: UUID,
        producer_expiration_ms: int = 86_400_000,
        files: OpenFiles = DEFAULT_FILES,
    ) -> "Log":
        """Open the log in `directory`, or create it; recovers it after a shutdown that was not `clean`."""
        log = cls(directory, name, config, files, topic_id)
        log.producers.expiration_ms = producer_expiration_ms
        durability = log.durability
        if not directory.exists():
            directory.mkdir(parents=True)
            durability.new_files = True
        written = check_topic_id(directory, topic_id)
        durability.new_files |= written or not clean  # a killed process may not have synced the names
        loader = Loader(directory, name, config, files, now)
        log.epochs.load(read_epochs(log.directory, name))
        log.epochs.changed = False
        epochs_known = not loader.listing.logs or bool(log.epochs.entries())
        loader.load(clean=clean, recovery_point=recovery_point, epochs=log.epochs)
        log.producer_state.snapshots.saved = sorted(loader.listing.snapshots)
        log._adopt(loader, log_start, now)
        log.generation, log.segments.missing = int(loader.shortened), loader.listing.missing
        untouched = clean and not loader.repaired
        durability.recovery_point = log.end_offset if untouched else min(recovery_point, log.end_offset)
        remove(log._rebuild_producers(now, loader.checked_from))
        if not epochs_known:
            log.epochs.load(epochs_in(log.read_headers(log.start_offset), log.start_offset))
        log.close(clean=False)
        return log

    def _adopt(self, loader: Loader, log_start: int, now: int) -> None:
        """Take over the loaded segments."""
        segments = loader.segments
        self.end_offset = loader.end_offset
        if segments and loader.end_offset < log_start:
            logger.warning(
                "%s: deleted all segments: the log ends at offset %d, before its log start offset %d.",
                self.name,
                loader.end_offset,
                log_start,
            )
            for segment in segments:
                remove(segment.mark_deleted())
            segments = []
        if not segments:
            self._start_empty(log_start, now)
            self.epochs.cut_end(log_start)
        else:
            self.segments.replace(segments)
            self._active = segments[-1]
            for segment in segments[:-1]:
                self._finished_bytes += segment.size
                if segment.live is not None:
                    segment.finish()
            self._schedule_roll(self._active)
        self.start_offset = max(log_start, self.segments.bases[0])
        self.epochs.cut_end(self.end_offset)
        self.epochs.cut_start(self.start_offset)

    def _start_empty(self, offset: int, now: int) -> None:
        """Start with one empty segment at `offset`."""
        self._active = self._create_segment(offset, now)
        self.segments.replace([self._active])
        self._finished_bytes = 0
        self.end_offset = offset

    def close(self, *, clean: bool = True) -> None:
        """Close the files; `clean` flushes first what a clean start relies on."""
        if clean:
            job = self.begin_close()
            job.run()
            self.finish_flush(job)
        for segment in self.segments.each:
            segment.close()

    def begin_close(self) -> FlushJob:
        """The last flush before `close(clean=False)`; run the jobs of many logs in several threads.

        No flush may be in progress, and nothing may be appended afterwards.
        """
        self._active.finish()
        if self.durability.complete(self.end_offset):
            return FlushJob(self.directory, self.end_offset, self.generation)
        self.producer_state.snapshots.take(self.end_offset, self.producers)
        return self.durability.capture(self.end_offset, self.generation, whole=True)

    def configure(self, config: LogConfig) -> None:
        """Apply new settings."""
        self.config = self.segments.config = config
        self._segment_bytes = config.segment_bytes
        self._roll_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.compacts else config.segment_ms
        if self.segments.each:
            self._schedule_roll(self._active)

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return self._finished_bytes + self._active.size

    @property
    def recovery_point(self) -> Offset:
        """Records before it are on disk."""
        return self.durability.recovery_point

    @property
    def segment_count(self) -> int:
        return len(self.segments.each)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(
        self, header: RawHeader | BatchHeader, batch: memoryview | bytes, leader_epoch: Epoch, now: int
    ) -> Offset:
        """Append a validated batch; returns its base offset. OSError: nothing was appended."""
        segment = self._active
        size = len(batch)
        base = self.end_offset
        delta = header[6]
        timestamp = header[8]
        position = segment.size
        live = segment.live
        if position and (
            position + size > self._segment_bytes
            or (timestamp if segment.timed else now) > segment.roll_at
            or live.full  # type: ignore[union-attr]
            or base + delta - segment.base > MAX_RELATIVE_OFFSET
        ):
            segment = self.roll(now)
            live = segment.live
            position = 0
        segment.touched = True
        file = segment.file or self._files.open(segment)
        written = _writev(file.fd, (_assign(base, size - PREFIX_SIZE, leader_epoch), batch[ASSIGNED_SIZE:]))
        if written != size:
            cut_back(file.fd, position)
            raise OSError(errno.ENOSPC, f"Disk full: {written} of {size} bytes were written", f"{segment.stem}.log")
        if not position:
            segment.schedule_roll(timestamp, self._roll_delay())
        segment.size = position + size
        first = base - segment.base
        live.add(first, first + delta, position, timestamp)  # type: ignore[union-attr]
        self.end_offset = base + delta + 1
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base)
        producer_id = header[9]
        if producer_id >= 0:
            if header[5] & CONTROL:
                self.producer_state.end_transaction(segment, header, batch, base)
            else:
                self.producers.update(
                    producer_id, header[10], header[11], delta, base, timestamp, header[5] & TRANSACTIONAL != 0
                )
        return base

    def append_as_follower(self, copies: FetchedBatches, now: int) -> None:
        """Append the leader's batches unchanged, with one system call for all that fit into a segment.

        OSError: earlier batches may have been appended, but none in part.
        """
        headers, data = copies
        done = at = 0
        while done < len(headers):
            segment = self._active
            stop = fitting(headers, done, segment, self._segment_bytes, now)
            if stop == done and segment.size:
                segment = self.roll(now)
                stop = fitting(headers, done, segment, self._segment_bytes, now)
            group = headers[done : max(stop, done + 1)]
            size = sum(header[1] for header in group) + PREFIX_SIZE * len(group)
            if not segment.size:
                segment.schedule_roll(group[0][8], self._roll_delay())
            write_batches(segment, self._files, group, data[at : at + size])
            self._note_appended(segment, group, data[at : at + size])
            done, at = done + len(group), at + size

    def _note_appended(self, segment: Segment, headers: list[RawHeader], data: memoryview) -> None:
        at = 0
        for header in headers:
            stop = at + header[1] + PREFIX_SIZE
            self.end_offset = header[0] + header[6] + 1
            if header[2] != self.epochs.latest:
                self.epochs.follow(header[2], header[0])
            if header[9] >= 0:
                if header[5] & CONTROL:
                    self.producer_state.end_transaction(segment, header, data[at:stop], header[0])
                else:
                    update_producers(self.producers, header, header[0], bytes)
            at = stop

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The first offset of the oldest undecided transaction, or the high watermark; the end for read_committed.

        A transaction is decided when its marker is below the high watermark.
        """
        first_open = self.producers.first_open_offset
        if self.producer_state.unreplicated:
            first_open = self.producer_state.first_unstable_offset(high_watermark)
        if first_open >= high_watermark:
            return high_watermark
        return min(max(first_open, self.start_offset), high_watermark)

    def roll(self, now: int) -> Segment:
        """Roll to a new active segment, unless the present one is empty. A flush is then due."""
        if not self._active.size:
            return self._active
        following = self._create_segment(self.end_offset, now)  # if it fails, nothing has changed
        self._active.finish()
        self._finished_bytes += self._active.size
        self.producer_state.snapshots.take(self.end_offset, self.producers)
        self._active = following
        self.segments.add(following)
        if self.on_roll is not None:
            self.on_roll(self)
        return following

    def roll_if_due(self, now: int) -> None:
        """Roll an idle log after segment.ms, so that its last segment can be deleted or compacted."""
        if now > self._active.roll_at:
            self.roll(now)

    def _create_segment(self, base: int, now: int) -> Segment:
        self.durability.new_files = True
        config = self.config
        stem = file_stem(self.directory, base)
        return create(stem, base, self._files, now, config.index_interval_bytes, config.segment_index_bytes)

    def _roll_delay(self) -> int:
        """segment.ms less a random part of segment.jitter.ms."""
        jitter = min(self.config.segment_jitter_ms, self._roll_ms)
        return self._roll_ms - random.randrange(jitter) if jitter > 0 else self._roll_ms

    def _schedule_roll(self, segment: Segment) -> None:
        first = segment.first_timestamp()
        if first is not None:
            segment.schedule_roll(first, self._roll_delay())

    # -- reading -----------------------------------------------------------------------------------------------------

    def locate(self, offset: Offset, max_bytes: int, upper: Offset, *, whole_first: bool) -> FileSlice | None:
        """A slice from the batch with `offset` on: at most `max_bytes`, and no batch that begins at `upper` or later.

        It may end within a batch, as Kafka's responses do, but not within the first: that one is left out if it does
        not fit, or with `whole_first` included at any size. None: nothing to read. The caller has checked that
        start ≤ offset ≤ end.
        """
        if offset >= upper:
            return None
        segment = self._active
        if offset < segment.base:
            segment = self.segments.each[bisect_right(self.segments.bases, offset) - 1]
        segment.touched = True
        file = segment.file or self._files.open(segment)
        position = self.segments.position(segment, offset)
        end = segment.size
        if position >= end:  # compaction removed the last batches of this segment
            bases = self.segments.bases
            following = bisect_right(bases, offset)
            return (
                self.locate(bases[following], max_bytes, upper, whole_first=whole_first)
                if following < len(bases)
                else None
            )
        if upper < self.end_offset:
            bases = self.segments.bases
            following = bisect_right(bases, segment.base)
            if following == len(bases) or upper < bases[following]:
                end = self.segments.position(segment, upper)
        length = end - position
        if length > max_bytes:
            length = max_bytes
            first = min(segment.size_of_batch(position), end - position)
            if first > length:
                length = first if whole_first else 0
        if length <= 0:
            return None
        hot = segment is self._active and position > segment.size - HOT_TAIL
        return FileSlice(file, position, length, hot)

    def read_headers(self, from_offset: Offset) -> Iterator[BatchHeader]:
        """Headers of the batches from the one with `from_offset` to the end."""
        for _, _, header in self.segments.headers(from_offset):
            yield BatchHeader._make(header)

    def read_batches(self, from_offset: Offset) -> Iterator[StoredBatch]:
        """Header and bytes of the batches from the one with `from_offset` to the present end, in large reads.

        Created on the loop, it may be iterated in a thread while the log is appended to.
        """
        return self.segments.batches(from_offset)

    def aborted_in(self, offset: Offset, piece: FileSlice, upper: Offset) -> list[Aborted]:
        """The aborted transactions that a read_committed consumer needs for a piece read from `offset` on."""
        return self.producer_state.aborted_in(offset, piece, upper, (self.start_offset, self.end_offset))

    def aborted_transactions(self, from_offset: Offset, upper: Offset) -> list[Aborted]:
        """Those that overlap the offsets from `from_offset` to before `upper`, in the order of their markers."""
        return self.producer_state.aborted_transactions(from_offset, upper, self.start_offset)

    def end_offset_for_epoch(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """The largest leader epoch up to `epoch` and its end offset (KIP-101, KIP-279); (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # -- truncating and deleting: each returns paths for `files.remove`, to be run in a thread -----------------------

    def truncate_to(self, offset: Offset, now: int) -> list[Path]:
        """Remove records from `offset` on; a batch with `offset` in it is removed as a whole."""
        if offset >= self.end_offset:
            self.epochs.cut_end(offset)  # the epoch of a leader that appended nothing
            return []
        self.producer_state.truncate(offset)
        self.generation += 1
        self.first_dirty_offset = min(self.first_dirty_offset, offset)
        if offset < self.segments.bases[0]:
            return self.truncate_fully_and_start_at(offset, now)
        removed = self.segments.drop_behind(offset)
        segment = self._active = self.segments.each[-1]
        if segment.live is None:
            self._reopen(segment)
        self._finished_bytes = sum(other.size for other in self.segments.each[:-1])
        position = self.segments.position(segment, offset)
        if position < segment.size:
            first_gone: int = next(segment.headers(position))[1][0]
            segment.cut(offset, position)
            offset = min(offset, first_gone)
            self.segments.replace(self.segments.each)  # its aborted transactions may be gone
        self._schedule_roll(segment)
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.durability.truncate(offset)
        self.epochs.cut_end(offset)
        removed += self._rebuild_producers(now)
        return removed

    def truncate_fully_and_start_at(self, offset: Offset, now: int) -> list[Path]:
        """Remove everything; the log continues, empty, at `offset`."""
        self.generation += 1
        self.first_dirty_offset = 0
        removed = [path for segment in self.segments.each for path in segment.mark_deleted()]
        self._start_empty(offset, now)
        self.start_offset = self.durability.recovery_point = offset
        self.epochs.cut_end(-1)
        return removed + self.producer_state.clear()

    def _reopen(self, segment: Segment) -> None:
        """Make a finished segment writable again."""
        if reopen(segment, self.config) is None:
            fault = "they do not match it"
            rebuild_indexes(segment, self.config, self.name, fault)
            if segment.aborts:
                self.producer_state.rebuild_aborted(segment, self.start_offset, fault)
            reopen(segment, self.config)

    def advance_start(self, offset: Offset) -> list[Path]:
        """Raise the log start offset; segments that end before it are deleted."""
        if offset <= self.start_offset:
            return []
        self.start_offset = offset
        removed, size = self.segments.drop_before(offset)
        self._finished_bytes -= size
        self.epochs.cut_start(offset)
        return removed + self.producer_state.snapshots.drop_before(self.segments.bases[0])

    def replace_segments(self, bases: list[Offset], size: int, aborts: bool, now: int) -> list[Path]:
        """Replace the segments at `bases` with the compacted one; its files are ready."""
        new = Segment(file_stem(self.directory, bases[0]), bases[0], size, self._files, now)
        new.aborts = aborts
        removed, more = self.segments.exchange(bases, new)
        self._finished_bytes += more
        return removed + self.producer_state.snapshots.drop(bases[1:])

    def delete(self) -> list[Path]:
        """Rename the directory as Kafka names those of deleted partitions; the paths to remove later.

        No flush may be under way. A full disk may have no room for the longer name: then the files go at once.
        """
        self.generation += 1
        self.close(clean=False)
        directory = Path(self.directory)
        try:
            return [directory.rename(deletion_path(directory))]
        except OSError as problem:
            if not out_of_space(problem):
                raise
            remove([directory])
            return []

    # -- durability --------------------------------------------------------------------------------------------------

    def begin_flush(self) -> FlushJob:
        """Capture what is not durable yet: `job.run()` in a thread, then `finish_flush(job)` back on the loop."""
        return self.durability.capture(self.end_offset, self.generation, whole=False)

    def finish_flush(self, job: FlushJob) -> None:
        self.durability.finish(job, self.generation)

    def _rebuild_producers(self, now: int, unindexed_from: Offset = NO_OFFSET) -> list[Path]:
        return self.producer_state.rebuild((self.start_offset, self.end_offset), now, unindexed_from)
