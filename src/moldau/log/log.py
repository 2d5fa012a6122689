"""Log: the segments of one partition as one sequence of offsets. Knows nothing of replication, requests or clocks.

`append` and `locate` run on the event loop for every request: no per-record work, no logging, one system call at most
in the common case. Whatever may block (fsync, unlinking) is handed out as a value to be run in a thread.
"""

import errno
import logging
import os
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from uuid import UUID, uuid4

from moldau.base.errors import Refusal, WireError
from moldau.base.uuids import text_of
from moldau.log import checkpoints
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import OpenFiles, Slice, remove
from moldau.log.flush import FlushJob
from moldau.log.header import RawHeader
from moldau.log.producers import NOT_ASKED, Producers, Verification, Written, last_sequence
from moldau.log.reading import Batch, read_batches
from moldau.log.recovery import Loader, rebuild_indexes, thaw
from moldau.log.replay import follow
from moldau.log.segment import MAX_RELATIVE_OFFSET, CorruptLogError, Segment, create, file_stem
from moldau.log.settings import LogConfig
from moldau.log.snapshots import Snapshots, snapshot_path
from moldau.wire.batch import ASSIGNED, ASSIGNED_SIZE, CONTROL, PREFIX_SIZE, TRANSACTIONAL, BatchHeader

logger = logging.getLogger("moldau.log")

HOT_TAIL = 16 * 1024 * 1024  # bytes at the log's end that the page cache surely holds: they were just written
REFILL_OFFSETS = 50_000  # how far back the batches of a producer are looked for that a snapshot does not hold
_DEFAULT_FILES = OpenFiles()
_writev = os.writev
LONGEST_CONDEMNED = 215  # of a name that takes 40 letters more, and file systems allow 255
_assign = ASSIGNED.pack


class TopicIdMismatchError(ValueError):
    """The directory belongs to another topic of the same name."""


class Log:
    __slots__ = (
        "_active",
        "_bases",
        "_epoch",
        "_files",
        "_finished_bytes",
        "_fresh",
        "_generation",
        "_roll_ms",
        "_segment_bytes",
        "_segments",
        "_snapshots",
        "config",
        "directory",
        "end_offset",
        "epochs",
        "name",
        "on_roll",
        "producers",
        "recovery_point",
        "start_offset",
        "topic_id",
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
        self.epochs = LeaderEpochs()
        self.producers = Producers()
        self._files = files
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._snapshots = Snapshots(self.directory, name)
        self._finished_bytes = 0  # of all segments but the active one
        self._generation = 0
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
        files: OpenFiles = _DEFAULT_FILES,
    ) -> "Log":
        """Opens the log in `directory`, or creates it; checks and repairs what a stop that was not `clean` left."""
        log = cls(directory, name, config, files, topic_id)
        log.producers.expiration_ms = producer_expiration_ms
        if not directory.exists():
            directory.mkdir(parents=True)
            log._fresh = True
        log._claim(directory)
        loader = Loader(directory, name, config, files, now)
        epochs_known = not loader.listing.logs or log._read_epochs()
        loader.load(clean=clean, recovery_point=recovery_point, epochs=log.epochs)
        log._snapshots = Snapshots(log.directory, name, loader.listing.snapshots)
        log._take(loader, log_start, now)
        untouched = clean and not loader.repaired
        log.recovery_point = log.end_offset if untouched else min(recovery_point, log.end_offset)
        remove(log._rebuild_producers(now))
        if not epochs_known:
            log._rebuild_epochs()
        for segment in log._segments:
            segment.close()
        return log

    def _read_epochs(self) -> bool:
        try:
            self.epochs = LeaderEpochs(checkpoints.read_epochs(f"{self.directory}/{checkpoints.LEADER_EPOCHS}"))
        except checkpoints.MalformedCheckpointError as fault:
            logger.warning("%s: reading the leader epochs from the batches: %s", self.name, fault)
            return False
        return True

    def _rebuild_epochs(self) -> None:
        self.epochs = LeaderEpochs()
        for header in self.read_headers(self.start_offset):
            if header.leader_epoch > self.epochs.latest:
                self.epochs.assign(header.leader_epoch, max(header.base_offset, self.start_offset))

    def _claim(self, directory: Path) -> None:
        try:
            found = checkpoints.read_topic_id(self.directory)
        except checkpoints.MalformedCheckpointError as fault:
            raise CorruptLogError(str(fault)) from None
        if found is None:
            checkpoints.write_topic_id(directory, self.topic_id, sync=False)
            self._fresh = True
        elif found != self.topic_id:
            raise TopicIdMismatchError(
                f"{directory} belongs to topic id {text_of(found)}, not {text_of(self.topic_id)}"
            )

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
            self._segments = segments
            self._bases = [segment.base for segment in segments]
            self._active = segments[-1]
            for segment in segments[:-1]:
                self._finished_bytes += segment.size
                if segment.live is not None:
                    segment.finish()
            self._schedule_roll(self._active)
        self.start_offset = max(log_start, self._bases[0])
        self.epochs.cut_end(self.end_offset)
        self.epochs.cut_start(self.start_offset)

    def _begin(self, offset: int, now: int) -> None:
        """Starts over with one empty segment at `offset`."""
        self._active = self._create_segment(offset, now)
        self._segments = [self._active]
        self._bases = [offset]
        self._finished_bytes = 0
        self.end_offset = offset

    def close(self, *, clean: bool = True) -> None:
        """Closes the files; `clean` first makes durable what a clean start relies on."""
        if clean:
            job = self.begin_close()
            job.run()
            self.finish_flush(job)
        for segment in self._segments:
            segment.close()

    def begin_close(self) -> FlushJob:
        """The last flush before `close(clean=False)`: with many logs, run the jobs in several threads.

        No flush may be under way, and nothing be appended from here on.
        """
        self._active.finish()
        if self._unwritten() or self.end_offset > self.recovery_point:
            self._snapshots.take(self.end_offset, self.producers)
            return self._capture_flush(whole=True)
        return FlushJob(self.directory, self.end_offset, self._generation)

    def _unwritten(self) -> bool:
        live = self._active.live
        assert live is not None
        pending = bool(live.offsets_pending) or len(live.times) > live.times_written
        return pending or live.rewrite or self._fresh or self.epochs.changed or bool(self._snapshots.unsaved)

    def configure(self, config: LogConfig) -> None:
        """Settings that hold from now on."""
        self.config = config
        self._segment_bytes = config.segment_bytes
        self._roll_ms = config.segment_ms
        if self._bases:
            self._schedule_roll(self._active)

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return self._finished_bytes + self._active.size

    @property
    def flush_due(self) -> bool:
        """A segment was finished that is not durable yet."""
        return len(self._segments) > 1 and self._segments[-2].live is not None

    @property
    def segment_count(self) -> int:
        return len(self._segments)

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
            os.ftruncate(file.fd, position)
            raise OSError(errno.ENOSPC, f"{written} of {size} bytes were written", f"{segment.stem}.log")
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
                follow(self.producers, header, base, lambda: bytes(batch))
            else:
                self.producers.update(
                    producer_id, header[10], header[11], delta, base, timestamp, header[5] & TRANSACTIONAL != 0
                )
        return base

    def check_producer(
        self, header: RawHeader | BatchHeader, proof: Verification = NOT_ASKED
    ) -> Written | Refusal | None:
        """Whether a client's batch with a producer id may be appended (None), was already (Written), or must not be."""
        asked = header[9], header[10], header[11], header[6], header[5] & TRANSACTIONAL != 0, proof
        answer = self.producers.check(*asked)
        if type(answer) is Refusal and answer.error is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER:
            state = self.producers.get(header[9])
            if state is not None and state.from_snapshot:
                self._refill(header[9])
                answer = self.producers.check(*asked)
        return answer

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where the oldest undecided transaction begins, or the high watermark: readers of committed records end here.

        A transaction counts as decided once its marker is written. With followers it must be below the high watermark.
        """
        return min(max(self.producers.first_open_offset, self.start_offset), high_watermark)

    def roll(self, now: int) -> Segment:
        """Finishes the active segment and begins the next; an empty one stays. A flush is then due."""
        if not self._active.size:
            return self._active
        following = self._create_segment(self.end_offset, now)  # may fail, and then nothing has changed
        self._active.finish()
        self._finished_bytes += self._active.size
        self._snapshots.take(self.end_offset, self.producers)
        self._active = following
        self._segments.append(following)
        self._bases.append(self.end_offset)
        if self.on_roll is not None:
            self.on_roll(self)
        return following

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
            segment = self._segments[bisect_right(self._bases, offset) - 1]
        segment.touched = True
        file = segment.file or self._files.open(segment)
        position = self._position(segment, offset)
        end = segment.size
        if position >= end:  # compaction took the last batches of this segment
            following = bisect_right(self._bases, offset)
            return (
                self.locate(self._bases[following], max_bytes, upper, whole_first=whole_first)
                if following < len(self._bases)
                else None
            )
        if upper < self.end_offset:
            following = bisect_right(self._bases, segment.base)
            if following == len(self._bases) or upper < self._bases[following]:
                end = self._position(segment, upper)
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

    def _position(self, segment: Segment, offset: int) -> int:
        try:
            return segment.position_of(offset)
        except CorruptLogError as fault:
            self._reindex(segment, fault)
            return segment.position_of(offset)

    def _max_timestamp(self, segment: Segment) -> tuple[int, int]:
        try:
            return segment.max_timestamp()
        except CorruptLogError as fault:
            self._reindex(segment, fault)
            return segment.max_timestamp()

    def _reindex(self, segment: Segment, fault: CorruptLogError) -> None:
        """Makes indexes anew that do not fit their segment; if it is the segment that is wrong, the fault stays."""
        if segment.live is not None:
            raise fault
        rebuild_indexes(segment, self.config, self.name, str(fault))

    def read_headers(self, from_offset: int) -> Iterator[BatchHeader]:
        """Headers of the batches from the one that holds `from_offset` to the end."""
        for _, _, header in self._batches(from_offset):
            yield BatchHeader._make(header)

    def _batches(self, from_offset: int) -> Iterator[tuple[Segment, int, RawHeader]]:
        first = max(bisect_right(self._bases, from_offset) - 1, 0)
        for segment in self._segments[first:]:
            for position, header in segment.headers(self._position(segment, max(from_offset, segment.base))):
                yield segment, position, header

    def read_batches(self, from_offset: int) -> Iterator[Batch]:
        """Header and bytes of the batches from the one that holds `from_offset` to the end as it is now.

        Reads much at a time. Made on the loop, it may be walked in a thread while the log is appended to.
        """
        first = max(bisect_right(self._bases, from_offset) - 1, 0)
        begin = max(from_offset, self._bases[first])
        pieces = [(segment, 0, segment.size) for segment in self._segments[first:]]
        pieces[0] = (self._segments[first], self._position(self._segments[first], begin), pieces[0][2])
        return chain.from_iterable(read_batches(*piece) for piece in pieces)

    def batch_at_time(self, timestamp: int, from_offset: int | None = None) -> bytes | None:
        """The first batch, of those that reach `from_offset`, with a record of `timestamp` or later in it."""
        offset = self.start_offset if from_offset is None else from_offset
        for segment in self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]:
            if self._max_timestamp(segment)[0] >= timestamp:
                position = segment.position_of_time(timestamp, max(offset, segment.base))
                if position < segment.size:
                    return segment.read_batch(position)
        return None

    def batch_of_max_timestamp(self) -> bytes | None:
        """The batch with the largest timestamp (the earliest such one), or None where no record has one."""
        best, largest = None, -1
        for segment in self._segments:
            timestamp, _ = self._max_timestamp(segment)
            if timestamp > largest:
                best, largest = segment, timestamp
        if best is None:
            return None
        position = self._position(best, best.max_timestamp()[1])
        if position >= best.size:
            raise CorruptLogError(f"{best.stem}: the time index names an offset that is not there")
        return best.read_batch(position)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to `epoch` and where it ended (KIP-101, KIP-279); (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # -- shortening: each returns paths for `files.remove`, to be run in a thread ------------------------------------

    def truncate_to(self, offset: int, now: int) -> list[Path]:
        """Drops what lies at `offset` and behind; a batch that `offset` falls into goes as a whole."""
        if offset >= self.end_offset:
            return []
        self._generation += 1
        if offset < self._bases[0]:
            return self._restart_at(offset, now)
        keep = bisect_right(self._bases, offset)
        removed = [path for segment in self._segments[keep:] for path in segment.condemn()]
        del self._segments[keep:], self._bases[keep:]
        segment = self._active = self._segments[-1]
        if segment.live is None:
            self._thaw(segment)
        self._finished_bytes = sum(other.size for other in self._segments[:-1])
        position = self._position(segment, offset)
        if position < segment.size:
            first_gone: int = next(segment.headers(position))[1][0]
            segment.cut(offset, position)
            offset = min(offset, first_gone)
        self._schedule_roll(segment)
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.cut_end(offset)
        removed += self._rebuild_producers(now)
        return removed

    def _restart_at(self, offset: int, now: int) -> list[Path]:
        removed = [path for segment in self._segments for path in segment.condemn()]
        self._begin(offset, now)
        self.start_offset = self.recovery_point = offset
        self.epochs.cut_end(offset)
        return removed + self._rebuild_producers(now)

    def _thaw(self, segment: Segment) -> None:
        """Makes a finished segment writable again."""
        if thaw(segment, self.config) is None:
            rebuild_indexes(segment, self.config, self.name, "they do not fit")
            thaw(segment, self.config)

    def advance_start(self, offset: int) -> list[Path]:
        """Records before `offset` are gone; segments that hold nothing else leave the disk."""
        if offset <= self.start_offset:
            return []
        self.start_offset = offset
        gone = max(bisect_right(self._bases, offset) - 1, 0)
        removed = []
        for segment in self._segments[:gone]:
            self._finished_bytes -= segment.size
            removed += segment.condemn()
        del self._segments[:gone], self._bases[:gone]
        self.epochs.cut_start(offset)
        return removed + self._snapshots.drop_before(self._bases[0])

    def delete(self) -> list[Path]:
        """Takes the whole log out of the log directory, under the name that Kafka gives to such directories.

        No flush may be under way.
        """
        self._generation += 1
        for segment in self._segments:
            segment.close()
        directory = Path(self.directory)
        name = directory.name[:LONGEST_CONDEMNED]
        return [directory.rename(directory.with_name(f"{name}.{uuid4().hex}-delete"))]

    # -- durability --------------------------------------------------------------------------------------------------

    def begin_flush(self) -> FlushJob:
        """Captures what is not durable yet: `job.run()` in a thread, then `finish_flush(job)` back on the loop."""
        return self._capture_flush(whole=False)

    def _capture_flush(self, *, whole: bool) -> FlushJob:
        job = FlushJob(self.directory, self.end_offset, self._generation, new_files=self._fresh)
        unfinished = [segment for segment in self._segments if segment.live is not None]
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
            if segment.gone:  # the job made index files again for a segment that was removed meanwhile
                remove(segment.condemn())
        if job.generation != self._generation:
            self.epochs.changed = True
            for offset in job.snapshots:  # of a past that was cut off, or about to be written again
                Path(snapshot_path(self.directory, offset)).unlink(missing_ok=True)
            return
        for segment in job.finished:
            segment.live = None
        self._snapshots.mark_saved(job.snapshots)
        self.recovery_point = max(self.recovery_point, job.end_offset)

    # -- producers ---------------------------------------------------------------------------------------------------

    def _rebuild_producers(self, now: int) -> list[Path]:
        """State as of the log's end: the newest usable snapshot, and the batches behind it."""
        removed = self._snapshots.tidy(self._bases, self.end_offset)
        replay_from, broken = self._snapshots.load(self.producers, self.start_offset, now)
        if replay_from < self.end_offset:
            self._replay_producers(replay_from)
        return removed + broken

    def _replay_producers(self, from_offset: int) -> None:
        for segment, position, header in self._batches(from_offset):
            if header[9] >= 0 and header[0] >= from_offset:
                follow(self.producers, header, header[0], partial(segment.read_batch, position))

    def _refill(self, producer_id: int) -> None:
        """After a restart a producer may retry any of its five requests in flight; a snapshot knows the last one."""
        state = self.producers.get(producer_id)
        assert state is not None
        end = state.batches[0].base_offset if state.batches else self.start_offset
        found = []
        for header in self.read_headers(max(self.start_offset, end - REFILL_OFFSETS)):
            if header.base_offset >= end:
                break
            if header.producer_id == producer_id and header.producer_epoch == state.epoch:
                found.append(_written(header))
        self.producers.refill(producer_id, found)


def _written(header: BatchHeader) -> Written:
    last = last_sequence(header.base_sequence, header.last_offset_delta)
    return Written(header.base_sequence, last, header.base_offset, header.last_offset, header.max_timestamp)
