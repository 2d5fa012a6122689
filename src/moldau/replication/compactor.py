"""Compactor: has a cleaner process rewrite the dirtiest log of this broker, and swaps the segments. Rewrites nothing.

A cleaner process starts when a log is due and ends when none is. The segments that it wrote replace the old ones only
if the log has not changed meanwhile. `cleaner-offset-checkpoint` in each log directory has the first dirty offset of
each log, as in Kafka.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from moldau.log.checkpoints import CLEANER_OFFSETS, MalformedCheckpointError, read_offsets, write_offsets
from moldau.log.compaction.choice import LogToClean, measure, plan
from moldau.log.compaction.rewriting import remove_cleaned
from moldau.log.compaction.swapping import Swaps
from moldau.log.compaction.work import Cleaned, Tally, Work
from moldau.log.segment import CorruptLogError, file_stem
from moldau.replication.cleaner import Cleaner, CleanerFailed, LogUncleanable
from moldau.replication.log_directories import Offsets
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas

logger = logging.getLogger("moldau.replication")

AT_A_TIME = 50  # logs that are measured before the event loop serves others
REST_S = 60.0  # before a log is cleaned again after a failure


class CleanerSettings(NamedTuple):
    """The current values of `log.cleaner.*`."""

    processes: int  # 0: compaction is switched off
    key_memory: int  # bytes, of each process
    chunk: int
    bytes_per_second: float  # of each process
    backoff_ms: int


class Due(NamedTuple):
    partition: Partition
    dirt: LogToClean


class Changed(Exception):
    """The log has changed since its cleaning began; the cleaned segments cannot be used."""


class Cleaning:
    """A log that is being cleaned. Its partition stops only after the cleaning has ended."""

    def __init__(self, cleaner: Cleaner) -> None:
        self.cleaner = cleaner
        self.given_up = False
        self.over = asyncio.Event()

    async def stop(self) -> None:
        self.given_up = True
        await self.cleaner.stop()
        await self.over.wait()


class Compactor:
    def __init__(self, replicas: Replicas, settings: Callable[[], CleanerSettings], now: Callable[[], int]) -> None:
        self._replicas = replicas
        self._settings = settings
        self._now = now
        self._workers: set[asyncio.Task[None]] = set()
        self._claimed: set[Partition] = set()
        self._resting: dict[Partition, float] = {}  # until when, in the loop's time
        self._uncleanable: set[Partition] = set()
        self._written: dict[Path, Offsets] = {}
        self._checkpointing = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Start looking for logs to clean; all logs are open."""
        for directory in self._replicas.directories:
            known = _read_checkpoint(directory.path / CLEANER_OFFSETS)
            self._written[directory.path] = known
            for partition in self._replicas.directories.partitions_in(directory):
                partition.log.first_dirty_offset = known.get(partition.topic_partition, 0)
        self._watch = asyncio.get_running_loop().create_task(self._look_again_and_again(), name="compaction")

    async def stop(self) -> None:
        """Stop. A log that is being cleaned keeps its old segments."""
        self._stopping = True
        if self._watch is None:
            return
        self._watch.cancel()
        for partition in list(self._claimed):
            if partition.cleaning is not None:
                await partition.cleaning.stop()
        await asyncio.gather(self._watch, *self._workers, return_exceptions=True)
        await self._checkpoint()

    async def _look_again_and_again(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            settings = self._settings()
            await asyncio.sleep(max(settings.backoff_ms, 10) / 1000)
            self._forget_deleted()
            for _ in range(settings.processes - len(self._workers)):
                worker = loop.create_task(self._work())
                self._workers.add(worker)
                worker.add_done_callback(self._workers.discard)
            await self._checkpoint()

    def _forget_deleted(self) -> None:
        present = set(self._replicas)
        self._uncleanable &= present
        self._resting = {each: until for each, until in self._resting.items() if each in present}

    # -- one worker --------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Clean one log after the other, until none is due."""
        cleaner: Cleaner | None = None
        try:
            while (due := await self._dirtiest()) is not None:
                try:
                    if cleaner is None or not cleaner.alive:
                        cleaner = await Cleaner.start()
                    await self._clean(due, cleaner)
                finally:
                    self._claimed.discard(due.partition)
        except Exception:
            logger.exception("A compaction worker failed; a new one starts with the next check of the logs")
        finally:
            if cleaner is not None:
                await cleaner.stop()

    async def _dirtiest(self) -> Due | None:
        """Claim the log with the largest dirty ratio of those that are due."""
        best: Due | None = None
        now = self._now()
        for place, partition in enumerate(self._replicas):
            if place % AT_A_TIME == AT_A_TIME - 1:
                await asyncio.sleep(0)
            if self._stopping:
                return None
            if not self._may_clean(partition):
                continue
            dirt = self._measured(partition, now)
            if dirt is not None and (best is None or dirt.ratio > best.dirt.ratio):
                best = Due(partition, dirt)
        if best is not None and self._may_clean(best.partition):
            self._claimed.add(best.partition)
            return best
        return None

    def _may_clean(self, partition: Partition) -> bool:
        known = self._replicas.get(partition.topic, partition.index) is partition
        rests = self._resting.get(partition, 0) > asyncio.get_running_loop().time()
        passed = partition.offline or partition in self._claimed or partition in self._uncleanable or rests
        passed = passed or partition in self._replicas.moves
        return known and partition.log.config.compacts and not passed

    def _measured(self, partition: Partition, now: int) -> LogToClean | None:
        """The dirty part of a log, or None if the log is not due."""
        log = partition.log
        if log.durability.flush_due:  # after a crash: segments can be compacted when their indexes are on disk
            partition.flusher.soon()
        try:
            dirt = measure(log, partition.last_stable_offset, now)
        except (CorruptLogError, OSError) as fault:
            self._give_up_on(partition, str(fault))
            return None
        return dirt if dirt.due(log.config.min_cleanable_dirty_ratio) else None

    def _give_up_on(self, partition: Partition, fault: str) -> None:
        self._uncleanable.add(partition)
        logger.error("%s cannot be compacted; it is skipped until the broker restarts: %s", partition.log.name, fault)

    # -- one log -----------------------------------------------------------------------------------------------------

    async def _clean(self, due: Due, cleaner: Cleaner) -> None:
        partition = due.partition
        cleaning = partition.cleaning = Cleaning(cleaner)
        work: Work | None = None
        try:
            # Measured again: the log may have changed, and the plan needs values of this turn of the event loop.
            dirt = measure(partition.log, partition.last_stable_offset, self._now())
            if not dirt.dirty_bytes or partition in self._replicas.moves:
                return
            settings = self._settings()
            work = plan(partition.log, dirt, self._now(), settings.key_memory, settings.chunk)
            await self._carry_out(work, partition, cleaning, settings.bytes_per_second)
        except CorruptLogError as fault:
            self._give_up_on(partition, str(fault))
        finally:
            if work is not None:
                await asyncio.to_thread(_remove_leftovers, work)
            partition.cleaning = None
            cleaning.over.set()

    async def _carry_out(self, work: Work, partition: Partition, cleaning: Cleaning, bytes_per_second: float) -> None:
        log = partition.log
        swaps = Swaps(log, work)
        try:
            async for told in cleaning.cleaner.do(work, bytes_per_second):
                if isinstance(told, Cleaned):
                    await self._exchange(partition, swaps, told, cleaning)
                else:
                    log.first_dirty_offset = told.end
                    _report(log.name, told)
            await self._checkpoint()
        except (Changed, CleanerFailed, LogUncleanable, OSError) as problem:
            await cleaning.cleaner.stop()  # the rest of its work cannot be used
            if cleaning.given_up:
                return
            if isinstance(problem, Changed) or swaps.disturbed():
                logger.info("%s changed while it was compacted; compacting it again", log.name)
            elif isinstance(problem, LogUncleanable):
                self._give_up_on(partition, str(problem))
            else:
                self._resting[partition] = asyncio.get_running_loop().time() + REST_S
                logger.warning("Compacting %s failed; retrying in %.0f s: %s", log.name, REST_S, problem)

    async def _exchange(self, partition: Partition, swaps: Swaps, cleaned: Cleaned, cleaning: Cleaning) -> None:
        """Replace segments with the compacted one that was made of them, if they are still there."""

        def possible() -> bool:
            wanted = partition.log.config.compacts and not partition.offline and not cleaning.given_up
            return wanted and swaps.possible(cleaned)

        if not possible():
            raise Changed
        try:
            await asyncio.to_thread(swaps.commit, cleaned)
            if not possible():
                await asyncio.to_thread(swaps.undo, cleaned)
                raise Changed
            removed = swaps.carry_out(cleaned, self._now())
            await asyncio.to_thread(swaps.settle)
        except OSError as problem:
            logger.error(
                "Swapping segments of %s failed; its log directory goes offline: %s", partition.log.name, problem
            )
            partition.fail(problem)
            raise
        self._replicas.deletes.schedule(removed, partition.log.config.file_delete_delay_ms)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    async def _checkpoint(self) -> None:
        """Write the first dirty offsets of the directories where cleaning, truncation or deletion changed one."""
        async with self._checkpointing:
            for directory in self._replicas.directories:
                if directory.offline:
                    continue
                offsets = self._replicas.directories.unopened_in(directory, self._written[directory.path])
                for partition in self._replicas.directories.partitions_in(directory):
                    if partition.log.first_dirty_offset:
                        offsets[partition.topic_partition] = partition.log.first_dirty_offset
                if offsets != self._written[directory.path]:
                    self._written[directory.path] = offsets  # also if the write fails: one log line, not one per check
                    try:
                        await asyncio.to_thread(write_offsets, directory.path / CLEANER_OFFSETS, offsets)
                    except OSError as problem:
                        logger.error("Writing %s failed: %s", directory.path / CLEANER_OFFSETS, problem)


def _read_checkpoint(path: Path) -> Offsets:
    """The first dirty offsets of a directory. Without them its logs are cleaned from their start: only slower."""
    try:
        return read_offsets(path)
    except (MalformedCheckpointError, OSError) as fault:
        logger.warning("All logs in %s are compacted from their start: %s", path.parent, fault)
        return {}


def _remove_leftovers(work: Work) -> None:
    with suppress(OSError):  # the directory may be gone, or its disk
        for base, _, _ in work.segments:
            remove_cleaned(file_stem(work.directory, base))


def _report(name: str, tally: Tally) -> None:
    logger.info(
        "The cleaner compacted %s up to offset %d: %d of %d records and %d of %d bytes are left",
        name,
        tally.end,
        tally.records_kept,
        tally.records_read,
        tally.bytes_kept,
        tally.bytes_read,
    )
    if tally.keyless:
        logger.warning("%s: compaction removed %d records without a key", name, tally.keyless)
