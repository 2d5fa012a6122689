"""The log directories of this broker: which partition is where, which are offline, and their checkpoints.

A partition whose log cannot be opened is known here too, with the directory that it belongs to: its checkpoints are
kept as they were, and it is offline.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial

from moldau.base.ids import Offset, TopicPartition
from moldau.log import files
from moldau.log.directory import LogDirectory
from moldau.log.partition_locations import interrupted_moves, locate_partitions
from moldau.metadata.image import Topic
from moldau.replication.disk_full import FullDirectories
from moldau.replication.opener import Opening
from moldau.replication.partition import Partition

logger = logging.getLogger("moldau.replication")

Offsets = dict[TopicPartition, Offset]  # by topic and partition


class LogDirectories:
    def __init__(
        self, directories: list[LogDirectory], topics: Mapping[str, Topic], went_offline: Callable[[], None]
    ) -> None:
        """`topics` are those that are known at the start, by name."""
        self._all = directories
        self._went_offline = went_offline
        self._of: dict[Partition, LogDirectory] = {}
        self._found = locate_partitions(directories, {name: topic.id for name, topic in topics.items()})
        self._counts = Counter(self._found.values())  # partitions of each directory, those still to be opened too
        self._unopened: dict[TopicPartition, Opening] = {}  # partitions whose log cannot be opened
        self.interrupted_moves = interrupted_moves(directories)  # the target directory of each partition
        self.offline: frozenset[TopicPartition] = frozenset()
        self.full = FullDirectories()

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._all)

    # ── which partition is where ──

    def choose(self, name: TopicPartition, *, new: bool) -> LogDirectory:
        """The directory of a partition that is to be opened.

        A partition that is not `new` and is in no directory must be in one that failed. Created elsewhere it would be
        empty, lead, and lack acknowledged records; and there would be two of it once that disk works again.
        """
        directory = self._found.pop(name, None)
        if directory is None and not new:
            directory = next((each for each in self._all if each.offline), None)
        if directory is None:
            usable = [each for each in self._all if not each.offline] or self._all
            uncordoned = [each for each in usable if not each.cordoned] or usable
            directory = min(uncordoned, key=lambda each: self._counts[each])  # with the fewest partitions
            self._counts[directory] += 1
        return directory

    def add(self, partition: Partition, directory: LogDirectory) -> None:
        self._of[partition] = directory

    def remove(self, partition: Partition) -> None:
        """The partition was deleted."""
        directory = self._of.pop(partition)
        self._counts[directory] -= 1
        directory.forget(partition.topic_partition)

    def relocate(self, partition: Partition, target: LogDirectory) -> LogDirectory:
        """The partition continues in another directory; returns the one that it was in."""
        source, self._of[partition] = self._of[partition], target
        self._counts[source] -= 1
        self._counts[target] += 1
        source.forget(partition.topic_partition)
        return source

    def of(self, partition: Partition) -> LogDirectory | None:
        """None: the partition was deleted."""
        return self._of.get(partition)

    @property
    def partitions(self) -> list[Partition]:
        return list(self._of)

    def partitions_in(self, directory: LogDirectory) -> list[Partition]:
        return [partition for partition, each in self._of.items() if each is directory]

    # ── partitions without a usable log ──

    def leave_unopened(self, opening: Opening) -> None:
        self._unopened[opening.topic_partition] = opening
        self.update_offline()

    def forget_unopened(self, name: TopicPartition) -> None:
        opening = self._unopened.pop(name, None)
        if opening is not None:
            opening.directory.forget(name)
            self.update_offline()

    def take_unopened(self, names: set[TopicPartition]) -> list[Opening]:
        """Partitions that are to be opened again."""
        return [self._unopened.pop(name) for name in names if name in self._unopened]

    def unopened_in(self, directory: LogDirectory, offsets: Mapping[TopicPartition, Offset]) -> Offsets:
        """The last known offsets of logs in a directory that could not be opened."""
        unopened = [name for name, opening in self._unopened.items() if opening.directory is directory]
        return {name: offsets[name] for name in unopened if name in offsets}

    @property
    def without_records(self) -> frozenset[TopicPartition]:
        """Partitions whose logs cannot be opened, or were replaced by empty ones."""
        replaced = frozenset(each.topic_partition for each in self._of if each.standing.log_replaced)
        return replaced.union(self._unopened)

    def update_offline(self) -> None:
        failed = frozenset(each.topic_partition for each in self._of if each.offline)
        before, self.offline = self.offline, failed.union(self._unopened)
        if self.offline - before:
            self._went_offline()

    def fail(self, directory: LogDirectory) -> list[Partition]:
        """The disk failed: the partitions of the directory go offline until the next start."""
        directory.offline = True
        partitions = self.partitions_in(directory)
        for partition in partitions:
            partition.go_offline()
        return partitions

    # ── checkpoints ──

    async def checkpoint(self, disk: Executor, *, reserve: bool) -> list[tuple[LogDirectory, OSError]]:
        """Write the checkpoints of every directory, one after the other; those that failed, and how."""
        loop = asyncio.get_running_loop()
        failed: list[tuple[LogDirectory, OSError]] = []
        for directory in self._all:
            if directory.offline:
                continue
            try:
                write = partial(directory.write_checkpoints, *self.checkpoints_of(directory), reserve=reserve)
                await loop.run_in_executor(disk, write)
            except OSError as problem:
                failed.append((directory, problem))
                if files.is_transient(problem):
                    self.full.refused(directory.path, "its checkpoint", problem, "outdated")
                else:
                    logger.error("Writing the checkpoints of %s failed: %s", directory.path, problem)
        return failed

    def checkpoints_of(self, directory: LogDirectory) -> tuple[Offsets, Offsets, Offsets]:
        """Recovery points, high watermarks and log starts; of logs that could not be opened those last known."""
        partitions = {each.topic_partition: each for each in self.partitions_in(directory)}
        logs = {name: each.log for name, each in partitions.items()}
        last_known = (directory.recovery_points, directory.high_watermarks, directory.log_starts)
        recovery_points, high_watermarks, log_starts = (self.unopened_in(directory, each) for each in last_known)
        return (
            recovery_points | {name: log.durability.checkpoint for name, log in logs.items()},
            high_watermarks | {name: each.high_watermark for name, each in partitions.items()},
            log_starts | {name: log.start_offset for name, log in logs.items() if log.start_offset},
        )

    def close(self, *, checkpointed: bool) -> None:
        """Mark directories as cleanly shut down, where every log was opened, and closed as it should be."""
        for directory in self._all:
            try:
                directory.close(clean=checkpointed and self._all_closed(directory))
            except OSError as problem:
                logger.error(
                    "Marking %s as cleanly shut down failed; the next start checks its logs: %s",
                    directory.path,
                    problem,
                )

    def _all_closed(self, directory: LogDirectory) -> bool:
        offline = directory.offline or any(each.offline for each in self.partitions_in(directory))
        return not offline and all(opening.directory is not directory for opening in self._unopened.values())
