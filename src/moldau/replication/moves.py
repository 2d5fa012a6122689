"""Moves of partitions between the log directories of this broker that are in progress (AlterReplicaLogDirs)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, ItemsView
from concurrent.futures import Executor
from pathlib import Path

from moldau.base.ids import TopicPartition
from moldau.log import files
from moldau.log.directory import LogDirectory
from moldau.log.log import Log
from moldau.replication.delayed_deletes import DelayedDeletes
from moldau.replication.log_directories import LogDirectories
from moldau.replication.move import Move
from moldau.replication.opener import Opener
from moldau.replication.partition import Partition

logger = logging.getLogger("moldau.replication")


class Moves:
    """The moves in progress by partition, and the `MoveOwner` of each."""

    def __init__(
        self,
        directories: LogDirectories,
        opener: Opener,
        deletes: DelayedDeletes,
        disk: Executor,
        fail: Callable[[LogDirectory, OSError], None],
        checkpoint: Callable[[], Awaitable[bool]],
    ) -> None:
        self._directories = directories
        self._opener = opener
        self._deletes = deletes
        self._disk = disk
        self._fail = fail
        self._checkpoint = checkpoint
        self._moves: dict[Partition, Move] = {}

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._moves

    def __len__(self) -> int:
        return len(self._moves)

    def items(self) -> ItemsView[Partition, Move]:
        return self._moves.items()

    async def begin(self, partition: Partition, target: LogDirectory) -> None:
        """Begin to move a partition. A move to another directory is cancelled first.

        A partition is not compacted while it moves, as in Kafka: the copy could keep an old value of a key and miss
        the tombstone that deleted it.
        """
        while (under_way := self._moves.get(partition)) is not None or partition.cleaning is not None:
            if under_way is not None and under_way.target is target:
                return
            await self.end(partition)
            if partition.cleaning is not None:
                await partition.cleaning.stop()
        if self._directories.of(partition) not in (None, target):
            move = self._moves[partition] = Move(partition, target, self)
            move.task.add_done_callback(lambda _: self._moves.pop(partition, None))

    async def resume(self, find: Callable[[TopicPartition], Partition | None]) -> None:
        """Restart the moves that the last run of the broker did not finish."""
        for name, target in self._directories.interrupted_moves.items():
            partition = find(TopicPartition(*name))
            if partition is not None:
                await self.begin(partition, target)

    async def end(self, partition: Partition) -> None:
        move = self._moves.get(partition)
        if move is not None:
            await move.end()

    async def end_all(self) -> None:
        for partition in list(self._moves):
            await self.end(partition)

    def give_up(self, target: LogDirectory) -> None:
        """Cancel the moves to a directory whose disk failed."""
        for move in self._moves.values():
            if move.target is target:
                move.give_up()

    # ── the owner of a move ──

    def now(self) -> int:
        return self._opener.now()

    def open_copy(self, partition: Partition, path: Path, log_start: int, clean: bool) -> Log:
        return self._opener.open_copy(partition, path, log_start, clean)

    def directory_failed(self, directory: LogDirectory, problem: OSError) -> None:
        self._fail(directory, problem)

    async def log_replaced(self, partition: Partition, target: LogDirectory, old: Log) -> None:
        source = self._directories.relocate(partition, target)
        if partition.cleaning is not None:  # of the old log
            await partition.cleaning.stop()
        delay_ms = partition.log.config.file_delete_delay_ms
        self._deletes.schedule(partition.log.advance_start(old.start_offset), delay_ms)
        await self._checkpoint()
        loop = asyncio.get_running_loop()
        try:
            self._deletes.schedule(await loop.run_in_executor(self._disk, old.delete), delay_ms)
            await loop.run_in_executor(self._disk, files.sync_directory, source.path)
        except OSError as problem:
            logger.error(
                "Removing %s after its move to %s failed; the next start removes it: %s",
                old.directory,
                target.path,
                problem,
            )
