"""Duration of rebalances: group members with minimal cost on raw connections, for both group protocols.

Half of the members are there and stable, then the other half joins at once; the time runs until every member has its
share of one assignment that is complete, has nothing twice, and is of one generation (or epoch). Members answer a
change at once and else say that they live at a fixed pace. That pace, not the broker's, is part of the time: it is the
same for both brokers, and the broker's CPU is measured beside it. They read no records.
"""

import asyncio
import random
import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from benchmarks.peers import cpu_seconds
from moldau.wire.codec import decode, encode
from moldau.wire.declare import layout_of
from moldau.wire.headers import pack_request_header, read_response_header
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)
from moldau.wire.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
    read_assignment,
    write_assignment,
    write_subscription,
)
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from moldau.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse

PACE_S = 0.1  # heartbeat interval of a member without news
SETTLE_S = 3 * PACE_S  # lets the heartbeats of members drift apart, as in a running group
LIMIT_S = 60.0
SESSION_MS, REBALANCE_MS = 45_000, 300_000  # the Java consumer's
ASSIGNOR = "range"
NOT_YET = {14, 15, 16}  # the coordinator loads, is not there, or is elsewhere: the first group makes its topic
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 25, 27, 79

Answer = TypeVar("Answer")


class RefusedError(Exception):
    """The broker rejected a request of a member, which makes the figure worthless."""


class Link(asyncio.Protocol):
    """One connection with one request at a time, as a consumer has to its coordinator."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def to(cls, host: str, port: int) -> "Link":
        _, link = await asyncio.get_running_loop().create_connection(cls, host, port)
        return link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._pending += data
        size = int.from_bytes(self._pending[:4], "big") + 4
        if len(self._pending) >= max(size, 8) and self._answer is not None and not self._answer.done():
            self._answer.set_result(bytes(self._pending[4:size]))
            del self._pending[:size]

    def connection_lost(self, failure: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(failure or ConnectionError("the broker closed the connection"))

    async def ask(self, request: object, answer: type[Answer], version: int) -> Answer:
        assert self._transport is not None
        key = layout_of(type(request)).key
        body = pack_request_header(key, version, 1, "bench") + encode(request, version)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(len(body).to_bytes(4, "big") + body)
        view = await self._answer
        return decode(answer, version, view, read_response_header(key, version, view)[1])

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


@dataclass(slots=True)
class Group:
    """The assignments of all members; tells when the group is stable."""

    id: str
    topic: str
    topic_id: uuid.UUID
    partitions: int
    owned: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    expected: int = 0
    stable: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False

    def expect(self, members: int) -> None:
        self.expected = members
        self.stable.clear()

    def has(self, member: str, generation: int, partitions: tuple[int, ...]) -> None:
        self.owned[member] = generation, partitions
        if self._agreed():
            self.stable.set()

    def _agreed(self) -> bool:
        """One generation, and every partition has one owner."""
        if len(self.owned) != self.expected or len({generation for generation, _ in self.owned.values()}) != 1:
            return False
        given = [partition for _, partitions in self.owned.values() for partition in partitions]
        return len(given) == self.partitions == len(set(given))


class Member(Protocol):
    async def live(self) -> None:
        """Join, and send heartbeats until the end."""

    async def leave(self) -> None: ...


@dataclass(slots=True)
class ClassicMember:
    """Revokes everything in a rebalance and rejoins (eager, KIP-394); the leader assigns round robin."""

    group: Group
    link: Link
    id: str = ""
    generation: int = -1

    async def live(self) -> None:
        await self._join()
        await asyncio.sleep(random.random() * PACE_S)
        while not self.group.over:
            request = HeartbeatRequest(group_id=self.group.id, generation_id=self.generation, member_id=self.id)
            answer = await self.link.ask(request, HeartbeatResponse, 4)
            if answer.error_code == REBALANCE_IN_PROGRESS:
                await self._join()
            else:
                _check(answer.error_code, "Heartbeat")
            await asyncio.sleep(PACE_S)

    async def _join(self) -> None:
        subscription = write_subscription(ConsumerProtocolSubscription(topics=(self.group.topic,)))
        while True:
            request = JoinGroupRequest(
                group_id=self.group.id, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.id, protocol_type=PROTOCOL_TYPE,
                protocols=(JoinGroupProtocol(name=ASSIGNOR, metadata=subscription),),
            )  # fmt: skip
            joined = await self.link.ask(request, JoinGroupResponse, 9)
            self.id = joined.member_id or self.id
            if joined.error_code in (MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS):
                continue
            _check(joined.error_code, "JoinGroup")
            self.generation = joined.generation_id
            if await self._sync(joined):
                return

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        """Whether it got its share; if not, the next rebalance has begun."""
        leads = joined.leader == self.id
        request = SyncGroupRequest(
            group_id=self.group.id, generation_id=self.generation, member_id=self.id, protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR, assignments=self._assign(joined) if leads else (),
        )  # fmt: skip
        synced = await self.link.ask(request, SyncGroupResponse, 5)
        if synced.error_code == REBALANCE_IN_PROGRESS:
            return False
        _check(synced.error_code, "SyncGroup")
        topics = read_assignment(synced.assignment).assigned_partitions if synced.assignment else ()
        self.group.has(self.id, self.generation, tuple(index for topic in topics for index in topic.partitions))
        return True

    def _assign(self, joined: JoinGroupResponse) -> tuple[SyncGroupAssignment, ...]:
        members = [member.member_id for member in joined.members]
        return tuple(
            SyncGroupAssignment(member_id=member, assignment=self._share(number, len(members)))
            for number, member in enumerate(members)
        )

    def _share(self, number: int, members: int) -> bytes:
        partitions = tuple(range(number, self.group.partitions, members))
        share = ConsumerProtocolTopic(topic=self.group.topic, partitions=partitions)
        return write_assignment(ConsumerProtocolAssignment(assigned_partitions=(share,)))

    async def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group.id, members=(LeaveGroupMember(member_id=self.id),))
        _check((await self.link.ask(request, LeaveGroupResponse, 5)).error_code, "LeaveGroup")


@dataclass(slots=True)
class ConsumerMember:
    """Adopts and revokes partitions at once, and acknowledges at once (KIP-848)."""

    group: Group
    link: Link
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    owned: tuple[int, ...] = ()

    async def live(self) -> None:
        answer = await self._beat(
            rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=(self.group.topic,), topic_partitions=()
        )
        phase = random.random()
        while not self.group.over:
            if answer.assignment is not None:
                self.owned = tuple(index for topic in answer.assignment.topic_partitions for index in topic.partitions)
            self.group.has(self.id, self.epoch, self.owned)
            if answer.assignment is not None:
                share = ConsumerGroupTopicPartitions(topic_id=self.group.topic_id, partitions=self.owned)
                answer = await self._beat(topic_partitions=(share,) if self.owned else ())
            else:
                await asyncio.sleep(PACE_S * phase)
                phase = 1.0
                answer = await self._beat()

    async def _beat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.id, member_id=self.id, member_epoch=self.epoch, **changes
        )
        answer = await self.link.ask(request, ConsumerGroupHeartbeatResponse, 1)
        _check(answer.error_code, "ConsumerGroupHeartbeat")
        self.epoch = answer.member_epoch
        return answer

    async def leave(self) -> None:
        self.epoch = -1
        await self._beat()


PROTOCOLS: dict[str, Callable[[Group, Link], Member]] = {"classic": ClassicMember, "consumer": ConsumerMember}


def _check(error: int, what: str) -> None:
    if error:
        raise RefusedError(f"{what} was refused with error {error}")


def rebalance(job: dict[str, Any]) -> dict[str, float]:
    """A job of `worker`: `times` groups, one after the other; the median of their times and the mean of the CPU."""
    return asyncio.run(_rebalances(job))


async def _rebalances(job: dict[str, Any]) -> dict[str, float]:
    taken, used = [], 0.0
    for number in range(job["times"]):
        group = Group(f"{job['topic']}-{number}", job["topic"], uuid.UUID(job["topic_id"]), job["partitions"])
        await _when_coordinated(job, group.id)
        seconds, cpu_s = await _rebalance(job, group)
        taken.append(seconds)
        used += cpu_s
    return {
        "rebalance_ms": statistics.median(taken) * 1000,
        "most_ms": max(taken) * 1000,
        "cpu_ms": used / job["times"] * 1000,
    }


async def _rebalance(job: dict[str, Any], group: Group) -> tuple[float, float]:
    """Seconds, and the broker's CPU in them, from the first request of the newcomers to a stable group."""
    make, half, all_of_them = PROTOCOLS[job["protocol"]], job["members"] // 2, job["members"]
    links = [await Link.to(job["host"], job["port"]) for _ in range(all_of_them)]
    members = [make(group, link) for link in links]
    group.expect(half)
    living = [asyncio.create_task(member.live()) for member in members[:half]]
    await _until_stable(group, living)
    await asyncio.sleep(SETTLE_S)
    group.expect(all_of_them)
    before, began = cpu_seconds(job["pid"]), time.perf_counter()
    living += [asyncio.create_task(member.live()) for member in members[half:]]
    await _until_stable(group, living)
    seconds, used = time.perf_counter() - began, cpu_seconds(job["pid"]) - before
    await _all_leave(group, members, links, living)
    return seconds, used


async def _until_stable(group: Group, living: list[asyncio.Task[None]]) -> None:
    stable = asyncio.create_task(group.stable.wait())
    done, _ = await asyncio.wait([stable, *living], timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()  # a member ends by itself only after an error
    if not done:
        stable.cancel()
        raise TimeoutError(f"no stable group of {group.expected} members in {LIMIT_S} s")


async def _all_leave(group: Group, members: list[Member], links: list[Link], living: list[asyncio.Task[None]]) -> None:
    """Leave the group, so that no session expires while the next group is measured."""
    group.over = True
    await asyncio.gather(*living)
    await asyncio.gather(*(member.leave() for member in members))
    for link in links:
        link.close()


async def _when_coordinated(job: dict[str, Any], group: str) -> None:
    """Wait until the first group has created __consumer_offsets."""
    link = await Link.to(job["host"], job["port"])
    deadline = time.monotonic() + LIMIT_S
    while True:
        found = await link.ask(FindCoordinatorRequest(coordinator_keys=(group,)), FindCoordinatorResponse, 4)
        error = found.coordinators[0].error_code
        if not error:
            unknown = HeartbeatRequest(group_id=group, generation_id=0, member_id="unknown")
            error = (await link.ask(unknown, HeartbeatResponse, 4)).error_code
        if error == UNKNOWN_MEMBER_ID:
            break
        if error not in NOT_YET or time.monotonic() > deadline:
            raise RefusedError(f"{group} has no coordinator: error {error}")
        await asyncio.sleep(PACE_S)
    link.close()
