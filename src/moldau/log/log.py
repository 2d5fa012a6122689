"""Log: the segments of one partition as one sequence of offsets. Knows nothing of replication, requests or clocks.

`append` and `locate` run on the event loop for every request: no per-record work, no logging, one system call at most
in the common case. Whatever may block (fsync, unlinking) is handed out as a value to be run in a thread.
"""

import errno
import logging
import os
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

from moldau.base.errors import Refusal, WireError
from moldau.log import checkpoints
from moldau.log.aborted import Aborted
from moldau.log.aborted import find as find_aborted
from moldau.log.claim import claim
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import OpenFiles, Slice, cut_back, out_of_space, remove
from moldau.log.flush import FlushJob
from moldau.log.following import Copies, fitting, write_copies
from moldau.log.header import RawHeader
from moldau.log.homes import condemned_path
from moldau.log.producers import NOT_ASKED, Producers, Verification, Written
from moldau.log.reading import Batch
from moldau.log.rebuilding import epochs_of, read_epochs, rebuild_aborted, rebuild_producers, refill
from moldau.log.recovery import Loader, rebuild_indexes, thaw
from moldau.log.replay import follow
from moldau.log.segment import MAX_RELATIVE_OFFSET, NEVER, CorruptLogError, Segment, create, file_stem
from moldau.log.segments import Segments
from moldau.log.settings import LogConfig
from moldau.log.snapshots import Snapshots, snapshot_path
from moldau.wire.batch import ASSIGNED, ASSIGNED_SIZE, CONTROL, PREFIX_SIZE, TRANSACTIONAL, BatchHeader

logger = logging.getLogger("moldau.log")

HOT_TAIL = 16 * 1024 * 1024  # bytes at the log's end that the page cache surely holds: they were just written
DEFAULT_FILES = OpenFiles()
_writev = os.writev
_assign = ASSIGNED.pack


class Log:
    __slots__ = (
        "_active",
        "_epoch",
        "_files",
        "_finished_bytes",
        "_fresh",
        "_roll_ms",
        "_segment_bytes",
        "_segments",
        "_snapshots",
        "clean_to",
        "config",
        "directory",
        "end_offset",
        "epochs",
        "generation",
        "name",
        "on_roll",
        "producers",
        "recovery_point",
        "start_offset",
        "topic_id",
        "unsettled",
    )

    def __init__(self, directory: Path, name: str, config: LogConfig, files: OpenFiles, topic_id: UUID) -> None:
        """Not for callers: `Log.open`."""
        self.directory = str(directory)
        self.name = name
        self.topic_id = topic_id
        self.on_roll: Callable[[Log], None] | None = None  # told after each roll: a flush is due
        self.start_offset = 0
        self.end_offset = 0
        self.recovery_point = 0
        self.clean_to = 0  # what lies before was compacted
        self.epochs = LeaderEpochs()
        self.producers = Producers()
        self.unsettled: deque[tuple[int, int]] | None = None  # with followers: markers not committed, where it began
        self._files = files
        self._segments = Segments(config, name)
        self._snapshots = Snapshots(self.directory, name)
        self._finished_bytes = 0  # of all segments but the active one
        self.generation = 0  # another one after records were cut off at the end
        self._fresh = False  # the directory has files that it has not been synced with
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
        recovery_point: int = 0,
        log_start: int = 0,
        now: int,
        topic_id: UUID,
        producer_expiration_ms: int = 86_400_000,
        files: OpenFiles = DEFAULT_FILES,
    ) -> "Log":
        """Opens the log in `directory`, or creates it; checks and repairs what a stop that was not `clean` left."""
        log = cls(directory, name, config, files, topic_id)
        log.producers.expiration_ms = producer_expiration_ms
        if not directory.exists():
            directory.mkdir(parents=True)
            log._fresh = True
        log._fresh |= claim(directory, topic_id) or not clean  # a killed process may not have synced the names
        loader = Loader(directory, name, config, files, now)
        log.epochs = read_epochs(log.directory, name)
        epochs_known = not loader.listing.logs or bool(log.epochs.entries())
        loader.load(clean=clean, recovery_point=recovery_point, epochs=log.epochs)
        log._snapshots = Snapshots(log.directory, name, loader.listing.snapshots)
        log._take(loader, log_start, now)
        log.generation, log.segments.missing = int(loader.shortened), loader.listing.missing
        untouched = clean and not loader.repaired
        log.recovery_point = log.end_offset if untouched else min(recovery_point, log.end_offset)
        remove(log._rebuild_producers(now, loader.checked_from))
        if not epochs_known:
            log.epochs = epochs_of(log.read_headers(log.start_offset), log.start_offset)
        log.close(clean=False)
        return log

    def _take(self, loader: Loader, log_start: int, now: int) -> None:
        """Adopts the segments that were loaded."""
        segments = loader.segments
        self.end_offset = loader.end_offset
        if segments and loader.end_offset < log_start:
            logger.warning(
                "%s: removed all segments: the log ends at offset %d, before its start at %d",
                self.name,
                loader.end_offset,
                log_start,
            )
            for segment in segments:
                remove(segment.condemn())
            segments = []
        if not segments:
            self._begin(log_start, now)
            self.epochs.cut_end(log_start)
        else:
            self._segments.replace(segments)
            self._active = segments[-1]
            for segment in segments[:-1]:
                self._finished_bytes += segment.size
                if segment.live is not None:
                    segment.finish()
            self._schedule_roll(self._active)
        self.start_offset = max(log_start, self._segments.bases[0])
        self.epochs.cut_end(self.end_offset)
        self.epochs.cut_start(self.start_offset)

    def _begin(self, offset: int, now: int) -> None:
        """Starts over with one empty segment at `offset`."""
        self._active = self._create_segment(offset, now)
        self._segments.replace([self._active])
        self._finished_bytes = 0
        self.end_offset = offset

    def close(self, *, clean: bool = True) -> None:
        """Closes the files; `clean` first makes durable what a clean start relies on."""
        if clean:
            job = self.begin_close()
            job.run()
            self.finish_flush(job)
        for segment in self._segments.each:
            segment.close()

    def begin_close(self) -> FlushJob:
        """The last flush before `close(clean=False)`: with many logs, run the jobs in several threads.

        No flush may be under way, and nothing be appended from here on.
        """
        self._active.finish()
        assert self._active.live is not None
        unwritten = self._active.live.unwritten or self._fresh or self.epochs.changed or self._snapshots.unsaved
        if unwritten or self.end_offset > self.recovery_point:
            self._snapshots.take(self.end_offset, self.producers)
            return self._capture_flush(whole=True)
        return FlushJob(self.directory, self.end_offset, self.generation)

    def configure(self, config: LogConfig) -> None:
        """Settings that hold from now on."""
        self.config = self._segments.config = config
        self._segment_bytes = config.segment_bytes
        self._roll_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.compacts else config.segment_ms
        if self._segments.each:
            self._schedule_roll(self._active)

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return self._finished_bytes + self._active.size

    @property
    def flush_due(self) -> bool:
        """A segment was finished that is not durable yet."""
        return len(self._segments.each) > 1 and self._segments.each[-2].live is not None

    @property
    def segments(self) -> Segments:
        """To look at, not to change; `repair` may."""
        return self._segments

    @property
    def segment_count(self) -> int:
        return len(self._segments.each)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, header: RawHeader | BatchHeader, batch: memoryview | bytes, leader_epoch: int, now: int) -> int:
        """Writes a checked batch at the log's end and returns its base offset.

        OSError: nothing was written (what was is cut off again), and the directory is not to be trusted any more.
        """
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
            segment.schedule_roll(timestamp, self._due_after())
        segment.size = position + size
        first = base - segment.base
        live.add(first, first + delta, position, timestamp)  # type: ignore[union-attr]
        self.end_offset = base + delta + 1
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base)
        producer_id = header[9]
        if producer_id >= 0:
            if header[5] & CONTROL:
                self._end_transaction(segment, header, batch, base)
            else:
                self.producers.update(
                    producer_id, header[10], header[11], delta, base, timestamp, header[5] & TRANSACTIONAL != 0
                )
        return base

    def append_copies(self, copies: Copies, now: int) -> None:
        """Writes batches of the leader as they are, with one system call for all that one segment takes.

        OSError: what was not written completely was cut off again; what came before it is in the log.
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
                segment.schedule_roll(group[0][8], self._due_after())
            write_copies(segment, self._files, group, data[at : at + size])
            self._take_note(segment, group, data[at : at + size])
            done, at = done + len(group), at + size

    def _take_note(self, segment: Segment, headers: list[RawHeader], data: memoryview) -> None:
        at = 0
        for header in headers:
            stop = at + header[1] + PREFIX_SIZE
            self.end_offset = header[0] + header[6] + 1
            if header[2] != self.epochs.latest:
                self.epochs.follow(header[2], header[0])
            if header[9] >= 0:
                if header[5] & CONTROL:
                    self._end_transaction(segment, header, data[at:stop], header[0])
                else:
                    follow(self.producers, header, header[0], bytes)
            at = stop

    def _end_transaction(
        self, segment: Segment, header: RawHeader | BatchHeader, batch: memoryview | bytes, base: int
    ) -> None:
        state = self.producers.get(header[9])
        began = -1 if state is None else state.txn_start_offset
        aborted = follow(self.producers, header, base, lambda: bytes(batch))
        if self.unsettled is not None and began >= 0:
            self.unsettled.append((base, began))
        if aborted is not None:
            if not segment.aborts:
                self._segments.aborting.append(segment)
            segment.add_aborted(aborted)

    def check_producer(
        self, header: RawHeader | BatchHeader, proof: Verification = NOT_ASKED
    ) -> Written | Refusal | None:
        """Whether a client's batch with a producer id may be appended (None), was already (Written), or must not be."""
        transactional = header[5] & TRANSACTIONAL != 0
        answer = self.producers.check(header[9], header[10], header[11], header[6], transactional, proof)
        if type(answer) is Refusal and answer.error is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER:
            state = self.producers.get(header[9])
            if state is not None and state.from_snapshot:
                refill(self.producers, self._segments, header[9], self.start_offset)
                return self.check_producer(header, proof)  # once: the state is no longer as the snapshot gave it
        return answer

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where the oldest undecided transaction begins, or the high watermark: readers of committed records end here.

        A transaction is decided once its marker lies before the high watermark. Without followers it does at once.
        """
        first_open = self.producers.first_open_offset
        if self.unsettled:
            while self.unsettled and self.unsettled[0][0] < high_watermark:
                self.unsettled.popleft()
            first_open = min(first_open, min((began for _, began in self.unsettled), default=first_open))
        if first_open >= high_watermark:
            return high_watermark
        return min(max(first_open, self.start_offset), high_watermark)

    def roll(self, now: int) -> Segment:
        """Finishes the active segment and begins the next; an empty one stays. A flush is then due."""
        if not self._active.size:
            return self._active
        following = self._create_segment(self.end_offset, now)  # may fail, and then nothing has changed
        self._active.finish()
        self._finished_bytes += self._active.size
        self._snapshots.take(self.end_offset, self.producers)
        self._active = following
        self._segments.add(following)
        if self.on_roll is not None:
            self.on_roll(self)
        return following

    def roll_if_due(self, now: int) -> None:
        """segment.ms of a log that nobody writes to: what is never finished could never be deleted or compacted."""
        if now > self._active.roll_at:
            self.roll(now)

    def _create_segment(self, base: int, now: int) -> Segment:
        self._fresh = True
        config = self.config
        stem = file_stem(self.directory, base)
        return create(stem, base, self._files, now, config.index_interval_bytes, config.segment_index_bytes)

    def _due_after(self) -> int:
        """segment.ms less a random part of segment.jitter.ms, so that partitions do not roll all at once."""
        jitter = min(self.config.segment_jitter_ms, self._roll_ms)
        return self._roll_ms - random.randrange(jitter) if jitter > 0 else self._roll_ms

    def _schedule_roll(self, segment: Segment) -> None:
        first = segment.first_timestamp()
        if first is not None:
            segment.schedule_roll(first, self._due_after())

    # -- reading -----------------------------------------------------------------------------------------------------

    def locate(self, offset: int, max_bytes: int, upper: int, *, whole_first: bool) -> Slice | None:
        """A plan to read from the batch that holds `offset`: at most `max_bytes`, nothing of what begins at `upper`.

        The end may cut a batch, as Kafka's answers do, but not the first: that one is left out as well if it does not
        fit, or with `whole_first` comes whole whatever its size. None: there is nothing to read. The caller has checked
        that start ≤ offset ≤ end.
        """
        if offset >= upper:
            return None
        segment = self._active
        if offset < segment.base:
            segment = self._segments.each[bisect_right(self._segments.bases, offset) - 1]
        segment.touched = True
        file = segment.file or self._files.open(segment)
        position = self._segments.position(segment, offset)
        end = segment.size
        if position >= end:  # compaction took the last batches of this segment
            bases = self._segments.bases
            following = bisect_right(bases, offset)
            return (
                self.locate(bases[following], max_bytes, upper, whole_first=whole_first)
                if following < len(bases)
                else None
            )
        if upper < self.end_offset:
            bases = self._segments.bases
            following = bisect_right(bases, segment.base)
            if following == len(bases) or upper < bases[following]:
                end = self._segments.position(segment, upper)
        length = end - position
        if length > max_bytes:
            length = max_bytes
            first = min(segment.size_of_batch(position), end - position)
            if first > length:
                length = first if whole_first else 0
        if length <= 0:
            return None
        hot = segment is self._active and position > segment.size - HOT_TAIL
        return tuple.__new__(Slice, (file, position, length, hot))

    def read_headers(self, from_offset: int) -> Iterator[BatchHeader]:
        """Headers of the batches from the one that holds `from_offset` to the end."""
        for _, _, header in self._segments.headers(from_offset):
            yield BatchHeader._make(header)

    def read_batches(self, from_offset: int) -> Iterator[Batch]:
        """Header and bytes of the batches from the one that holds `from_offset` to the end as it is now.

        Reads much at a time. Made on the loop, it may be walked in a thread while the log is appended to.
        """
        return self._segments.batches(from_offset)

    def batch_at_time(self, timestamp: int, from_offset: int | None = None) -> bytes | None:
        """The first batch, of those that reach `from_offset`, with a record of `timestamp` or later in it."""
        return self._segments.batch_at_time(timestamp, self.start_offset if from_offset is None else from_offset)

    def batch_of_max_timestamp(self) -> bytes | None:
        """The batch with the largest timestamp (the earliest such one), or None where no record has one."""
        return self._segments.batch_of_max_timestamp()

    def bytes_between(self, start: int, end: int) -> int:
        """Bytes of the batches from the one that holds `start` to before the one that holds `end`."""
        return self._segments.bytes_between(start, end)

    def aborted_in(self, offset: int, piece: Slice, upper: int) -> list[Aborted]:
        """Aborted transactions that a reader of committed records must know for a piece read from `offset` on."""
        if not self._segments.aborting:
            return []
        return self.aborted_transactions(offset, min(upper, self._segments.bound(offset, piece, self.end_offset)))

    def aborted_transactions(self, from_offset: int, upper: int) -> list[Aborted]:
        """Those that overlap the offsets from `from_offset` to before `upper`, in the order of their markers."""
        found: list[Aborted] = []
        for segment in self._segments.aborting_from(from_offset):
            try:
                entries = segment.aborted_entries()
            except CorruptLogError as fault:
                entries = self._rebuild_aborted(segment, fault)
            more, complete = find_aborted(entries, from_offset, upper)
            found += more
            if complete:
                break
        return found

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to `epoch` and where it ended (KIP-101, KIP-279); (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # -- shortening: each returns paths for `files.remove`, to be run in a thread ------------------------------------

    def truncate_to(self, offset: int, now: int) -> list[Path]:
        """Drops what lies at `offset` and behind; a batch that `offset` falls into goes as a whole."""
        if offset >= self.end_offset:
            self.epochs.cut_end(offset)  # a leader that wrote nothing leaves its epoch here, which others may not know
            return []
        if self.unsettled:
            self.unsettled = deque(each for each in self.unsettled if each[0] < offset)
        self.generation += 1
        self.clean_to = min(self.clean_to, offset)
        if offset < self._segments.bases[0]:
            return self.restart_at(offset, now)
        removed = self._segments.drop_behind(offset)
        segment = self._active = self._segments.each[-1]
        if segment.live is None:
            self._thaw(segment)
        self._finished_bytes = sum(other.size for other in self._segments.each[:-1])
        position = self._segments.position(segment, offset)
        if position < segment.size:
            first_gone: int = next(segment.headers(position))[1][0]
            segment.cut(offset, position)
            offset = min(offset, first_gone)
            self._segments.replace(self._segments.each)  # its aborted transactions may be among what is gone
        self._schedule_roll(segment)
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.cut_end(offset)
        removed += self._rebuild_producers(now)
        return removed

    def restart_at(self, offset: int, now: int) -> list[Path]:
        """Drops everything; the log goes on, empty, at `offset`."""
        self.generation += 1
        self.clean_to = 0
        removed = [path for segment in self._segments.each for path in segment.condemn()]
        self._begin(offset, now)
        self.start_offset = self.recovery_point = offset
        self.epochs.cut_end(-1)
        if self.unsettled:
            self.unsettled.clear()
        return removed + self._snapshots.start_over(self.producers)

    def _thaw(self, segment: Segment) -> None:
        """Makes a finished segment writable again."""
        if thaw(segment, self.config) is None:
            fault = "they do not fit"
            rebuild_indexes(segment, self.config, self.name, fault)
            if segment.aborts:
                self._rebuild_aborted(segment, fault)
            thaw(segment, self.config)

    def advance_start(self, offset: int) -> list[Path]:
        """Records before `offset` are gone; segments that hold nothing else leave the disk."""
        if offset <= self.start_offset:
            return []
        self.start_offset = offset
        removed, size = self._segments.drop_before(offset)
        self._finished_bytes -= size
        self.epochs.cut_start(offset)
        return removed + self._snapshots.drop_before(self._segments.bases[0])

    def exchange(self, bases: list[int], size: int, aborts: bool, now: int) -> list[Path]:
        """Compaction made one segment of those that begin at `bases`; its files are ready."""
        new = Segment(file_stem(self.directory, bases[0]), bases[0], size, self._files, now)
        new.aborts = aborts
        removed, more = self._segments.exchange(bases, new)
        self._finished_bytes += more
        return removed + self._snapshots.drop(bases[1:])

    def delete(self) -> list[Path]:
        """Rename the directory as Kafka names those of deleted partitions; the paths to remove later.

        No flush may be under way. A full disk may have no room for the longer name: then the files go at once.
        """
        self.generation += 1
        self.close(clean=False)
        directory = Path(self.directory)
        try:
            return [directory.rename(condemned_path(directory))]
        except OSError as problem:
            if not out_of_space(problem):
                raise
            remove([directory])
            return []

    # -- durability --------------------------------------------------------------------------------------------------

    def begin_flush(self) -> FlushJob:
        """Captures what is not durable yet: `job.run()` in a thread, then `finish_flush(job)` back on the loop."""
        return self._capture_flush(whole=False)

    def _capture_flush(self, *, whole: bool) -> FlushJob:
        job = FlushJob(self.directory, self.end_offset, self.generation, new_files=self._fresh)
        unfinished = [segment for segment in self._segments.each if segment.live is not None]
        job.finished = unfinished[:-1]
        for segment in job.finished:
            job.capture(segment, whole=True)
        if whole or self.end_offset > self.recovery_point:
            job.capture(self._active, whole=whole)
        job.snapshots = dict(self._snapshots.unsaved)
        if self.epochs.changed:
            job.epochs = checkpoints.epochs_file(self.epochs.entries())
            self.epochs.changed = False
        self._fresh = False
        return job

    def finish_flush(self, job: FlushJob) -> None:
        """The job ran without an error: what it wrote need not be kept in memory, nor checked after a crash."""
        for segment in job.finished:
            if segment.gone and segment.base not in self._segments.bases:  # else the names are another's by now
                remove(segment.condemn())  # the job made index files again for a segment that was removed meanwhile
        if job.generation != self.generation:
            self.epochs.changed = True
            for offset in job.snapshots:  # of a past that was cut off, or about to be written again
                Path(snapshot_path(self.directory, offset)).unlink(missing_ok=True)
            return
        for segment in job.finished:
            segment.live = None
        self._snapshots.mark_saved(job.snapshots)
        self.recovery_point = max(self.recovery_point, job.end_offset)

    def abandon_flush(self, job: FlushJob) -> None:
        """The job did not get through: the next one has all of its work."""
        self._fresh |= job.new_files
        self.epochs.changed |= job.epochs is not None

    @property
    def checkpoint(self) -> int:
        """The recovery point to write down. Finished segments whose indexes are not on disk are checked again."""
        return self._segments.indexed_to(self.recovery_point)

    # -- producers ---------------------------------------------------------------------------------------------------

    def _rebuild_producers(self, now: int, unindexed_from: int = NEVER) -> list[Path]:
        bounds = (self.start_offset, self.end_offset)
        return rebuild_producers(self.producers, self._segments, self._snapshots, bounds, now, unindexed_from)

    def _rebuild_aborted(self, segment: Segment, fault: object) -> bytes:
        return rebuild_aborted(segment, self._segments, self._snapshots, self.start_offset, fault)
