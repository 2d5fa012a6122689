"""The partitions that this broker has a replica of: found by requests, and kept in step with the cluster's image.

Handlers find a partition by the token with which a request names its topic. A partition that is still being opened is
`None` in its row, which clients are told as a retriable error. Disk work runs in threads, one change after the other,
so a topic that is deleted and created again cannot meet the files of its predecessor; `settled` waits for it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from moldau.base.ids import Offset, TopicPartition
from moldau.log import files
from moldau.log.directory import LogDirectory
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication.cluster_view import standalone
from moldau.replication.delayed_deletes import DelayedDeletes
from moldau.replication.inspector import IN_THREAD, Inspector
from moldau.replication.log_directories import LogDirectories
from moldau.replication.moves import Moves
from moldau.replication.opener import Opener, Opening
from moldau.replication.owners import NO_OWNER, ReplicasOwner
from moldau.replication.parallel_open import open_all
from moldau.replication.partition import Partition
from moldau.replication.throttle import ReplicationThrottle

logger: Final = logging.getLogger("moldau.replication")

Row = list[Partition | None]
NO_TOPICS: Final[Mapping[str, Topic]] = {}


class Replicas:
    """Is the `PartitionOwner` of every partition."""

    def __init__(
        self,
        node_id: int,
        directories: list[LogDirectory],
        configure: Callable[[Topic], LogConfig],
        now: Callable[[], int],
        producer_expiration_ms: int,
        topics: Mapping[str, Topic] = NO_TOPICS,
    ) -> None:
        """`topics` are those that are known at the start, by name."""
        self.by_name: dict[bytes, Row] = {}
        self.by_id: dict[bytes, Row] = {}
        self.owner: ReplicasOwner = NO_OWNER
        self.cluster = standalone(node_id, now)  # the cluster, once there is one
        self.inspector: Inspector = IN_THREAD  # of every partition; set before they are opened
        self.sending = ReplicationThrottle()  # from leaders here to throttled followers
        self._node_id = node_id
        self._configure = configure
        self._now = now
        self._topics: dict[bytes, Topic] = {}  # by id, as of the newest image
        self._disk = ThreadPoolExecutor(1, "moldau-disk")
        self._last: asyncio.Task[None] | None = None  # the newest change of partitions; it waits for those before it
        self.directories = LogDirectories(directories, topics, lambda: self.owner.went_offline())
        self.deletes = DelayedDeletes(self._disk)
        self._opener = Opener(node_id, self._topics, now, producer_expiration_ms, self.directories.full)
        self.moves = Moves(self.directories, self._opener, self.deletes, self._disk, self.fail, self.checkpoint)

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
        return iter(self.directories.partitions)

    @property
    def offline(self) -> frozenset[TopicPartition]:
        """Partitions whose disk failed, or whose log cannot be opened."""
        return self.directories.offline

    @property
    def waiting_for_space(self) -> Collection[TopicPartition]:
        """Partitions that are offline only until there is space on their disk."""
        return self._opener.retry_later

    @property
    def last_producer_id(self) -> int:
        """The greatest producer id in the logs; -1 if there is none."""
        return max((each.producer_id for partition in self for each in partition.log.producers), default=-1)

    # ── following the image ──

    def load(self, image: ClusterImage, threads: int, give_up: Callable[[], bool], *, trusted: bool = True) -> None:
        """Open every partition of this broker, at start-up. Blocks, unless `give_up` turns true.

        `threads` for each directory. Not `trusted`: the last writes may be lost, by a power cut.
        """
        self._opener.trusted = trusted
        openings = [
            self._opening(topic, state, new=False)
            for topic in image.topics.values()
            for state in self._ours(topic.partitions)
        ]
        for topic in image.topics.values():
            self._make_row(topic)
        away = sum(each.directory.offline for each in openings)
        if away:
            logger.error("%d partitions are offline: they are in none of the log directories that work.", away)

        def unless_given_up(opening: Opening) -> Partition | None:
            return None if give_up() else self._opener.open(opening)

        for opening, partition in open_all(openings, lambda each: each.directory.path, unless_given_up, threads):
            self._place(opening, partition)
        for directory in self.directories:
            files.remove(directory.pending_deletion())

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """Apply a new image. Work on the disk continues in the background."""
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
                more, gone = self._changed(known, topic)
                openings += more
                dropped += gone
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
                    partition.log.configure(config)

    def _ours(self, states: Iterable[PartitionState]) -> list[PartitionState]:
        return [state for state in states if self._node_id in state.replicas]

    def _changed(self, before: Topic, topic: Topic) -> tuple[list[Opening], list[Partition]]:
        """Partitions of a topic to be opened, and those to be deleted; the others take their new role at once."""
        self._topics[topic.id.bytes] = topic
        row = self.by_id[topic.id.bytes]
        row.extend([None] * (len(topic.partitions) - len(row)))
        if before.config != topic.config:
            self.reconfigure([topic])
        openings: list[Opening] = []
        dropped: list[Partition] = []
        for index, state in enumerate(topic.partitions):
            known = before.partitions[index] if index < len(before.partitions) else None
            if known is state or known == state:
                continue
            partition = row[index]
            if self._node_id not in state.replicas:
                row[index] = None
                self._forget_unopened(TopicPartition(topic.name, index))
                dropped += [partition] if partition is not None else []
            elif known is None or self._node_id not in known.replicas:
                openings.append(self._opening(topic, state, new=True))
            elif partition is not None:
                self._assign(partition, state)
        for partition in dropped:
            self._dismiss(partition)
        return openings, dropped

    def _assign(self, partition: Partition, state: PartitionState, high_watermark: Offset | None = None) -> None:
        partition.assign(state, self.cluster, high_watermark)
        self.owner.role_changed(partition)

    def _dismiss(self, partition: Partition) -> None:
        """The partition was taken from this broker; its log is deleted in the background."""
        partition.dismiss()
        self.owner.removed(partition)

    def _make_row(self, topic: Topic) -> None:
        self._topics[topic.id.bytes] = topic
        row: Row = [None] * len(topic.partitions)
        self.by_name[topic.name.encode()] = self.by_id[topic.id.bytes] = row

    def _drop_row(self, topic: Topic) -> list[Partition]:
        self._topics.pop(topic.id.bytes, None)
        row = self.by_id.pop(topic.id.bytes, [])
        if self.by_name.get(topic.name.encode()) is row:
            del self.by_name[topic.name.encode()]
        for index in range(len(row)):
            self._forget_unopened(TopicPartition(topic.name, index))
        dropped = [partition for partition in row if partition is not None]
        for partition in dropped:
            self._dismiss(partition)
        return dropped

    def _forget_unopened(self, name: TopicPartition) -> None:
        self._opener.retry_later.discard(name)
        self.directories.forget_unopened(name)

    def _opening(self, topic: Topic, state: PartitionState, *, new: bool) -> Opening:
        directory = self.directories.choose(TopicPartition(topic.name, state.index), new=new)
        return Opening(topic, state, self._configure(topic), directory, new)

    async def _carry_out(
        self, before: asyncio.Task[None] | None, dropped: list[Partition], openings: list[Opening]
    ) -> None:
        if before is not None:
            await asyncio.wait([before])  # if that failed it was logged, and this change is due all the same
        await self._delete(dropped)
        # A partition that was removed and added again before it was open is open by now.
        openings = [each for each in openings if self.find(self.by_id, each.topic.id.bytes, each.state.index) is None]
        loop = asyncio.get_running_loop()
        partitions = await loop.run_in_executor(self._disk, lambda: [self._opener.open(each) for each in openings])
        gone: list[Partition] = []
        for opening, partition in zip(openings, partitions, strict=True):
            self._place(opening, partition)
            topic = self._topics.get(opening.topic.id.bytes)
            if partition is None:
                continue
            state = None if topic is None else topic.partitions[partition.index]
            if topic is None or state is None or self._node_id not in state.replicas:  # gone while it was being opened
                self._dismiss(partition)
                gone.append(partition)
            else:  # settings and leaders may have changed while it was being opened
                partition.log.configure(self._configure(topic))
                self._assign(partition, state)
        await self._delete(gone)

    def _place(self, opening: Opening, partition: Partition | None) -> None:
        if partition is None:
            self.directories.leave_unopened(opening)
            return
        self.directories.add(partition, opening.directory)
        partition.owner = self
        partition.appender.inspector = self.inspector
        high_watermark = opening.directory.high_watermarks.get(partition.topic_partition, 0)
        partition.assign(opening.state, self.cluster, high_watermark)
        if opening.directory.offline:
            partition.go_offline()
        self.directories.update_offline()
        partition.log.on_roll = lambda _: partition.flusher.soon()  # a segment is finished: make it durable
        topic = self._topics.get(opening.topic.id.bytes)
        if topic is not None and self._node_id in topic.partitions[partition.index].replicas:
            self.by_id[opening.topic.id.bytes][partition.index] = partition

    async def _delete(self, partitions: list[Partition]) -> None:
        loop = asyncio.get_running_loop()
        for partition in partitions:
            await self.moves.end(partition)
            await partition.stop()
            self.directories.remove(partition)
            try:
                deleted = await loop.run_in_executor(self._disk, partition.log.delete)
            except OSError as problem:
                logger.error(
                    "Deleting the log of %s failed; delete %s by hand: %s",
                    partition.name,
                    partition.log.directory,
                    problem,
                )
                continue
            self.deletes.schedule(deleted, partition.log.config.file_delete_delay_ms)
        if partitions:  # a later topic of this name must not find the old one's log start after a crash
            await self.checkpoint()

    # ── reports of partitions ──

    def disk_failed(self, partition: Partition, problem: OSError) -> None:
        directory = self.directories.of(partition)
        if directory is not None:
            self.fail(directory, problem)

    def disk_full(self, partition: Partition, problem: OSError) -> None:
        directory = self.directories.of(partition)
        if directory is not None:
            self.directories.full.refused(directory.path, partition.name, problem)

    def log_corrupt(self, partition: Partition) -> None:
        self.owner.log_corrupt(partition)

    def records_suspect(self, partition: Partition, offset: Offset) -> None:
        self.owner.records_suspect(partition, offset)

    def fail(self, directory: LogDirectory, problem: OSError) -> None:
        """The disk failed: all partitions in the directory go offline until the next start. The others continue."""
        if directory.offline:
            return
        partitions = self.directories.fail(directory)
        logger.error(
            "Log directory %s is offline, and its %d partitions with it, until the broker is restarted: %s",
            directory.path,
            len(partitions),
            problem,
        )
        for partition in partitions:
            self.owner.role_changed(partition)
        self.moves.give_up(directory)
        self.directories.update_offline()
        if all(each.offline for each in self.directories):
            self.owner.all_directories_failed(
                f"No log directory is left; the last to fail was {directory.path}: {problem}"
            )

    # ── periodic work ──

    async def retire(self) -> None:
        """Apply retention to every partition; other work gets its turn in between, since ages are read from disk."""
        now = self._now()
        for partition in self:
            removed = partition.retire(now)
            if removed:
                self.deletes.schedule(removed, partition.log.config.file_delete_delay_ms)
                logger.info("Retention moved the log start of %s to %d.", partition.name, partition.log.start_offset)
            await asyncio.sleep(0)

    def reopen(self) -> None:
        """Try again to open partitions whose disk was full; say which disks are full no longer."""
        openings = [each._replace(new=False) for each in self.directories.take_unopened(self._opener.retry_later)]
        self._opener.retry_later.clear()
        if openings:
            self._last = asyncio.get_running_loop().create_task(self._carry_out(self._last, [], openings))
        self.directories.full.look()

    def flush_due(self) -> None:
        """Apply flush.ms to every partition."""
        now = self._now()
        for partition in self:
            partition.flush_if_due(now)

    async def checkpoint(self, *, reserve: bool = True) -> bool:
        """Write the checkpoints of every directory; whether all of them were written.

        With `reserve` a full disk takes them too, for as long as its reserve lasts.
        """
        failed = await self.directories.checkpoint(self._disk, reserve=reserve)
        for directory, problem in failed:
            if not files.is_transient(problem):
                self.fail(directory, problem)
        return not failed

    def expire_producers(self) -> None:
        now = self._now()
        for partition in self:
            partition.log.producers.expire(now)

    async def resume_moves(self) -> None:
        await self.moves.resume(lambda name: self.get(*name))

    # ── the end ──

    async def stop(self) -> None:
        """Close every log in order; afterwards the directories are marked as cleanly shut down."""
        await self.settled()
        await self.moves.end_all()
        self.deletes.cancel()
        for partition in self:
            await partition.stop()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(8, "moldau-close") as pool:  # closing waits for fsync: the disk takes several at once
            closed = await asyncio.gather(*(loop.run_in_executor(pool, _close, partition) for partition in self))
        for partition in filter(None, closed):
            partition.stand(replace(partition.standing, offline=True))
        written = await self.checkpoint()
        self._disk.shutdown()
        self.directories.close(checkpointed=written)


def _close(partition: Partition) -> Partition | None:
    """In a thread; returns the partition if that failed.

    A log whose disk failed is not flushed again: a second fsync may lie.
    """
    try:
        partition.log.close(clean=not partition.offline)
    except OSError as problem:
        logger.error("Closing the log of %s failed; the next start checks it: %s", partition.name, problem)
        return partition
    return None
