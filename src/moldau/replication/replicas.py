"""The partitions that this broker has, kept in step with the image: opens, deletes and configures their logs.

Handlers find a partition by the token that a request names its topic with. A partition that is still being opened is
`None` in its row, which clients are told as a retriable error. Disk work runs in threads, one change after the other,
so a topic that is deleted and created again cannot meet its own ghost; `settled` waits for it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from moldau.log import files
from moldau.log.directory import LogDirectory
from moldau.log.homes import homes, interrupted
from moldau.log.log import Log
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication.loading import open_all
from moldau.replication.moving import Hands, Move
from moldau.replication.opening import Key, Opener, Opening
from moldau.replication.partition import Partition
from moldau.replication.roles import alone
from moldau.replication.throttle import Throttle

logger = logging.getLogger("moldau.replication")

Row = list[Partition | None]
NO_TOPICS: Mapping[str, Topic] = {}


class Replicas:
    def __init__(
        self,
        node_id: int,
        directories: list[LogDirectory],
        configure: Callable[[Topic], LogConfig],
        now: Callable[[], int],
        producer_expiration_ms: int,
        topics: Mapping[str, Topic] = NO_TOPICS,
    ) -> None:
        """`topics` are those that are known when this begins, by name."""
        self.by_name: dict[bytes, Row] = {}
        self.by_id: dict[bytes, Row] = {}
        self.directories = directories
        self._node_id = node_id
        self._configure = configure
        self._now = now
        self._homes: dict[Partition, LogDirectory] = {}
        self._topics: dict[bytes, Topic] = {}  # by id, as of the newest image
        self._opener = Opener(node_id, self._topics, now, producer_expiration_ms)
        self.moves: dict[Partition, Move] = {}  # partitions on their way to another directory
        self._found = homes(directories, {name: topic.id for name, topic in topics.items()})
        self._interrupted = interrupted(directories)  # moves of the last run
        self._counts = Counter(self._found.values())  # partitions of each directory, those still to be opened too
        self._unopened: dict[Key, Opening] = {}  # partitions whose log cannot be opened
        self.offline: frozenset[Key] = frozenset()  # partitions that nobody can use: their disk failed
        self.on_last_failure: Callable[[str], None] | None = None  # told when no directory is left
        self.sending = Throttle()  # of what leaders here send to throttled followers
        self.around = alone(node_id, now)  # the cluster, once there is one
        self.on_role: Callable[[Partition], None] | None = None  # told of partitions whose leader is another
        self.on_damage: Callable[[Partition], None] | None = None  # of those whose log cannot be read
        self.on_doubt: Callable[[Partition, int], None] | None = None  # of those that may be damaged at an offset
        self.on_gone: Callable[[Partition], None] | None = None  # and of those that are no longer here
        self.on_offline: Callable[[], None] | None = None  # told when more are offline
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

    @property
    def unsound(self) -> frozenset[Key]:
        """Partitions of which this broker has nothing to offer: their logs cannot be opened, or were put aside."""
        return frozenset((each.topic, each.index) for each in self._homes if each.hollow).union(self._unopened)

    @property
    def put_off(self) -> Collection[Key]:
        """Partitions that are offline only until there is room on their disk."""
        return self._opener.put_off

    @property
    def last_producer_id(self) -> int:
        """The greatest that the logs know; -1 if they know none."""
        return max((each.producer_id for partition in self for each in partition.log.producers), default=-1)

    def unopened_of(self, directory: LogDirectory, offsets: dict[Key, int]) -> dict[Key, int]:
        """What is last known of the logs in a directory that could not be opened."""
        unopened = [key for key, opening in self._unopened.items() if opening.directory is directory]
        return {key: offsets[key] for key in unopened if key in offsets}

    # ── following the image ──

    def load(self, image: ClusterImage, threads: int, give_up: Callable[[], bool], *, trusted: bool = True) -> None:
        """Open every partition of ours, at start-up, before anything is served. Blocks, unless `give_up` turns true.

        `threads` for each directory. Not `trusted`: what was written last may be lost, by a power cut.
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
            logger.error("%d partitions are in none of the directories that work, and offline", away)

        def unless_given_up(opening: Opening) -> Partition | None:
            return None if give_up() else self._opener.open(opening)

        for opening, partition in open_all(openings, lambda each: each.directory.path, unless_given_up, threads):
            self._place(opening, partition)
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
        """Partitions of a topic to be opened, and those to be deleted; the others take their new part at once."""
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
                self._forget_unopened((topic.name, index))
                dropped += [partition] if partition is not None else []
            elif known is None or self._node_id not in known.replicas:
                openings.append(self._opening(topic, state, new=True))
            elif partition is not None:
                self._assign(partition, state)
        for partition in dropped:
            self._dismiss(partition)
        return openings, dropped

    def _assign(self, partition: Partition, state: PartitionState, high_watermark: int | None = None) -> None:
        partition.assign(state, self.around, high_watermark)
        if self.on_role is not None:
            self.on_role(partition)

    def _dismiss(self, partition: Partition) -> None:
        """It is no longer of this broker; its log goes in the background."""
        partition.dismiss()
        if self.on_gone is not None:
            self.on_gone(partition)

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
            self._forget_unopened((topic.name, index))
        dropped = [partition for partition in row if partition is not None]
        for partition in dropped:
            self._dismiss(partition)
        return dropped

    def _forget_unopened(self, key: Key) -> None:
        unopened = self._unopened.pop(key, None)
        self._opener.put_off.discard(key)
        if unopened is not None:
            unopened.directory.forget(key)
            self._take_stock()

    def _opening(self, topic: Topic, state: PartitionState, *, new: bool) -> Opening:
        """What was there before this start, and is not found, is where nobody can look: in a directory that failed.

        Made anew it would be empty, lead, and lack what was acknowledged; and there would be two when that disk works.
        """
        home = self._found.pop((topic.name, state.index), None)
        if home is None and not new:
            home = next((directory for directory in self.directories if directory.offline), None)
        if home is None:
            usable = [directory for directory in self.directories if not directory.offline] or self.directories
            open_ones = [directory for directory in usable if not directory.cordoned] or usable
            home = min(open_ones, key=lambda directory: self._counts[directory])  # with the fewest
            self._counts[home] += 1
        return Opening(topic, state, self._configure(topic), home, new)

    async def _carry_out(
        self, before: asyncio.Task[None] | None, dropped: list[Partition], openings: list[Opening]
    ) -> None:
        if before is not None:
            await asyncio.wait([before])  # if that failed it was logged, and what comes now is no less due
        await self._delete(dropped)
        # What was taken away and given back before it was open is open by now.
        openings = [each for each in openings if self.find(self.by_id, each.topic.id.bytes, each.state.index) is None]
        loop = asyncio.get_running_loop()
        partitions = await loop.run_in_executor(self._disk, lambda: [self._opener.open(each) for each in openings])
        ghosts: list[Partition] = []
        for opening, partition in zip(openings, partitions, strict=True):
            self._place(opening, partition)
            topic = self._topics.get(opening.topic.id.bytes)
            if partition is None:
                continue
            state = None if topic is None else topic.partitions[partition.index]
            if topic is None or state is None or self._node_id not in state.replicas:  # gone while it was being opened
                self._dismiss(partition)
                ghosts.append(partition)
            else:  # settings and leaders may have changed while it was being opened
                partition.log.configure(self._configure(topic))
                self._assign(partition, state)
        await self._delete(ghosts)

    def _place(self, opening: Opening, partition: Partition | None) -> None:
        if partition is None:
            self._unopened[opening.topic.name, opening.state.index] = opening
            self._take_stock()
            return
        self._homes[partition] = opening.directory
        partition.on_failure = lambda problem: self.fail(self._homes[partition], problem)
        partition.on_damage = lambda: self.on_damage(partition) if self.on_damage is not None else None
        partition.on_doubt = lambda offset: self.on_doubt(partition, offset) if self.on_doubt is not None else None
        key = (partition.topic, partition.index)
        lossy = not self._opener.trusted or partition.log.generation
        if lossy and not opening.new:  # the same epoch would write other records again
            partition.barred = opening.state.leader_epoch
        partition.assign(opening.state, self.around, opening.directory.high_watermarks.get(key, 0))
        if opening.directory.offline:
            partition.go_offline()
        self._take_stock()
        partition.log.on_roll = lambda _: partition.flusher.soon()  # a segment is finished: make it durable
        topic = self._topics.get(opening.topic.id.bytes)
        if topic is not None and self._node_id in topic.partitions[partition.index].replicas:
            self.by_id[opening.topic.id.bytes][partition.index] = partition

    async def _delete(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            await self._end_move(partition)
            await partition.stop()
            home = self._homes.pop(partition)
            self._counts[home] -= 1
            home.forget((partition.topic, partition.index))
            loop = asyncio.get_running_loop()
            try:
                condemned = await loop.run_in_executor(self._disk, partition.log.delete)
            except OSError as problem:
                logger.error("deleting %s-%d failed: %s", partition.topic, partition.index, problem)
                continue
            self.remove_later(condemned, partition.log.config.file_delete_delay_ms)
        if partitions:  # a later topic of this name must not find the old one's log start after a crash
            await self.checkpoint()

    def remove_later(self, paths: list[Path], delay_ms: int) -> None:
        """Remove files that left a log, once readers under way have had time to finish."""
        if not paths:
            return
        loop = asyncio.get_running_loop()

        def go() -> None:
            self._removals.discard(timer)
            loop.run_in_executor(self._disk, _remove, paths)

        timer = loop.call_later(delay_ms / 1000, go)
        self._removals.add(timer)

    async def retire(self) -> None:
        """Retention of every partition; others get their turn in between, since age is read from disk."""
        now = self._now()
        for partition in self:
            removed = partition.retire(now)
            if removed:
                self.remove_later(removed, partition.log.config.file_delete_delay_ms)
                logger.info("%s-%d begins at %d now", partition.topic, partition.index, partition.log.start_offset)
            await asyncio.sleep(0)

    # ── moving between directories ──

    async def move(self, partition: Partition, target: LogDirectory) -> None:
        """Begin to move a partition; one that is on its way elsewhere turns round.

        It is not compacted meanwhile, as in Kafka: a copy of a key's old value without the tombstone behind would undo
        that it was deleted.
        """
        while (under_way := self.moves.get(partition)) is not None or partition.cleaning is not None:
            if under_way is not None and under_way.target is target:
                return
            await self._end_move(partition)
            if partition.cleaning is not None:
                await partition.cleaning.stop()
        if self._homes.get(partition, target) is not target:
            hands = Hands(self._opener.open_copy, self._settle, self.fail, self._now)
            move = self.moves[partition] = Move(partition, target, hands)
            move.task.add_done_callback(lambda _: self.moves.pop(partition, None))

    async def resume_moves(self) -> None:
        """Begin again what the last run did not finish."""
        for (topic, index), target in self._interrupted.items():
            partition = self.get(topic, index)
            if partition is not None:
                await self.move(partition, target)

    async def _end_move(self, partition: Partition) -> None:
        move = self.moves.get(partition)
        if move is not None:
            await move.end()

    async def _settle(self, partition: Partition, target: LogDirectory, old: Log) -> None:
        """The partition is in another directory now: write that down, and let the old one go."""
        source = self._homes[partition]
        self._homes[partition] = target
        self._counts[source] -= 1
        self._counts[target] += 1
        source.forget((partition.topic, partition.index))
        if partition.cleaning is not None:  # of the log that is about to go
            await partition.cleaning.stop()
        delay_ms = partition.log.config.file_delete_delay_ms
        self.remove_later(partition.log.advance_start(old.start_offset), delay_ms)
        await self.checkpoint()
        loop = asyncio.get_running_loop()
        try:
            self.remove_later(await loop.run_in_executor(self._disk, old.delete), delay_ms)
            await loop.run_in_executor(self._disk, files.sync_directory, source.path)
        except OSError as problem:
            logger.error("removing %s failed: %s", old.directory, problem)

    # ── failing disks ──

    def fail(self, directory: LogDirectory, problem: OSError) -> None:
        """The disk failed: all partitions in the directory go offline until the next start. The others go on."""
        if directory.offline:
            return
        directory.offline = True
        partitions = self.in_directory(directory)
        logger.error(
            "the directory %s is offline, and its %d partitions with it, until the broker is started again: %s",
            directory.path,
            len(partitions),
            problem,
        )
        for partition in partitions:
            partition.go_offline()
            if self.on_role is not None:
                self.on_role(partition)
        for move in self.moves.values():
            if move.target is directory:
                move.give_up()
        self._take_stock()
        if self.on_last_failure is not None and all(each.offline for each in self.directories):
            self.on_last_failure(f"no log directory is left; the last to fail was {directory.path}: {problem}")

    def _take_stock(self) -> None:
        failed = frozenset((each.topic, each.index) for each in self._homes if each.offline)
        before, self.offline = self.offline, failed.union(self._unopened)
        if self.on_offline is not None and self.offline - before:
            self.on_offline()

    def reopen(self) -> None:
        """Try again to open partitions whose disk was full."""
        openings = [
            self._unopened.pop(key)._replace(new=False) for key in self._opener.put_off if key in self._unopened
        ]
        self._opener.put_off.clear()
        if openings:
            self._last = asyncio.get_running_loop().create_task(self._carry_out(self._last, [], openings))

    # ── durability ──

    def flush_due(self) -> None:
        """flush.ms of every partition."""
        now = self._now()
        for partition in self:
            partition.flush_if_due(now)

    async def checkpoint(self, *, reserve: bool = True) -> bool:
        """Write the checkpoints of every directory, one after the other; whether all of them were written.

        With `reserve` a full disk takes them too, for as long as its reserve lasts.
        """
        loop = asyncio.get_running_loop()
        written = True
        for directory in self.directories:
            if directory.offline:
                continue
            try:
                write = partial(directory.write_checkpoints, *self._checkpoints(directory), reserve=reserve)
                await loop.run_in_executor(self._disk, write)
            except OSError as problem:
                logger.error("Cannot write the checkpoints of %s: %s", directory.path, problem)
                written = False
                if not files.passing(problem):
                    self.fail(directory, problem)
        return written

    def _checkpoints(self, directory: LogDirectory) -> tuple[dict[Key, int], dict[Key, int], dict[Key, int]]:
        """Recovery points, high watermarks and log starts; of logs that could not be opened those last known."""
        partitions = {(each.topic, each.index): each for each in self.in_directory(directory)}
        logs = {key: each.log for key, each in partitions.items()}
        last_known = (directory.recovery_points, directory.high_watermarks, directory.log_starts)
        recovery_points, high_watermarks, log_starts = (self.unopened_of(directory, each) for each in last_known)
        return (
            recovery_points | {key: log.checkpoint for key, log in logs.items()},
            high_watermarks | {key: each.high_watermark for key, each in partitions.items()},
            log_starts | {key: log.start_offset for key, log in logs.items() if log.start_offset},
        )

    def expire_producers(self) -> None:
        now = self._now()
        for partition in self:
            partition.log.producers.expire(now)

    async def stop(self) -> None:
        """Close every log in order; afterwards the directories are marked as cleanly shut down."""
        await self.settled()
        for partition in list(self.moves):
            await self._end_move(partition)
        for timer in self._removals:
            timer.cancel()
        for partition in self:
            await partition.stop()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(8, "moldau-close") as pool:  # closing waits for fsync: the disk takes several at once
            await asyncio.gather(*(loop.run_in_executor(pool, _close, partition) for partition in self))
        written = await self.checkpoint()
        self._disk.shutdown()
        for directory in self.directories:
            try:
                directory.close(clean=written and self._trusted(directory))
            except OSError as problem:
                logger.error("%s is not marked as cleanly closed: %s", directory.path, problem)

    def _trusted(self, directory: LogDirectory) -> bool:
        """Whether every log in it was opened, and closed as it should be: the next start then checks none of them."""
        offline = directory.offline or any(each.offline for each in self.in_directory(directory))
        return not offline and all(opening.directory is not directory for opening in self._unopened.values())


def _close(partition: Partition) -> None:
    """In a thread. A log whose disk failed is not flushed again: a second fsync may lie."""
    try:
        partition.log.close(clean=not partition.offline)
    except OSError as problem:
        logger.error("closing %s-%d failed: %s", partition.topic, partition.index, problem)
        partition.offline = True


def _remove(paths: list[Path]) -> None:
    """In a thread. What cannot be removed now is found again at the next start."""
    try:
        files.remove(paths)
    except OSError as problem:
        logger.warning("removing files of a deleted log failed: %s", problem)
