"""RegistryNode: one registry of a cluster. Follows the topic; writes if elected: decide, append, apply, reply.

The state changes only when records come back from the topic, here as in every other registry. So a decision waits until
the records of the one before are applied, and an answer until those of its own are.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heappop, heappush
from itertools import count
from typing import Final

from moldau.client.admin.security import read_security
from moldau.client.admin.target import Target
from moldau.services.registry.core.decision import Decision
from moldau.services.registry.core.errors import Code, RegistryError
from moldau.services.registry.core.parsing import SchemaParser
from moldau.services.registry.core.records import NoopKey, Record
from moldau.services.registry.core.state import RegistryState
from moldau.services.registry.election import Identity, Member, Timing
from moldau.services.registry.topic import TOPIC, Batch, TopicReader, TopicWriter, WriterLost

logger = logging.getLogger("moldau.services.registry")

GROUP: Final = "schema-registry"
APPLIED_S: Final = 30.0  # for records to come back from the topic
ELECTION_S: Final = 20.0  # for a request that comes while a writer is being elected
READY_S: Final = 15.0  # for a request that comes while the topic is read for the first time
WAITING_WRITES: Final = 1_000
STOP_S: Final = 3.0

Decide = Callable[[RegistryState, SchemaParser], Decision]


class NotWritten(Exception):
    """This registry could not write a change; after a new election it can be tried again, unless it is `uncertain`."""

    def __init__(self, reason: str, *, uncertain: bool) -> None:
        super().__init__(reason)
        self.uncertain = uncertain


class Role(Enum):
    UNKNOWN = auto()  # no writer is elected, or this one is not ready to write
    WRITER = auto()
    FOLLOWER = auto()


@dataclass(frozen=True, slots=True)
class NodeSettings:
    target: Target
    topic: str = TOPIC
    group: str = GROUP
    eligible: bool = True
    timing: Timing = Timing()  # noqa: RUF009  # an immutable value


class RegistryNode:
    def __init__(self, settings: NodeSettings) -> None:
        self.state = RegistryState()
        self.parser = SchemaParser()
        self.role = Role.UNKNOWN
        self.leader_url = ""
        self._settings = settings
        self._position = 0
        self._read_once = asyncio.Event()
        self._reached: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._role_changed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._changes: set[asyncio.Task[tuple[Decision, int]]] = set()
        self._writer: TopicWriter | None = None
        self._member: Member | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moldau-registry-writer")
        self._reader = TopicReader(settings.target, settings.topic, self._take)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._elections = 0
        self.cluster_id = ""

    # ── life ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, identity: Identity) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader.start()
        target = self._settings.target
        self._member = Member(
            target.bootstrap,
            read_security(target.properties),
            self._settings.group,
            identity,
            self._elected,
            timing=self._settings.timing,
        )

    async def stop(self) -> None:
        loop = asyncio.get_running_loop()
        for task in self._tasks:
            task.cancel()
        self._loop = None  # threads that come with news now find nobody
        if self._member is not None:
            await loop.run_in_executor(None, self._member.stop, STOP_S)
        await loop.run_in_executor(None, self._reader.stop, STOP_S)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def not_ready(self) -> str | None:
        """Why this registry cannot answer reads; None if it can."""
        if self._read_once.is_set() and not self._reader.ended:
            return None
        return self._reader.problem or f"reading topic {self._settings.topic}, at offset {self._position}"

    async def await_ready(self) -> None:
        """Wait until the topic has been read once: a request that comes right after the start is not refused."""
        try:
            await asyncio.wait_for(self._read_once.wait(), READY_S)
            problem = self.not_ready()
        except TimeoutError:
            problem = self.not_ready()
        if problem is not None:
            message = f"The schema registry is not ready: {problem}. Try again."
            raise RegistryError(Code.STORE_ERROR, message)

    # ── the topic's records ─────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, batch: Batch) -> None:
        """From the reader's thread: hand a batch to the loop and wait until it is applied."""
        loop = self._loop
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._apply(batch), loop).result()

    async def _apply(self, batch: Batch) -> None:
        if batch.restarted:
            self.state, self._position = RegistryState(), 0
        for record in batch.records:
            self.state.apply(record)
        self._position = batch.position
        while self._reached and self._reached[0][0] <= batch.position:
            _, _, waiting = heappop(self._reached)
            if not waiting.done():
                waiting.set_result(None)
        if batch.at_end and not self._read_once.is_set():
            self._read_once.set()
            self.cluster_id = self._reader.cluster_id
            logger.info("The schema registry has read topic %s up to offset %d", self._settings.topic, batch.position)
            if self._member is not None:
                self._member.start()

    async def reach(self, position: int) -> None:
        """Wait until everything before this offset is applied."""
        if self._position >= position:
            return
        waiting = asyncio.get_running_loop().create_future()
        heappush(self._reached, (position, next(self._order), waiting))
        try:
            await asyncio.wait_for(waiting, APPLIED_S)
        except TimeoutError:
            message = (
                f"Topic {self._settings.topic} was not read up to offset {position} in time. Look, then try again."
            )
            raise RegistryError(Code.OPERATION_TIMED_OUT, message) from None

    async def catch_up(self) -> None:
        """Wait until everything that the topic has now is applied."""
        end = await asyncio.get_running_loop().run_in_executor(None, self._reader.end_offset, APPLIED_S)
        await self.reach(end)

    # ── the role ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _elected(self, leader: Identity | None, own: bool) -> None:
        """From the member's thread, after each rebalance."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._take_role, leader, own)

    def _take_role(self, leader: Identity | None, own: bool) -> None:
        self._elections += 1
        if own and self.role is Role.WRITER:
            return
        self.role = Role.UNKNOWN
        self.leader_url = leader.url if leader is not None else ""
        if own:
            task = asyncio.create_task(self._become_writer(self._elections))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif leader is not None:
            self._drop_writer()
            self._set_role(Role.FOLLOWER)
            logger.info("The schema registry at %s writes; this one forwards to it", leader.url)

    async def _become_writer(self, election: int) -> None:
        """Take over the transactional id, then read all that was written before deciding anything."""
        loop = asyncio.get_running_loop()
        async with self._writing:
            self._drop_writer()
            try:
                writer = await loop.run_in_executor(
                    self._thread, TopicWriter, self._settings.target, self._settings.topic
                )
                offset = await loop.run_in_executor(self._thread, writer.append, [Record(NoopKey(), None)])
                await self.reach(offset + 1)
            except (WriterLost, RegistryError) as problem:
                logger.warning("The schema registry was elected but cannot write: %s; trying again", problem)
                self._lose()
                return
            self._writer = writer
            if election == self._elections:
                self._set_role(Role.WRITER)
                logger.info("This schema registry writes to topic %s", self._settings.topic)

    def _set_role(self, role: Role) -> None:
        self.role = role
        if role is not Role.UNKNOWN:
            self._role_changed.set()
            self._role_changed = asyncio.Event()

    def _drop_writer(self) -> None:
        """Write no more. A write that is under way may end: whether it counts is the new writer's and the topic's."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._thread.submit(writer.close)

    def _lose(self) -> None:
        self._drop_writer()
        self.role = Role.UNKNOWN
        self.leader_url = ""
        if self._member is not None:
            self._member.rejoin()

    async def await_election(self, seconds: float) -> None:
        """Wait until somebody is elected, at most so long: the writer could not be reached or does not write yet."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._role_changed.wait(), seconds)

    async def await_role(self) -> Role:
        """The role, waiting while a writer is being elected."""
        try:
            async with asyncio.timeout(ELECTION_S):
                while self.role is Role.UNKNOWN:
                    await self._role_changed.wait()
        except TimeoutError:
            reason = (self._member.problem if self._member is not None else "") or "none is eligible, or they just join"
            message = f"No schema registry is elected to write: {reason}. Try again."
            raise RegistryError(Code.UNKNOWN_LEADER, message) from None
        return self.role

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def write(self, decide: Decide) -> tuple[Decision, int]:
        """Decide, append, apply; returns the decision to reply with, and the position that has it."""
        if len(self._changes) >= WAITING_WRITES:
            message = f"More than {WAITING_WRITES} changes wait. Try again."
            raise RegistryError(Code.OPERATION_TIMED_OUT, message)
        # A task of its own: a client that leaves must not end a change half-way, before its records are applied.
        writing = asyncio.create_task(self._write(decide))
        self._changes.add(writing)
        writing.add_done_callback(self._written)
        return await asyncio.shield(writing)

    def _written(self, writing: "asyncio.Task[tuple[Decision, int]]") -> None:
        self._changes.discard(writing)
        if not writing.cancelled():
            writing.exception()  # the client may have left, and then nobody else looks

    async def _write(self, decide: Decide) -> tuple[Decision, int]:
        async with self._writing:
            writer = self._writer
            if writer is None or self.role is not Role.WRITER:
                raise NotWritten("another schema registry was elected to write", uncertain=False)
            decision = decide(self.state, self.parser)
            if decision.records:
                return decision, await self._append(writer, decision.records)
            return decision, self._position

    async def _append(self, writer: TopicWriter, records: Sequence[Record]) -> int:
        """Write records and wait until they are applied; if that fails, somebody must be elected again."""
        try:
            loop = asyncio.get_running_loop()
            offset = await loop.run_in_executor(self._thread, writer.append, records)
        except WriterLost as lost:
            logger.warning("This schema registry cannot write any more: %s", lost)
            self._lose()
            raise NotWritten(str(lost), uncertain=lost.uncertain) from lost
        try:
            await self.reach(offset + 1)
        except RegistryError:
            self._lose()  # the next decision would not know of this one
            raise
        return offset + 1
