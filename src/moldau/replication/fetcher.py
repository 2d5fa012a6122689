"""Fetcher: copies partitions from one leader with repeated fetches, and appends the records.

One connection and one task; a fetch session keeps requests short. A partition whose fetch failed is left out for a
backoff that grows with each failure. Usually a new image solves it.
"""

import asyncio
import logging
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import Epoch
from moldau.log.follower_append import CorruptFetchError
from moldau.log.segment import CorruptLogError
from moldau.net.peer import PeerLost, PeerResponse
from moldau.net.tasks import cancel
from moldau.replication.delayed_fetch import PartitionKey
from moldau.replication.follower import Follower
from moldau.replication.partition import Partition
from moldau.replication.throttle import UNLIMITED, ReplicationThrottle, named
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

TURN_BYTES = 1024 * 1024  # appended before the event loop serves others
LEAST_BACKOFF_S = 0.02
DISK_S = 3600.0  # at most, while a flush is awaited, whose end wakes the fetcher
THROTTLED_S = 0.1  # a partition is left out for so long when the throttle is exceeded
NEW_SESSION = (0, 0)
UNSAID = -1
LAST_EPOCH = 2**31 - 1
EXPECTED = frozenset(
    {  # while a leader changes, and only one of the two brokers knows it yet
        WireError.NOT_LEADER_OR_FOLLOWER,
        WireError.FENCED_LEADER_EPOCH,
        WireError.UNKNOWN_LEADER_EPOCH,
        WireError.UNKNOWN_TOPIC_ID,
        WireError.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class LeaderConnection(Protocol):
    """The connection to the leader: `net.peer.Peer` is one."""

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
    told: dict[PartitionKey, Wanted]  # the partitions that were fetched


Waiting = asyncio.Future[Received]


class Bounds(NamedTuple):
    """Where a leader's log starts and ends."""

    start: int
    end: int


class FetcherOwner(Protocol):
    throttle: ReplicationThrottle

    def replica(self) -> tuple[int, Epoch]:
        """This broker's id and epoch."""

    def fetch_settings(self) -> FetchSettings: ...

    def now(self) -> int: ...

    def delete_later(self, paths: list[Path], delay_ms: int) -> None: ...

    async def bounds(self, leader: "LeaderConnection", partitions: list[Partition]) -> dict[Partition, Bounds]:
        """Where the leader's logs of these partitions start and end."""

    async def checkpoint(self) -> bool:
        """Write recovery points to disk; whether that succeeded."""


class Fetcher:
    def __init__(self, leader: int, link: LeaderConnection, owner: FetcherOwner) -> None:
        self.leader = leader
        self._link = link
        self._owner = owner
        self._partitions: dict[PartitionKey, Partition] = {}
        self._resting: dict[PartitionKey, float] = {}  # partitions that are left out, with the end of their backoff
        self._failures: dict[PartitionKey, int] = {}
        self._dirty: set[PartitionKey] = set()  # partitions to name in the next request
        self._told: dict[PartitionKey, Wanted] = {}  # partitions as the fetch session has them
        self._left_out: set[PartitionKey] = set()  # partitions that the session may have to forget
        self._session = NEW_SESSION
        self._misses = 0  # requests in a row without a response
        self._retreated = False  # a log was truncated below its recovery point, and the checkpoint does not say so yet
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher of broker {leader}")

    @property
    def idle(self) -> bool:
        return not self._partitions

    def add(self, partition: Partition) -> None:
        """Copy a partition, or continue with another leader epoch."""
        key = _key_of(partition)
        self._partitions[key] = partition
        self._resting.pop(key, None)
        self._failures.pop(key, None)
        self._say_again(key)
        self._fetch_soon(key)
        self._wake.set()

    def _fetch_soon(self, key: PartitionKey) -> None:
        """Name the partition in the next request; if its records have to be flushed first, after that.

        With flush.messages the fetch offset tells the leader that all records before it are on disk here.
        """
        partition = self._partitions[key]
        log = partition.log
        if log.end_offset - log.recovery_point < log.config.flush_messages:
            self._dirty.add(key)
            return
        self._leave_out(key, DISK_S)
        partition.flusher.when_durable(log.end_offset, lambda refusal: self._flush_ended(key, partition, refusal))

    def _flush_ended(self, key: PartitionKey, partition: Partition, refusal: Refusal | None) -> None:
        if refusal is not None:
            self._pause(key, partition, refusal.error)  # `_fetch_soon` flushes again afterwards
        elif key in self._resting:
            self._resting[key] = 0
        self._wake.set()

    def _say_again(self, key: PartitionKey) -> None:
        """Name the partition in the next request, even if nothing changed."""
        told = self._told.get(key)
        if told is not None:
            self._told[key] = told._replace(offset=UNSAID)

    def remove(self, partition: Partition) -> None:
        key = _key_of(partition)
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            self._resting.pop(key, None)
            self._failures.pop(key, None)
            self._dirty.discard(key)
            self._left_out.add(key)

    async def stop(self) -> None:
        await cancel(self._task)

    # ── the loop ──

    async def _run(self) -> None:
        while True:
            try:
                if not await self._something_to_ask():
                    continue
                await self._round()
                self._misses = 0
            except PeerLost as lost:
                logger.info("Fetching from broker %d failed and is retried: %s", self.leader, lost.reason)
                await self._rest()
            except MalformedMessage as problem:
                logger.error("Broker %d sent a malformed Fetch response; reconnecting: %s", self.leader, problem)
                self._link.disconnect("a fetch response was malformed")
                await self._rest()
            except Exception:
                logger.exception("Fetching from broker %d failed and is retried", self.leader)
                await self._rest()

    async def _rest(self) -> None:
        self._forget_session()
        pause = min(LEAST_BACKOFF_S * 2**self._misses, self._owner.fetch_settings().backoff_ms / 1000)
        self._misses = min(self._misses + 1, 10)
        await asyncio.sleep(pause)

    def _forget_session(self) -> None:
        self._session = NEW_SESSION
        self._told = {}
        self._dirty.update(key for key in self._partitions if key not in self._resting)

    async def _something_to_ask(self) -> bool:
        """Whether there is a partition to fetch; waits for one otherwise."""
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
        """Fetch partitions again whose backoff is over. Returns the event loop's time."""
        now = asyncio.get_running_loop().time()
        for key in [key for key, until in self._resting.items() if until <= now]:
            del self._resting[key]
            self._fetch_soon(key)
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
        """While a request waits at the leader, a partition may be added, or its backoff may end. Then the next request
        is sent at once, and the leader answers the one before it.
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
        self._told = dict(self._told)  # the first response belongs to the first request
        return [self._send()]

    def _send(self) -> Waiting:
        settings = self._owner.fetch_settings()
        body = self._request(settings)
        self._wake.clear()
        session_id, epoch = self._session
        if session_id:
            self._session = (session_id, epoch + 1 if epoch < LAST_EPOCH else 1)
        timeout_ms = settings.limits.wait_ms + settings.timeout_ms
        return asyncio.ensure_future(self._ask(body, timeout_ms, self._told))

    async def _ask(self, body: bytes, timeout_ms: int, told: dict[PartitionKey, Wanted]) -> Received:
        answer = await self._link.ask_raw(FETCH, VERSION, body, timeout_ms)
        return Received(read_fetch_response(answer.frame, answer.at), answer.frame, told)

    def _request(self, settings: FetchSettings) -> bytes:
        topics: dict[bytes, list[Wanted]] = {}
        throttle = self._owner.throttle
        for key in self._dirty:
            partition = self._partitions[key]
            if throttle.rate != UNLIMITED and self._throttled(partition) and throttle.exceeded(self._owner.now()):
                self._resting[key] = asyncio.get_running_loop().time() + THROTTLED_S
                self._left_out.add(key)
            if key in self._resting:
                continue
            log = partition.log
            wanted = Wanted(
                key[1],
                partition.leader_epoch,
                log.end_offset,
                log.epochs.latest,
                log.start_offset,
                settings.partition_bytes,
            )
            if self._told.get(key) == wanted:
                continue
            self._told[key] = wanted
            topics.setdefault(key[0], []).append(wanted)
        self._dirty.clear()
        forgotten: dict[bytes, list[int]] = {}
        for key in self._left_out:
            left_out = key not in self._partitions or key in self._resting
            if left_out and self._told.pop(key, None) is not None and self._session != NEW_SESSION:
                forgotten.setdefault(key[0], []).append(key[1])
        self._left_out.clear()
        replica = self._owner.replica()
        return pack_fetch_request(
            replica, settings.limits, self._session, list(topics.items()), list(forgotten.items())
        )

    def _throttled(self, partition: Partition) -> bool:
        """Whether a partition is throttled (KIP-73). In-sync replicas are not: they must stay so."""
        here = self._owner.replica()[0]
        in_sync = partition.state is not None and here in partition.state.isr
        return not in_sync and named(
            partition.log.config.follower_replication_throttled_replicas, partition.index, here
        )

    # ── responses ──

    async def _take(self, fetched: FetchedAll, frame: memoryview, asked: dict[PartitionKey, Wanted]) -> None:
        if fetched.error or not fetched.session_id:  # without a session each request names all partitions
            self._forget_session()
        elif self._session == NEW_SESSION:
            self._session = (fetched.session_id, 1)
        appended = 0
        lost: list[Partition] = []
        for topic_id, rows in fetched.topics:
            for row in rows:
                key = (topic_id, row.partition)
                if row.diverging is not None and key in self._partitions:
                    await self._partitions[key].quiesce()
                partition = self._partitions.get(key)
                told = asked.get(key)
                if partition is None or told is None or told.leader_epoch != partition.leader_epoch:
                    continue  # not followed any more, or under another leader epoch
                if row.error == WireError.OFFSET_OUT_OF_RANGE:
                    lost.append(partition)
                else:
                    self._take_one(key, partition, told, row, frame)
                appended += row.stop - row.start
                if appended >= TURN_BYTES:
                    appended = 0
                    await asyncio.sleep(0)
        if lost:
            await self._find_again(lost)
        if self._retreated:  # before the next append: after a power cut, recovery would trust it unread
            self._retreated = not await self._owner.checkpoint()

    def _take_one(self, key: PartitionKey, partition: Partition, told: Wanted, row: Fetched, frame: memoryview) -> None:
        role = partition.role
        if row.error:
            self._pause(key, partition, row.error)
            return
        if not isinstance(role, Follower) or partition.offline or told.offset != partition.log.end_offset:
            self._dirty.add(key)
            return
        if partition.standing.moving:
            self._pause(key, partition, WireError.NONE)
            return
        now = self._owner.now()
        try:
            if row.diverging is not None:
                safe = partition.log.recovery_point
                removed = role.truncate_to_divergence(*row.diverging, now)
                self._retreated |= partition.log.recovery_point < safe
            else:
                removed = role.append(frame[row.start : row.stop], row.high_watermark, row.log_start, now)
                if self._owner.throttle.rate != UNLIMITED and self._throttled(partition):
                    self._owner.throttle.record(row.stop - row.start, now)
            self._failures.pop(key, None)
            self._fetch_soon(key)
            if told.offset == partition.log.end_offset and (row.diverging is not None or row.stop > row.start):
                self._pause(key, partition, WireError.NONE)  # no progress: not again at once
            if removed:
                self._owner.delete_later(removed, partition.log.config.file_delete_delay_ms)
        except CorruptFetchError as problem:
            logger.error("Broker %d sent corrupt records of %s; retrying: %s", self.leader, partition.name, problem)
            self._pause(key, partition, WireError.CORRUPT_MESSAGE)
        except (OSError, CorruptLogError) as problem:
            self._append_failed(key, partition, problem)

    def _append_failed(self, key: PartitionKey, partition: Partition, problem: OSError | CorruptLogError) -> None:
        """The records could not be written, or this log is corrupt and has to be copied again."""
        if isinstance(problem, OSError):
            partition.write_failed(problem, "Appending to")
        else:
            logger.error("The log of %s is corrupt, and is copied again from its leader: %s", partition.name, problem)
            partition.cannot_read()
        self._pause(key, partition, WireError.KAFKA_STORAGE_ERROR)

    def _pause(self, key: PartitionKey, partition: Partition, error: int) -> None:
        if self._partitions.get(key) is not partition:
            return  # its disk failed just now
        failures = self._failures.get(key, 0)
        self._failures[key] = min(failures + 1, 10)
        if error and error not in EXPECTED and failures == 0:
            logger.warning(
                "Fetching %s from broker %d failed and is retried: %s",
                partition.name,
                self.leader,
                WireError(error).name,
            )
        self._leave_out(key, min(LEAST_BACKOFF_S * 2**failures, self._owner.fetch_settings().backoff_ms / 1000))

    def _leave_out(self, key: PartitionKey, pause_s: float) -> None:
        self._resting[key] = asyncio.get_running_loop().time() + pause_s
        self._left_out.add(key)
        self._say_again(key)

    async def _find_again(self, lost: list[Partition]) -> None:
        """Handle OFFSET_OUT_OF_RANGE: the leader's log lost its end, or retention moved its start."""
        epochs = {each: each.leader_epoch for each in lost}
        bounds = await self._owner.bounds(self._link, lost)
        now = self._owner.now()
        for partition in lost:
            await partition.quiesce()
            role, found = partition.role, bounds.get(partition)
            key = _key_of(partition)
            if self._partitions.get(key) is not partition or not isinstance(role, Follower):
                continue
            end = partition.log.end_offset
            outdated = partition.standing.moving or partition.leader_epoch != epochs[partition]
            if found is None or outdated or found.start <= end <= found.end:
                self._pause(key, partition, WireError.NONE)
                continue
            try:
                safe = partition.log.recovery_point
                removed = role.truncate(found.end, now) if found.end < end else role.restart(found.start, now)
                self._retreated |= partition.log.recovery_point < safe
                self._fetch_soon(key)
                self._owner.delete_later(removed, partition.log.config.file_delete_delay_ms)
            except (OSError, CorruptLogError) as problem:
                self._append_failed(key, partition, problem)


def _key_of(partition: Partition) -> PartitionKey:
    return partition.log.topic_id.bytes, partition.index
