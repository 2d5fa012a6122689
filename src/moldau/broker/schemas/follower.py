"""SchemasFollower: reads `_schemas`, wherever its partition's leader is, and keeps what it says. Writes nothing.

It starts when a topic first needs a subject, and follows from then on. No registry is asked: while all of them are
down, or the topic's leader is, what is known goes on to count.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from moldau.base.errors import WireError
from moldau.base.ids import Offset
from moldau.broker.peers import Peers
from moldau.broker.schemas.subjects import Removed, Subjects, Version, read
from moldau.log.log import Log
from moldau.log.segment import CorruptLogError
from moldau.metadata.image import NO_BROKER, ClusterImage, PartitionState
from moldau.net.peer import PeerLost
from moldau.net.tasks import cancel
from moldau.replication.replicas import Replicas
from moldau.wire.batch import CONTROL, HEADER_SIZE, read_header
from moldau.wire.compression import CorruptRecords
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.wire.records import iter_records

logger: Final = logging.getLogger("moldau.broker")

PARTITION: Final = 0
PURPOSE: Final = "schemas"
END_PURPOSE: Final = "schemas-end"  # a connection of its own: it does not wait for a fetch
FETCH_VERSION: Final = 12  # the last that names topics
LIST_OFFSETS_VERSION: Final = 7
LATEST: Final = -1
EARLIEST: Final = -2
FETCH_BYTES: Final = 1024 * 1024
FETCH_WAIT_MS: Final = 500
LOOK_S: Final = 0.2  # between two looks at a log of this broker
RETRY_S: Final = 0.5
MAX_BATCH_BYTES: Final = 64 * 1024 * 1024  # of one decompressed batch

Change = Version | Removed


class CannotRead(Exception):
    """The topic cannot be read just now."""


class Read(NamedTuple):
    changes: list[Change]
    next_offset: Offset


class SchemasFollower:
    def __init__(
        self, topic: str, node_id: int, replicas: Replicas, peers: Peers, image: Callable[[], ClusterImage]
    ) -> None:
        self.subjects = Subjects()
        self._topic = topic
        self._node_id = node_id
        self._replicas = replicas
        self._peers = peers
        self._image = image
        self._topic_id: object = None  # of the topic that was read so far
        self._position = 0
        self._moved = asyncio.Condition()
        self._look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    async def catch_up(self, timeout_s: float) -> bool:
        """Read what the topic has now. False: that was not possible in time."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="follower of schemas")
        try:
            async with asyncio.timeout(timeout_s):
                state = self._state()
                if state is None:  # no registry has ever written a schema
                    return True
                topic_id, end = self._image().topics[self._topic].id, await self._end(state)
                self._look.set()
                async with self._moved:
                    await self._moved.wait_for(lambda: self._topic_id == topic_id and self._position >= end)
        except (TimeoutError, CannotRead, PeerLost):
            return False
        return True

    async def stop(self) -> None:
        await cancel(self._task)

    def _state(self) -> PartitionState | None:
        return self._image().partition(self._topic, PARTITION)

    async def _run(self) -> None:
        while True:
            try:
                pause_s = 0.0 if await self._round() else LOOK_S
                self._over()
            except (CannotRead, PeerLost, CorruptLogError, CorruptRecords, OSError) as problem:
                self._tell(problem)
                pause_s = RETRY_S
            except Exception as problem:  # the task has to live on
                logger.exception("Following the topic %s failed, and goes on", self._topic)
                self._tell(problem)
                pause_s = RETRY_S
            if pause_s:
                await self._pause(pause_s)

    async def _round(self) -> bool:
        """Read what there is next, or wait for it at the leader. False: there is nothing, and no time has passed."""
        state = self._state()
        if state is None:
            return False
        topic_id = self._image().topics[self._topic].id
        if topic_id != self._topic_id:  # new, or created again
            await self._start_over(topic_id, 0)
        if state.leader == self._node_id:
            return await self._read_own()
        if state.leader == NO_BROKER:
            raise CannotRead(f"{self._topic} has no leader")
        return await self._fetch(state.leader)

    async def _start_over(self, topic_id: object, offset: Offset) -> None:
        async with self._moved:
            generation = self.subjects.generation
            self.subjects = Subjects()
            self.subjects.generation = generation + 1  # what was made of the old ones is void
            self._topic_id, self._position = topic_id, offset

    async def _read_own(self) -> bool:
        partition = self._replicas.get(self._topic, PARTITION)
        if partition is None or not partition.leads:
            raise CannotRead(f"{self._topic} is not open yet")
        end, start = partition.high_watermark, max(self._position, partition.log.start_offset)
        if start >= end:
            if self._position > end:
                await self._start_over(self._topic_id, 0)
            await self._advance(Read([], max(self._position, partition.log.start_offset)))
            return False
        await self._advance(await asyncio.to_thread(_read_log, partition.log, start, end))
        return True

    async def _fetch(self, leader: int) -> bool:
        wanted = FetchPartition(partition=PARTITION, fetch_offset=self._position, partition_max_bytes=FETCH_BYTES)
        topic = FetchTopic(topic=self._topic, partitions=(wanted,))
        request = FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES, topics=(topic,))
        response = await self._peers.to(leader, PURPOSE).ask(request, FETCH_VERSION)
        data = response.responses[0].partitions[0]
        if data.error_code == WireError.OFFSET_OUT_OF_RANGE:  # records were deleted, or lost with a leader
            await self._start_over(self._topic_id, await self._offset(leader, EARLIEST))
            return True
        if data.error_code:
            raise CannotRead(f"broker {leader}: {WireError(data.error_code).name}")
        if data.records:
            await self._advance(await asyncio.to_thread(_read_fetched, data.records, self._position))
        return True

    async def _advance(self, found: Read) -> None:
        async with self._moved:
            for change in found.changes:
                self.subjects.apply(change)
            self._position = found.next_offset
            self._moved.notify_all()

    async def _end(self, state: PartitionState) -> Offset:
        """Where the committed records of the topic end now."""
        if state.leader == self._node_id:
            partition = self._replicas.get(self._topic, PARTITION)
            if partition is None or not partition.leads:
                raise CannotRead(f"{self._topic} is not open yet")
            return partition.high_watermark
        if state.leader == NO_BROKER:
            raise CannotRead(f"{self._topic} has no leader")
        return await self._offset(state.leader, LATEST)

    async def _offset(self, leader: int, timestamp: int) -> Offset:
        asked = ListOffsetsPartition(partition_index=PARTITION, timestamp=timestamp)
        topic = ListOffsetsTopic(name=self._topic, partitions=(asked,))
        request = ListOffsetsRequest(replica_id=-1, topics=(topic,))
        response = await self._peers.to(leader, END_PURPOSE).ask(request, LIST_OFFSETS_VERSION)
        found = response.topics[0].partitions[0]
        if found.error_code:
            raise CannotRead(f"broker {leader}: {WireError(found.error_code).name}")
        offset: Offset = found.offset
        return offset

    async def _pause(self, seconds: float) -> None:
        """Wait, or less if somebody wants to know what is new."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._look.wait()
        self._look.clear()

    def _tell(self, problem: Exception) -> None:
        if not self._failing:
            logger.warning(
                "The topic %s cannot be read; schemas that are known go on to count: %s", self._topic, problem
            )
        self._failing = True

    def _over(self) -> None:
        if self._failing:
            logger.info("The topic %s is read again", self._topic)
        self._failing = False


def _read_log(log: Log, start: Offset, end: Offset) -> Read:
    """The changes between two offsets, about as many as a fetch would bring. Runs in a thread."""
    changes: list[Change] = []
    size, following = 0, start
    for header, batch in log.read_batches(start):
        if header.base_offset >= end or size >= FETCH_BYTES:
            break
        changes += _changes_in(batch, start)
        size += header.size
        following = header.last_offset + 1
    return Read(changes, max(following, start))


def _read_fetched(records: bytes, start: Offset) -> Read:
    """The changes in fetched batches, of which the last may be cut off. Runs in a thread."""
    changes: list[Change] = []
    following = start
    view = memoryview(records)
    while len(view) >= HEADER_SIZE and len(view) >= (header := read_header(view)).size:
        changes += _changes_in(view[: header.size], start)
        following = header.last_offset + 1
        view = view[header.size :]
    return Read(changes, following)


def _changes_in(batch: bytes | memoryview, start: Offset) -> Iterator[Change]:
    if read_header(batch).attributes & CONTROL:
        return
    for record in iter_records(batch, limit=MAX_BATCH_BYTES):
        if record.offset >= start:
            change = read(record.key, record.value)
            if change is not None:
                yield change
