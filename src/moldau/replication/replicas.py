"""The partitions that this broker has, kept in step with the image: opens, deletes and configures their logs.

Handlers find a partition by the token that a request names its topic with. A partition that is still being opened is
`None` in its row, which clients are told as a retriable error. Disk work runs in threads, one change after the other,
so a topic that is deleted and created again cannot meet its own ghost; `settled` waits for it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from moldau.log import files
from moldau.log.directory import LogDirectory
from moldau.log.log import Log, TopicIdMismatchError
from moldau.log.segment import CorruptLogError
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication.partition import Partition

logger = logging.getLogger("moldau.replication")

Row = list[Partition | None]
LONGEST_STRAY = 216  # of a name that takes 39 letters more, and file systems allow 255


class Opening(NamedTuple):
    """A partition to be opened: all that a thread needs for it."""

    topic: Topic
    state: PartitionState
    config: LogConfig
    directory: LogDirectory
    new: bool  # nothing of it can be on disk


class Opened(NamedTuple):
    partition: Partition
    topic: Topic
    directory: LogDirectory


class Replicas:
    def __init__(
        self,
        node_id: int,
        directories: list[LogDirectory],
        configure: Callable[[Topic], LogConfig],
        now: Callable[[], int],
        producer_expiration_ms: int,
    ) -> None:
        self.by_name: dict[bytes, Row] = {}
        self.by_id: dict[bytes, Row] = {}
        self.directories = directories
        self._node_id = node_id
        self._configure = configure
        self._now = now
        self._producer_expiration_ms = producer_expiration_ms
        self._homes: dict[Partition, LogDirectory] = {}
        self._counts: Counter[LogDirectory] = Counter()  # partitions in each, those on their way included
        self._found = {key: directory for directory in directories for key in directory.partitions()}
        self._disk = ThreadPoolExecutor(1, "moldau-disk")
        self._last: asyncio.Task[None] | None = None  # the newest change of partitions; it waits for those before it
        self._removals: set[asyncio.TimerHandle] = set()

    # ── finding ──

    def find(self, topics: dict[bytes, Row], token: bytes, index: int) -> Partition | None:
        """`topics` is `by_name` or `by_id`, as the request's version names topics."""
        row = topics.get(token)
        if row is None or not 0 <= index < len(row):
            return None
        return row[index]

    def get(self, topic: str, index: int) -> Partition | None:
        return self.find(self.by_name, topic.encode(), index)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._homes))

    def in_directory(self, directory: LogDirectory) -> list[Partition]:
        return [partition for partition, home in self._homes.items() if home is directory]

    # ── following the image ──

    def load(self, image: ClusterImage, threads: int, give_up: Callable[[], bool]) -> None:
        """Open every partition of ours, at start-up, before anything is served. Blocks, unless `give_up` turns true."""
        openings = [
            self._opening(topic, state, new=False)
            for topic in image.topics.values()
            for state in self._ours(topic.partitions)
        ]
        for topic in image.topics.values():
            self._make_row(topic)

        def unless_given_up(opening: Opening) -> Opened | None:
            return None if give_up() else self._open(opening)

        with ThreadPoolExecutor(threads, "moldau-recovery") as pool:
            for opened in (pool.map if threads > 1 else map)(unless_given_up, openings):
                if opened is not None:
                    self._place(opened)
        for directory in self.directories:
            files.remove(directory.condemned())

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """The image changed. What needs the disk goes on in the background."""
        if old.topics is new.topics:
            return
        openings: list[Opening] = []
        dropped: list[Partition] = []
        for name, before in old.topics.items():
            after = new.topics.get(name)
            if after is None or after.id != before.id:
                dropped += self._drop_row(before)
        for name, topic in new.topics.items():
            known = old.topics.get(name)
            if known is topic:
                continue
            if known is not None and known.id == topic.id:
                openings += self._changed(known, topic)
            else:
                self._make_row(topic)
                openings += [self._opening(topic, state, new=True) for state in self._ours(topic.partitions)]
        if openings or dropped:
            self._last = asyncio.get_running_loop().create_task(self._carry_out(self._last, dropped, openings))

    async def settled(self) -> None:
        """Until the disk has caught up with all changes so far."""
        if self._last is not None:
            await asyncio.shield(self._last)

    def reconfigure(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            config = self._configure(topic)
            for partition in self.by_id.get(topic.id.bytes, []):
                if partition is not None:
                    partition.log.config = config

    def _ours(self, states: Iterable[PartitionState]) -> list[PartitionState]:
        return [state for state in states if self._node_id in state.replicas]

    def _changed(self, before: Topic, topic: Topic) -> list[Opening]:
        row = self.by_id[topic.id.bytes]
        row.extend([None] * (len(topic.partitions) - len(row)))
        for partition, state in zip(row, topic.partitions, strict=True):
            if partition is not None:
                partition.leader_epoch = state.leader_epoch
        if before.config != topic.config:
            self.reconfigure([topic])
        added = self._ours(topic.partitions[len(before.partitions) :])
        return [self._opening(topic, state, new=True) for state in added]

    def _make_row(self, topic: Topic) -> None:
        row: Row = [None] * len(topic.partitions)
        self.by_name[topic.name.encode()] = self.by_id[topic.id.bytes] = row

    def _drop_row(self, topic: Topic) -> list[Partition]:
        row = self.by_id.pop(topic.id.bytes, [])
        if self.by_name.get(topic.name.encode()) is row:
            del self.by_name[topic.name.encode()]
        dropped = [partition for partition in row if partition is not None]
        for partition in dropped:
            partition.changed()
        return dropped

    def _opening(self, topic: Topic, state: PartitionState, *, new: bool) -> Opening:
        home = self._found.pop((topic.name, state.index), None)
        if home is None:
            home = min(self.directories, key=lambda directory: self._counts[directory])
        self._counts[home] += 1
        return Opening(topic, state, self._configure(topic), home, new)

    async def _carry_out(
        self, before: asyncio.Task[None] | None, dropped: list[Partition], openings: list[Opening]
    ) -> None:
        if before is not None:
            await before
        loop = asyncio.get_running_loop()
        for partition in dropped:
            await self._delete(partition)
        for opened in await loop.run_in_executor(self._disk, lambda: [self._open(each) for each in openings]):
            if opened is None:
                continue
            self._place(opened)
            if opened.topic.id.bytes not in self.by_id:  # deleted while it was being opened
                await self._delete(opened.partition)

    def _place(self, opened: Opened) -> None:
        partition = opened.partition
        self._homes[partition] = opened.directory
        partition.log.on_roll = lambda _: partition.flusher.soon()  # a segment is finished: make it durable
        row = self.by_id.get(opened.topic.id.bytes)
        if row is not None:
            row[partition.index] = partition

    def _open(self, opening: Opening) -> Opened | None:
        """In a thread. A log that cannot be opened leaves its partition out, and the reason in the broker's log."""
        topic, state, config, directory, new = opening
        key = (topic.name, state.index)
        name = f"{topic.name}-{state.index}"
        try:
            if new:
                _put_aside(directory.path / name)
            log = Log.open(
                directory.path / name,
                name,
                config,
                clean=directory.clean,
                recovery_point=directory.recovery_points.get(key, 0),
                log_start=directory.log_starts.get(key, 0),
                now=self._now(),
                topic_id=topic.id,
                producer_expiration_ms=self._producer_expiration_ms,
            )
        except (OSError, CorruptLogError, TopicIdMismatchError) as problem:
            logger.error("partition %s is offline: %s", name, problem)
            return None
        return Opened(Partition(topic.name, state.index, log, state.leader_epoch), topic, directory)

    async def _delete(self, partition: Partition) -> None:
        await partition.stop()
        home = self._homes.pop(partition)
        self._counts[home] -= 1
        home.forget((partition.topic, partition.index))
        loop = asyncio.get_running_loop()
        condemned = await loop.run_in_executor(self._disk, partition.log.delete)
        self.remove_later(condemned, partition.log.config.file_delete_delay_ms)

    def remove_later(self, paths: list[Path], delay_ms: int) -> None:
        """Remove files that left a log, once readers under way have had time to finish."""
        if not paths:
            return
        loop = asyncio.get_running_loop()

        def go() -> None:
            self._removals.discard(timer)
            loop.run_in_executor(self._disk, files.remove, paths)

        timer = loop.call_later(delay_ms / 1000, go)
        self._removals.add(timer)

    # ── durability ──

    def flush_due(self) -> None:
        """flush.ms of every partition."""
        now = self._now()
        for partition in self:
            partition.flush_if_due(now)

    async def checkpoint(self) -> None:
        """Write the checkpoints of every directory."""
        for directory in self.directories:
            logs = {(each.topic, each.index): each.log for each in self.in_directory(directory)}
            await asyncio.to_thread(
                directory.write_checkpoints,
                {key: log.recovery_point for key, log in logs.items()},
                {key: log.end_offset for key, log in logs.items()},
                {key: log.start_offset for key, log in logs.items() if log.start_offset},
            )

    def expire_producers(self) -> None:
        now = self._now()
        for partition in self:
            partition.log.producers.expire(now)

    async def stop(self) -> None:
        """Close every log in order; afterwards the directories are marked as cleanly shut down."""
        await self.settled()
        for timer in self._removals:
            timer.cancel()
        for partition in self:
            await partition.stop()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(8, "moldau-close") as pool:  # closing waits for fsync: the disk takes several at once
            await asyncio.gather(*(loop.run_in_executor(pool, partition.log.close) for partition in self))
        await self.checkpoint()
        self._disk.shutdown()
        for directory in self.directories:
            directory.close(clean=not any(each.offline for each in self.in_directory(directory)))


def _put_aside(path: Path) -> None:
    """A directory that belonged to no topic stands in a new partition's place: keep it, under Kafka's kind of name."""
    if path.exists():
        stray = path.rename(path.with_name(f"{path.name[:LONGEST_STRAY]}.{uuid4().hex}-stray"))
        logger.warning("a new partition takes the place of %s, which belonged to no topic and is now %s", path, stray)
