"""Moves a partition into another log directory of this broker while it is written to (KIP-113).

A copy grows beside the log, in a directory with Kafka's name for it (`orders-0.<id>-future`), by rounds in a thread.
When little is left, the last round goes through the partition's inspection queue: batches that arrive meanwhile wait
behind it, so the copy is complete. It is synced, renamed, and replaces the log, which is removed.

A crash leaves the old log whole. The next start begins the copy again, unless it was complete: then the old directory
has a mark that says so, and is removed.
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
LONGEST_FUTURE = 215  # of a name that takes 40 letters more, and file systems allow 255
UNWANTED = Refusal(WireError.NONE, "it is not wanted any more")
CUT = Refusal(WireError.NONE, "records that were copied were cut off; it is begun anew")


class MoveEnded(Exception):
    """Nobody wants the copy any more."""


class MoveOwner(Protocol):
    def now(self) -> int: ...

    def open_copy(self, partition: Partition, path: Path, log_start: int, clean: bool) -> Log:
        """In a thread: open the copy at `path`, which begins at `log_start`."""

    async def log_replaced(self, partition: Partition, target: LogDirectory, old: Log) -> None:
        """The copy has taken the place of the log: write that down, and remove the old one."""

    def directory_failed(self, directory: LogDirectory, problem: OSError) -> None: ...


class Move:
    def __init__(self, partition: Partition, target: LogDirectory, owner: MoveOwner) -> None:
        self.partition = partition
        self.target = target
        self.copy: Log | None = None
        self._owner = owner
        self._ended = False
        self._failure: Callable[[], None] | None = None  # tells of a disk that failed, back on the loop
        self._name = Path(partition.log.directory).name
        self.task = asyncio.get_running_loop().create_task(self._run())

    @property
    def lag(self) -> int:
        """Offsets that the copy is behind."""
        log = self.partition.log
        return log.end_offset - (self.copy.end_offset if self.copy is not None else log.start_offset)

    def give_up(self) -> None:
        """Once the copy has taken the log's place there is nothing to give up."""
        self._ended = True

    async def end(self) -> None:
        """Give the copy up, and wait until it is gone."""
        self.give_up()
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        while True:
            refusal = await self._attempt()
            if refusal is None:
                return
            logger.warning("moving %s to %s ended: %s", self._name, self.target.path, refusal.message)
            await asyncio.to_thread(self._discard)
            if refusal is not CUT:
                return

    async def _attempt(self) -> Refusal | None:
        """Copies all of the log and puts the copy in its place; None if that went well."""
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
        """What is cut off while it is read looks damaged."""
        return CUT if self._outdated else Refusal(WireError.CORRUPT_MESSAGE, str(problem))

    @property
    def _outdated(self) -> bool:
        """Whether the copy may have records that the log has not: a follower's log is cut where its leader's parts."""
        return self.partition.log.generation != self._generation

    async def _copy_most(self) -> None:
        """Round after round, until what is left can be copied while producers wait."""
        log = self.partition.log
        first = _read(lambda: next(log.read_headers(log.start_offset), None))  # a log may start within a batch
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
        """In a thread."""
        source = iter(batches)
        while (batch := _read(lambda: next(source, None))) is not None:
            header, data = batch
            if self._ended:
                raise MoveEnded
            if header.base_offset < copy.end_offset:  # the batch that the last round ended in
                continue
            copy.end_offset = header.base_offset  # compaction leaves gaps
            copy.append(header, data, header.leader_epoch, self._owner.now())
        _flush(copy)

    async def _swap(self) -> Refusal | None:
        """The end of it, behind all batches that came before and before all that come."""
        self.partition.stand(replace(self.partition.standing, moving=True))
        self.partition.appender.take_turn(self._complete, self._take_over)
        return await self._swapped

    def _complete(self) -> bytes | Refusal:
        """In a thread: nothing is written to the log meanwhile."""
        copy, log = self.copy, self.partition.log
        assert copy is not None
        target_failed = partial(self._owner.directory_failed, self.target)
        fail: Callable[[OSError], None] = target_failed  # of the directory that is written to
        try:
            if self._outdated:
                return CUT
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
        """On the loop, in the turn in which producers go on."""
        self.partition.stand(replace(self.partition.standing, moving=False))
        if not isinstance(outcome, Refusal) and self._outdated:
            outcome = CUT
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
                logger.info("moved %s to %s", self._name, self.target.path)
            finally:
                self._swapped.set_result(None)

        self._settling = asyncio.get_running_loop().create_task(settle())

    def _discard(self) -> None:
        """In a thread. The mark goes when no copy has the partition's name any more, and before any file of it does:
        half a copy must not be taken for a whole one.
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
            logger.warning("removing the copy in %s failed: %s", self._path, problem)


def _read(what: Callable[[], T]) -> T:
    """Reads from the log. If that fails it is not the target that has failed."""
    try:
        return what()
    except OSError as problem:
        raise CorruptLogError(f"it cannot be read: {problem}") from problem


def _flush(copy: Log) -> None:
    job: FlushJob = copy.begin_flush()
    job.run()
    copy.finish_flush(job)
