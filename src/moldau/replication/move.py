"""Move: copies a partition to another log directory of this broker while producers write to it (KIP-113).

A thread copies the log in rounds to a directory with Kafka's name for a future log (`orders-0.<id>-future`). When
little is left, the last round takes its turn in the partition's inspection queue: new batches wait behind it, so the
copy is complete. The copy is synced, renamed, and replaces the log, which is deleted.

A crash leaves the old log intact. The next start copies it again, unless the copy was complete: then the old directory
is marked as moved, and is deleted.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import uuid4

from moldau.base.errors import Refusal, WireError
from moldau.log import files
from moldau.log.directory import LogDirectory
from moldau.log.flush import FlushJob
from moldau.log.log import Log
from moldau.log.partition_locations import deletion_path, mark_moved, unmark_moved
from moldau.log.reading import StoredBatch
from moldau.log.segment import CorruptLogError
from moldau.replication.partition import Partition

logger = logging.getLogger("moldau.replication")

T = TypeVar("T")

LAST_ROUND = 1024 * 1024  # bytes that may be left to copy while producers wait
LONGEST_FUTURE = 215  # characters; 40 more follow, and file systems allow 255
UNWANTED = Refusal(WireError.NONE, "it was cancelled")
TRUNCATED = Refusal(WireError.NONE, "the log was truncated meanwhile; copying it again")


class MoveEnded(Exception):
    """The move was cancelled."""


class MoveOwner(Protocol):
    def now(self) -> int: ...

    def open_copy(self, partition: Partition, path: Path, log_start: int, clean: bool) -> Log:
        """Open the copy at `path`, with this log start offset. Called in a thread."""

    async def log_replaced(self, partition: Partition, target: LogDirectory, old: Log) -> None:
        """The copy has replaced the log: write the checkpoints, and delete the old log."""

    def directory_failed(self, directory: LogDirectory, problem: OSError) -> None: ...


class Move:
    def __init__(self, partition: Partition, target: LogDirectory, owner: MoveOwner) -> None:
        self.partition = partition
        self.target = target
        self.copy: Log | None = None
        self._owner = owner
        self._ended = False
        self._failure: Callable[[], None] | None = None  # reports a failed disk; called on the event loop
        self._name = Path(partition.log.directory).name
        self.task = asyncio.get_running_loop().create_task(self._run())

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind the log."""
        log = self.partition.log
        return log.end_offset - (self.copy.end_offset if self.copy is not None else log.start_offset)

    def give_up(self) -> None:
        """Cancel the move. Has no effect once the copy has replaced the log."""
        self._ended = True

    async def end(self) -> None:
        """Cancel the move, and wait until the copy is removed."""
        self.give_up()
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        while True:
            refusal = await self._attempt()
            if refusal is None:
                return
            logger.warning("Moving %s to %s ended: %s", self._name, self.target.path, refusal.message)
            await asyncio.to_thread(self._discard)
            if refusal is not TRUNCATED:
                return

    async def _attempt(self) -> Refusal | None:
        """Copy the log and replace it with the copy. None: it is replaced."""
        log = self.partition.log
        self.copy = None
        self._path = self.target.path / f"{self._name[:LONGEST_FUTURE]}.{uuid4().hex}-future"
        self._first_dirty_offset = log.first_dirty_offset
        self._generation = log.generation
        self._swapped: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        try:
            await self._copy_most()
            return await self._swap()
        except MoveEnded:
            return UNWANTED
        except CorruptLogError as problem:
            return self._unreadable(problem)
        except OSError as problem:
            if not files.is_transient(problem):
                self._owner.directory_failed(self.target, problem)
            return Refusal(WireError.KAFKA_STORAGE_ERROR, str(problem))

    def _unreadable(self, problem: CorruptLogError) -> Refusal:
        """A log that is truncated while it is read looks corrupt."""
        return TRUNCATED if self._outdated else Refusal(WireError.CORRUPT_MESSAGE, str(problem))

    @property
    def _outdated(self) -> bool:
        """Whether the copy may have records that the log lacks: a follower's log is truncated where it diverges."""
        return self.partition.log.generation != self._generation

    async def _copy_most(self) -> None:
        """Copy in rounds, until the rest is small enough to be copied while producers wait."""
        log = self.partition.log
        first = _read(lambda: next(log.read_headers(log.start_offset), None))  # the log may start within a batch
        begin = first.base_offset if first is not None else log.start_offset
        copy = self.copy = await asyncio.to_thread(self._owner.open_copy, self.partition, self._path, begin, False)
        while not self._outdated:
            end = max(copy.end_offset, log.start_offset)
            left = _read(partial(log.segments.bytes_between, end, log.end_offset))
            if left:
                await asyncio.to_thread(self._append, _read(partial(log.read_batches, end)), copy)
            if left <= LAST_ROUND:
                return

    def _append(self, batches: Iterable[StoredBatch], copy: Log) -> None:
        """Append to the copy; in a thread."""
        source = iter(batches)
        while (batch := _read(lambda: next(source, None))) is not None:
            header, data = batch
            if self._ended:
                raise MoveEnded
            if header.base_offset < copy.end_offset:  # the last batch of the round before
                continue
            copy.end_offset = header.base_offset  # compaction leaves gaps
            copy.append(header, data, header.leader_epoch, self._owner.now())
        _flush(copy)

    async def _swap(self) -> Refusal | None:
        """Copy the rest and replace the log, behind the batches that came before and before those that come."""
        self.partition.stand(replace(self.partition.standing, moving=True))
        self.partition.appender.take_turn(self._complete, self._take_over)
        return await self._swapped

    def _complete(self) -> bytes | Refusal:
        """Complete, sync and rename the copy; in a thread. Nothing is written to the log meanwhile."""
        copy, log = self.copy, self.partition.log
        assert copy is not None
        target_failed = partial(self._owner.directory_failed, self.target)
        fail: Callable[[OSError], None] = target_failed  # for the directory that is written to
        try:
            if self._outdated:
                return TRUNCATED
            end = max(copy.end_offset, log.start_offset)
            if end < log.end_offset:
                self._append(_read(lambda: log.read_batches(end)), copy)
            if self._ended or self.partition.offline:
                return UNWANTED
            copy.end_offset = log.end_offset
            copy.close()
            fail = self.partition.fail
            mark_moved(log.directory, log.start_offset)
            fail = target_failed
            path = self.target.path / self._name
            self._path.rename(path)
            self._path = path
            files.sync_directory(self.target.path)
            self.copy = self._owner.open_copy(self.partition, path, log.start_offset, True)
        except MoveEnded:
            return UNWANTED
        except CorruptLogError as problem:
            return self._unreadable(problem)
        except OSError as problem:
            if not files.is_transient(problem):
                self._failure = partial(fail, problem)
            return Refusal(WireError.KAFKA_STORAGE_ERROR, str(problem))
        return b""

    def _take_over(self, outcome: bytes | Refusal) -> None:
        """Replace the log with the copy: on the event loop, in the turn in which producers continue."""
        self.partition.stand(replace(self.partition.standing, moving=False))
        if not isinstance(outcome, Refusal) and self._outdated:
            outcome = TRUNCATED
        if isinstance(outcome, Refusal):
            if self._failure is not None:
                self._failure()
            self._swapped.set_result(outcome)
            return
        assert self.copy is not None
        old, flusher = self.partition.log, self.partition.flusher
        self.copy.first_dirty_offset = self._first_dirty_offset
        self.partition.adopt(self.copy)

        async def settle() -> None:
            try:
                await flusher.stop()
                await self._owner.log_replaced(self.partition, self.target, old)
                logger.info("Moved %s to %s", self._name, self.target.path)
            finally:
                self._swapped.set_result(None)

        self._settling = asyncio.get_running_loop().create_task(settle())

    def _discard(self) -> None:
        """Remove the copy; in a thread.

        The mark is removed after the copy has lost the partition's name, and before its files are deleted: a partial
        copy must not be taken for a complete one.
        """
        try:
            if self.copy is not None:
                self.copy.close(clean=False)
            if self._path.name == self._name:
                self._path = self._path.rename(deletion_path(self._path))
                files.sync_directory(self.target.path)
            unmark_moved(self.partition.log.directory)
            files.remove([self._path] if self._path.exists() else [])
        except OSError as problem:
            logger.warning("Removing the copy %s failed; the next start removes it: %s", self._path, problem)


def _read(read: Callable[[], T]) -> T:
    """Read from the log. An error here is not one of the target directory."""
    try:
        return read()
    except OSError as problem:
        raise CorruptLogError(f"its log cannot be read: {problem}") from problem


def _flush(copy: Log) -> None:
    job: FlushJob = copy.begin_flush()
    job.run()
    copy.finish_flush(job)
