"""Copies partitions from one leading broker: asks it for all of them again and again, and appends what comes.

One connection and one task; a fetch session keeps the requests short. A partition whose fetch failed is left out for a
moment, which grows with each failure, and is tried again; the image changing is what usually helps.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from moldau.base.errors import WireError
from moldau.log.follower_append import CorruptFetchError
from moldau.log.segment import CorruptLogError
from moldau.net.peer import PeerLost, PeerResponse
from moldau.replication.follower import Follower
from moldau.replication.partition import Partition
from moldau.replication.throttle import UNLIMITED, Throttle, named
from moldau.wire.fetching import (
    FETCH,
    VERSION,
    Fetched,
    FetchedAll,
    FetchLimits,
    Wanted,
    pack_fetch_request,
    read_fetch_response,
)
from moldau.wire.primitives import MalformedMessage

logger = logging.getLogger("moldau.replication")

TURN_BYTES = 1024 * 1024  # appended before others on the loop get their turn
LEAST_BACKOFF_S = 0.02
DISK_S = 3600.0  # and for so long at most while its disk is waited for, which then says so
THROTTLED_S = 0.1  # a partition is left out for so long when its throttle has no room
NEW_SESSION = (0, 0)
UNSAID = -1
LAST_EPOCH = 2**31 - 1
EXPECTED = frozenset(
    {  # while leaders change, and one of the two brokers knows it and the other does not yet
        WireError.NOT_LEADER_OR_FOLLOWER,
        WireError.FENCED_LEADER_EPOCH,
        WireError.UNKNOWN_LEADER_EPOCH,
        WireError.UNKNOWN_TOPIC_ID,
        WireError.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

Place = tuple[bytes, int]  # topic id and index


class Link(Protocol):
    """What a fetcher needs of the connection to its leader: `net.peer.Peer` has it."""

    async def ask_raw(self, api_key: int, version: int, body: bytes, timeout_ms: int | None = None) -> PeerResponse: ...

    async def ask(self, message: object, version: int, timeout_ms: int | None = None) -> Any: ...

    def disconnect(self, reason: str) -> None: ...


class FetchSettings(NamedTuple):
    limits: FetchLimits
    partition_bytes: int  # replica.fetch.max.bytes
    backoff_ms: int
    timeout_ms: int


class Received(NamedTuple):
    fetched: FetchedAll
    frame: memoryview
    told: dict[Place, Wanted]  # what was asked


Waiting = asyncio.Future[Received]


class Bounds(NamedTuple):
    """Where a leader's log starts and ends."""

    start: int
    end: int


class Hands(NamedTuple):
    """What a fetcher needs of its keeper."""

    replica: Callable[[], tuple[int, int]]  # this broker's id and epoch
    settings: Callable[[], FetchSettings]
    now: Callable[[], int]
    remove_later: Callable[[list[Path], int], None]
    bounds: Callable[[Link, list[Partition]], Awaitable[dict[Partition, Bounds]]]
    throttle: Throttle
    checkpoint: Callable[[], Awaitable[bool]]  # writes recovery points down; whether that went well


class Fetcher:
    def __init__(self, leader: int, link: Link, hands: Hands) -> None:
        self.leader = leader
        self._link = link
        self._hands = hands
        self._partitions: dict[Place, Partition] = {}
        self._resting: dict[Place, float] = {}  # partitions that are left out, and until when in the loop's time
        self._failures: dict[Place, int] = {}
        self._dirty: set[Place] = set()  # what the leader's session does not know as it is
        self._told: dict[Place, Wanted] = {}  # what it knows
        self._left_out: set[Place] = set()  # what it may have to forget
        self._session = NEW_SESSION
        self._misses = 0  # requests in a row without an answer
        self._retreated = False  # a log was cut before its recovery point, and the checkpoint does not say so yet
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"copying from broker {leader}")

    @property
    def idle(self) -> bool:
        return not self._partitions

    def add(self, partition: Partition) -> None:
        """Copy a partition, or go on with it under another leader epoch."""
        place = _place(partition)
        self._partitions[place] = partition
        self._resting.pop(place, None)
        self._failures.pop(place, None)
        self._say_again(place)
        self._dirty.add(place)
        self._wake.set()

    def _say_again(self, place: Place) -> None:
        """What the leader was told, or answered, does not count: it has to hear the same again."""
        told = self._told.get(place)
        if told is not None:
            self._told[place] = told._replace(offset=UNSAID)

    def remove(self, partition: Partition) -> None:
        place = _place(partition)
        if self._partitions.get(place) is partition:
            del self._partitions[place]
            self._resting.pop(place, None)
            self._failures.pop(place, None)
            self._dirty.discard(place)
            self._left_out.add(place)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # ── the loop ──

    async def _run(self) -> None:
        while True:
            try:
                if not await self._something_to_ask():
                    continue
                await self._round()
                self._misses = 0
            except PeerLost as lost:
                logger.info("copying from broker %d: %s", self.leader, lost.reason)
                await self._rest()
            except MalformedMessage as problem:
                logger.error("broker %d answered a fetch with nonsense: %s", self.leader, problem)
                self._link.disconnect("a fetch response was malformed")
                await self._rest()
            except Exception:
                logger.exception("copying from broker %d failed", self.leader)
                await self._rest()

    async def _rest(self) -> None:
        self._forget_session()
        pause = min(LEAST_BACKOFF_S * 2**self._misses, self._hands.settings().backoff_ms / 1000)
        self._misses = min(self._misses + 1, 10)
        await asyncio.sleep(pause)

    def _forget_session(self) -> None:
        self._session = NEW_SESSION
        self._told = {}
        self._dirty.update(place for place in self._partitions if place not in self._resting)

    async def _something_to_ask(self) -> bool:
        """Whether there is a partition to ask for; waits for one otherwise."""
        now = self._end_rests()
        if len(self._partitions) > len(self._resting):
            return True
        self._wake.clear()
        pause = min(self._resting.values(), default=now + 60) - now
        try:
            await asyncio.wait_for(self._wake.wait(), pause)
        except TimeoutError:
            return False
        return False

    def _end_rests(self) -> float:
        """Partitions that were left out for long enough are asked for again. The loop's time, by which that goes."""
        now = asyncio.get_running_loop().time()
        for place in [place for place, until in self._resting.items() if until <= now]:
            del self._resting[place]
            self._dirty.add(place)
        return now

    async def _round(self) -> None:
        asked = [self._send()]
        try:
            while asked:
                asked += await self._interrupt(asked[0])
                await self._take(*await asked[0])
                del asked[0]
        finally:
            for each in asked:
                each.cancel()

    async def _interrupt(self, asked: Waiting) -> list[Waiting]:
        """A request waits at the leader for records. If a partition comes to be copied meanwhile, or was left out for
        long enough, the next one goes out at once, and the leader answers the one before it.
        """
        woken = asyncio.ensure_future(self._wake.wait())
        rested = min(self._resting.values()) - asyncio.get_running_loop().time() if self._resting else None
        try:
            await asyncio.wait((asked, woken), timeout=rested, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        if asked.done() or self._session == NEW_SESSION:
            return []
        self._end_rests()
        self._told = dict(self._told)  # the first answer is to what was asked with it
        return [self._send()]

    def _send(self) -> Waiting:
        settings = self._hands.settings()
        body = self._request(settings)
        self._wake.clear()
        session_id, epoch = self._session
        if session_id:
            self._session = (session_id, epoch + 1 if epoch < LAST_EPOCH else 1)
        timeout_ms = settings.limits.wait_ms + settings.timeout_ms
        return asyncio.ensure_future(self._ask(body, timeout_ms, self._told))

    async def _ask(self, body: bytes, timeout_ms: int, told: dict[Place, Wanted]) -> Received:
        answer = await self._link.ask_raw(FETCH, VERSION, body, timeout_ms)
        return Received(read_fetch_response(answer.frame, answer.at), answer.frame, told)

    def _request(self, settings: FetchSettings) -> bytes:
        topics: dict[bytes, list[Wanted]] = {}
        throttle = self._hands.throttle
        for place in self._dirty:
            partition = self._partitions[place]
            if throttle.rate != UNLIMITED and self._throttled(partition) and throttle.exceeded(self._hands.now()):
                self._resting[place] = asyncio.get_running_loop().time() + THROTTLED_S
                self._left_out.add(place)
            if place in self._resting:
                continue
            log = partition.log
            wanted = Wanted(
                place[1],
                partition.leader_epoch,
                log.end_offset,
                log.epochs.latest,
                log.start_offset,
                settings.partition_bytes,
            )
            if self._told.get(place) == wanted:
                continue
            self._told[place] = wanted
            topics.setdefault(place[0], []).append(wanted)
        self._dirty.clear()
        forgotten: dict[bytes, list[int]] = {}
        for place in self._left_out:
            left_out = place not in self._partitions or place in self._resting
            if left_out and self._told.pop(place, None) is not None and self._session != NEW_SESSION:
                forgotten.setdefault(place[0], []).append(place[1])
        self._left_out.clear()
        replica = self._hands.replica()
        return pack_fetch_request(
            replica, settings.limits, self._session, list(topics.items()), list(forgotten.items())
        )

    def _throttled(self, partition: Partition) -> bool:
        """KIP-73: replicas in sync are not, they must stay so."""
        here = self._hands.replica()[0]
        in_sync = partition.state is not None and here in partition.state.isr
        return not in_sync and named(
            partition.log.config.follower_replication_throttled_replicas, partition.index, here
        )

    # ── answers ──

    async def _take(self, fetched: FetchedAll, frame: memoryview, asked: dict[Place, Wanted]) -> None:
        if fetched.error or not fetched.session_id:  # without a session each request says everything
            self._forget_session()
        elif self._session == NEW_SESSION:
            self._session = (fetched.session_id, 1)
        appended = 0
        lost: list[Partition] = []
        for topic_id, rows in fetched.topics:
            for row in rows:
                place = (topic_id, row.partition)
                if row.diverging is not None and place in self._partitions:
                    await self._partitions[place].left_alone()
                partition = self._partitions.get(place)
                told = asked.get(place)
                if partition is None or told is None or told.leader_epoch != partition.leader_epoch:
                    continue  # of a partition that is not followed any more, or not under this leader
                if row.error == WireError.OFFSET_OUT_OF_RANGE:
                    lost.append(partition)
                else:
                    self._take_one(place, partition, told, row, frame)
                appended += row.stop - row.start
                if appended >= TURN_BYTES:
                    appended = 0
                    await asyncio.sleep(0)
        if lost:
            await self._find_again(lost)
        if self._retreated:  # before anything is appended: after a power cut that would be trusted unread
            self._retreated = not await self._hands.checkpoint()

    def _take_one(self, place: Place, partition: Partition, told: Wanted, row: Fetched, frame: memoryview) -> None:
        role = partition.role
        if row.error:
            self._pause(place, partition, row.error)
            return
        if not isinstance(role, Follower) or partition.offline or told.offset != partition.log.end_offset:
            self._dirty.add(place)
            return
        if partition.standing.moving:
            self._pause(place, partition, WireError.NONE)
            return
        now = self._hands.now()
        try:
            if row.diverging is not None:
                safe = partition.log.recovery_point
                removed = role.part_ways(*row.diverging, now)
                self._retreated |= partition.log.recovery_point < safe
            else:
                removed = role.append(frame[row.start : row.stop], row.high_watermark, row.log_start, now)
                if self._hands.throttle.rate != UNLIMITED and self._throttled(partition):
                    self._hands.throttle.record(row.stop - row.start, now)
            self._failures.pop(place, None)
            if not self._waits_for_disk(place, partition):
                self._dirty.add(place)
            if told.offset == partition.log.end_offset and (row.diverging is not None or row.stop > row.start):
                self._pause(place, partition, WireError.NONE)  # nothing came of it: not again at once
            if removed:
                self._hands.remove_later(removed, partition.log.config.file_delete_delay_ms)
        except CorruptFetchError as problem:
            logger.error("what broker %d sent of %s-%d is broken: %s", self.leader, *_name(partition), problem)
            self._pause(place, partition, WireError.CORRUPT_MESSAGE)
        except (OSError, CorruptLogError) as problem:
            self._spoiled(place, partition, problem)

    def _spoiled(self, place: Place, partition: Partition, problem: OSError | CorruptLogError) -> None:
        """What came could not be written, or what is here not be read, which is to be copied anew."""
        if isinstance(problem, OSError):
            partition.write_failed(problem, "Appending to")
        else:
            logger.error("The log of %s is corrupt, and is copied again from its leader: %s", partition.name, problem)
            partition.cannot_read()
        self._pause(place, partition, WireError.KAFKA_STORAGE_ERROR)

    def _waits_for_disk(self, place: Place, partition: Partition) -> bool:
        """flush.messages: whoever asks for what comes next tells the leader that all before it is safe here."""
        log = partition.log
        if log.end_offset - log.recovery_point < log.config.flush_messages:
            return False
        self._leave_out(place, DISK_S)
        partition.flusher.when_durable(log.end_offset, lambda _: self._flushed(place))
        return True

    def _flushed(self, place: Place) -> None:
        if place in self._resting:
            self._resting[place] = 0
            self._wake.set()

    def _pause(self, place: Place, partition: Partition, error: int) -> None:
        if self._partitions.get(place) is not partition:
            return  # its disk failed just now, and it is not copied any more
        failures = self._failures.get(place, 0)
        self._failures[place] = min(failures + 1, 10)
        if error and error not in EXPECTED and failures == 0:
            logger.warning("copying %s-%d from broker %d: %s", *_name(partition), self.leader, WireError(error).name)
        self._leave_out(place, min(LEAST_BACKOFF_S * 2**failures, self._hands.settings().backoff_ms / 1000))

    def _leave_out(self, place: Place, pause_s: float) -> None:
        self._resting[place] = asyncio.get_running_loop().time() + pause_s
        self._left_out.add(place)
        self._say_again(place)

    async def _find_again(self, lost: list[Partition]) -> None:
        """Their next offset is not in the leader's log: it lost its end, or retention took its beginning."""
        epochs = {each: each.leader_epoch for each in lost}
        bounds = await self._hands.bounds(self._link, lost)
        now = self._hands.now()
        for partition in lost:
            await partition.left_alone()
            role, found = partition.role, bounds.get(partition)
            place = _place(partition)
            if self._partitions.get(place) is not partition or not isinstance(role, Follower):
                continue
            self._dirty.add(place)
            end = partition.log.end_offset
            outdated = partition.standing.moving or partition.leader_epoch != epochs[partition]
            if found is None or outdated or found.start <= end <= found.end:
                self._pause(place, partition, WireError.NONE)
                continue
            try:
                safe = partition.log.recovery_point
                removed = role.truncate(found.end, now) if found.end < end else role.restart(found.start, now)
                self._retreated |= partition.log.recovery_point < safe
                self._hands.remove_later(removed, partition.log.config.file_delete_delay_ms)
            except (OSError, CorruptLogError) as problem:
                self._spoiled(place, partition, problem)


def _place(partition: Partition) -> Place:
    return partition.log.topic_id.bytes, partition.index


def _name(partition: Partition) -> tuple[str, int]:
    return partition.topic, partition.index
