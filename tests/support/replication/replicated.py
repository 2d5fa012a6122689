"""A partition with three replicas in one process: real logs, roles, fetchers and decisions; time, network and crashes
are a test's to choose. What is checked after every step is what a user would notice: nothing committed is ever lost or
changed, and no two replicas differ below the high watermark.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later
from moldau.base.slices import FileSlice
from moldau.broker.apis.fetch import fetch
from moldau.broker.apis.list_offsets import list_offsets
from moldau.broker.fetch_sessions import FetchSessionCache
from moldau.broker.replica_selector import RACK_AWARE
from moldau.log.files import remove
from moldau.log.settings import LogConfig
from moldau.metadata.alter_partition import ProposedIsr, alter_partition
from moldau.metadata.changes import BrokerRegistered, Change, ChangeSet, TopicCreated, apply
from moldau.metadata.elections import (
    ElectionRules,
    broker_failure_changes,
    leader_and_isr_changes,
    preferred_election,
    unclean_shutdown_changes,
)
from moldau.metadata.image import Broker, ClusterImage, PartitionState
from moldau.net.peer import PeerLost, PeerResponse
from moldau.replication.appender import Appended, Outcome
from moldau.replication.cluster_view import ClusterView
from moldau.replication.fetcher import Bounds, Fetcher, FetchSettings, LeaderConnection
from moldau.replication.fetchers import ask_bounds
from moldau.replication.follower import Follower
from moldau.replication.isr import PendingIsr
from moldau.replication.isr_changes import Granted, IsrChanges, Proposal
from moldau.replication.leader import ALL, Leader
from moldau.replication.partition import Partition
from moldau.replication.standing import Standing
from moldau.replication.throttle import ReplicationThrottle
from moldau.wire.batch import read_header
from moldau.wire.fetching import FETCH, FetchLimits
from support.brokers.calls import a_call
from support.log.logs import NOW, TOPIC_ID, batch, open_log, read

TOPIC = "topic"
LAG_MS = 1_000
SETTINGS = FetchSettings(FetchLimits(0, 1, 1 << 20), 700, 10, 1000)


class Stepped(Fetcher):
    """A fetcher that makes one round when it is told to."""

    async def _run(self) -> None:
        await asyncio.Event().wait()

    async def step(self) -> None:
        for place in list(self._resting):
            del self._resting[place]
            self._fetch_soon(place)
        if self.idle:
            return
        try:
            await self._round()
        except PeerLost:
            self._forget_session()


class Link:
    """From one broker to another, through a network that loses and delays."""

    def __init__(self, world: "World", here: "Node", leader: int) -> None:
        self._world, self._here, self._leader = world, here, leader

    async def ask_raw(self, api_key: int, version: int, body: bytes, timeout_ms: int | None = None) -> PeerResponse:
        assert api_key == FETCH
        answer = await self._world.network(self._here.id, self._leader, lambda node: node.serve_fetch(body, version))
        return PeerResponse(memoryview(answer), 5)

    async def ask(self, message: Any, version: int, timeout_ms: int | None = None) -> Any:
        async def serve(node: "Node") -> Any:
            return await list_offsets(node.context(), message, SimpleNamespace(version=version))  # type: ignore[arg-type]

        return await (await self._world.network(self._here.id, self._leader, serve))

    def disconnect(self, reason: str) -> None:
        raise AssertionError(reason)


class Node:
    """One broker's replica. `image` is what it knows of the cluster, which may be old."""

    def __init__(self, world: "World", node_id: int, directory: Path) -> None:
        self.world, self.id, self.directory = world, node_id, directory
        self.alive = False
        self.image = ClusterImage()
        self.epoch = -1
        self.checkpointed = (0, 0)  # high watermark and recovery point, as a checkpoint has them
        self.fetchers: dict[int, Stepped] = {}
        self.rounds: dict[int, asyncio.Task[None]] = {}
        self.throttle = ReplicationThrottle()

    def start(self, image: ClusterImage, *, trusted: bool = True) -> None:
        high_watermark, recovery_point = self.checkpointed
        log = open_log(self.directory, self.world.config, recovery_point=recovery_point)
        self.image = image
        self.alive = True
        self.sessions = FetchSessionCache(10)
        self.changes = IsrChanges(_unused, self._epoch_of, self.id)
        self.view = ClusterView(self.id, self.world.now, self._epoch_of, self.changes.propose, LAG_MS)
        lossy = not trusted or log.generation
        standing = Standing(fenced_epoch=self.state.leader_epoch if lossy else -1)
        self.partition = Partition(TOPIC, 0, log, 0, standing=standing)
        self.partition.assign(self.state, self.view, high_watermark)
        self.follow()

    @property
    def state(self) -> PartitionState:
        found = self.image.partition(TOPIC, 0)
        assert found is not None
        return found

    def _epoch_of(self, broker_id: int) -> int | None:
        broker = self.image.brokers.get(broker_id)
        return None if broker is None or broker.leaving else broker.epoch

    def learn(self, image: ClusterImage) -> None:
        old, self.image = self.state, image
        if old != self.state:
            self.partition.assign(self.state, self.view)
            self.follow()
        if isinstance(self.partition.role, Leader):
            self.partition.role.reconsider()
            self.partition.role.expand_isr()

    def follow(self) -> None:
        role = self.partition.role
        leader = role.leader if isinstance(role, Follower) else -1
        for each, fetcher in self.fetchers.items():
            if each != leader:
                fetcher.remove(self.partition)
        if leader >= 0:
            if leader not in self.fetchers:
                self.fetchers[leader] = Stepped(leader, Link(self.world, self, leader), self)
            self.fetchers[leader].add(self.partition)

    # ── the owner of its fetchers ──

    def replica(self) -> tuple[int, int]:
        return self.id, self.epoch

    def fetch_settings(self) -> FetchSettings:
        return SETTINGS

    def now(self) -> int:
        return self.world.now()

    def delete_later(self, paths: list[Path], delay_ms: int) -> None:
        remove(paths)

    async def bounds(self, leader: LeaderConnection, partitions: list[Partition]) -> dict[Partition, Bounds]:
        return await ask_bounds(leader, partitions, self.id)

    def fetch_once(self) -> None:
        for leader, fetcher in self.fetchers.items():
            under_way = self.rounds.get(leader)
            if under_way is not None and under_way.done():
                under_way.result()  # nothing but lost messages may go wrong
            if under_way is None or under_way.done():
                self.rounds[leader] = asyncio.get_running_loop().create_task(fetcher.step())

    def context(self) -> Any:
        replicas = SimpleNamespace(
            by_id={TOPIC_ID.bytes: [self.partition]},
            by_name={TOPIC.encode(): [self.partition]},
            find=lambda topics, token, index: topics[token][index],
            get=lambda topic, index: self.partition,
            sending=ReplicationThrottle(),
            cluster=self.view,
        )
        config = SimpleNamespace(fetch_max_bytes=1 << 30, node_id=self.id, replica_selector_class=None)
        return SimpleNamespace(
            authorizer=None,
            replicas=replicas,
            config=config,
            image=self.image,
            fetch_sessions=self.sessions,
            now=self.world.now,
        )

    def rack_aware(self) -> Any:
        context = self.context()
        context.config.replica_selector_class = RACK_AWARE
        return context

    def serve_fetch(self, body: bytes, version: int) -> bytes:
        parts = fetch(self.context(), memoryview(body), 0, a_call(version))
        assert isinstance(parts, list)
        return b"".join(read(part) if isinstance(part, FileSlice) else bytes(part) for part in parts)[4:]

    async def checkpoint(self) -> bool:
        self.write_checkpoint()
        return True

    def write_checkpoint(self) -> None:
        self.checkpointed = (self.partition.high_watermark, self.partition.log.durability.checkpoint)

    async def kill(self) -> None:
        self.alive = False
        for task in self.rounds.values():
            task.cancel()
        for fetcher in self.fetchers.values():
            await fetcher.stop()
        self.fetchers, self.rounds = {}, {}
        self.partition.log.close(clean=False)


async def _unused(proposals: Sequence[Proposal]) -> Sequence[Granted | WireError]:
    raise AssertionError("the test carries proposals to the controller itself")


class World:
    def __init__(self, directory: Path, seed: int, *, min_isr: int = 2, unclean: bool = False) -> None:
        self.random = random.Random(seed)
        self.clock = NOW
        self.config = LogConfig(min_insync_replicas=min_isr, segment_bytes=2_000)
        self.rules = ElectionRules(lambda _: min_isr, lambda _: unclean)
        self.nodes = {each: Node(self, each, directory / str(each)) for each in (1, 2, 3)}
        self.cut: set[tuple[int, int]] = set()  # who does not reach whom
        self.trouble = 0.1  # how often the network loses or delays
        self.committed: list[bytes] = []  # values by offset, as somebody's high watermark said first
        self.checked: dict[int, int] = dict.fromkeys(self.nodes, 0)
        self.acked: list[tuple[int, bytes]] = []
        self.produced = 0
        self.delayed: list[asyncio.Event] = []
        self.image = self._founded()

    def now(self) -> int:
        return self.clock

    def _founded(self) -> ClusterImage:
        image = ClusterImage()
        for each in self.nodes:
            image = apply(image, BrokerRegistered(Broker(each, {})))
            self.nodes[each].epoch = image.brokers[each].epoch
        state = PartitionState(0, (1, 2, 3), (1, 2, 3), 1)
        return apply(image, TopicCreated(TOPIC, TOPIC_ID, (state,), {}))

    def start(self) -> None:
        for node in self.nodes.values():
            node.start(self.image)

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.alive]

    # ── the network ──

    async def network(self, source: int, target: int, serve: Callable[[Node], Any]) -> Any:
        node = self.nodes[target]
        if not node.alive or (source, target) in self.cut or self.random.random() < self.trouble:
            raise PeerLost("lost on the way there")
        answer = serve(node)
        if self.random.random() < self.trouble:
            raise PeerLost("lost on the way back")
        if self.random.random() < self.trouble:
            arrived = asyncio.Event()
            self.delayed.append(arrived)
            await arrived.wait()
        return answer

    # ── what happens ──

    def produce(self, node: Node) -> None:
        self.produced += 1
        value = b"%d" % self.produced
        count = self.random.randint(1, 3)
        outcome = node.partition.appender.produce(
            batch(count, value=value, timestamp=self.clock), 12, self.clock, None, ALL
        )

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Appended):
                self.acked.append((outcome.base_offset, value))

        if isinstance(outcome, Later):
            outcome.then(told)
        else:
            told(outcome)

    def decide(self, *changes: Change) -> None:
        if changes:
            self.image = apply(self.image, ChangeSet(changes))

    def notice_dead(self) -> None:
        """The controller's work: who is registered and not alive is gone."""
        gone = [each for each in self.image.brokers if not self.nodes[each].alive]
        if gone:
            self.decide(*broker_failure_changes(self.image, gone, self.rules))

    def rebalance(self) -> None:
        change = preferred_election(self.image, TOPIC, 0)
        if not isinstance(change, Refusal):
            self.decide(change)

    def register(self, node: Node, *, trusted: bool) -> None:
        known = node.id in self.image.brokers
        self.image = apply(self.image, BrokerRegistered(Broker(node.id, {})))
        node.epoch = self.image.brokers[node.id].epoch
        if not trusted:
            self.decide(*unclean_shutdown_changes(self.image, node.id, self.rules))
        self.decide(*leader_and_isr_changes(self.image, self.rules, [node.id] if known else []))

    async def kill(self, node: Node, *, power: bool = False) -> None:
        await node.kill()
        self.checked[node.id] = 0
        if power:  # what was not flushed is gone
            _, recovery_point = node.checkpointed
            log = open_log(node.directory, self.config, recovery_point=recovery_point)
            remove(log.truncate_to(max(recovery_point, log.start_offset), self.clock))
            log.close()
            high_watermark, _ = node.checkpointed
            node.checkpointed = (min(high_watermark, recovery_point), recovery_point)

    def restart(self, node: Node, *, trusted: bool = True) -> None:
        node.start(self.image, trusted=trusted)
        self.register(node, trusted=trusted)

    def alter(self, node: Node) -> None:
        """A proposal of a leader reaches the controller, or not, and so does the answer."""
        proposals: list[tuple[Partition, PendingIsr, Proposal]] = node.changes._pending()
        if not proposals:
            return
        ((partition, pending, proposal),) = proposals
        lost_there, lost_back = (self.random.random() < self.trouble for _ in range(2))
        answer = None if lost_there else self._alter(node, proposal)
        if answer is None or lost_back:
            node.changes._outcome_unknown[partition] = pending
            node.changes.propose(partition)
            return
        for again in node.changes._take_responses(proposals, [answer]):
            node.changes.propose(again)

    def _alter(self, node: Node, proposal: Proposal) -> Granted | WireError:
        asked = ProposedIsr(
            proposal.topic_id, proposal.partition, proposal.leader_epoch, proposal.partition_epoch, dict(proposal.isr)
        )
        decision = alter_partition(self.image, node.id, node.epoch, asked, self.rules)
        if isinstance(decision, Refusal):
            return decision.error
        self.decide(decision)
        state = self.image.partition(TOPIC, 0)
        assert state is not None
        return Granted(state.isr, state.leader, state.leader_epoch, state.partition_epoch)

    # ── what must hold ──

    def check(self) -> None:
        for node in self.alive:
            self._check_below_high_watermark(node)
        for offset, value in self.acked:
            assert self.committed[offset] == value, f"acknowledged at {offset}, and not what is committed there"

    def _check_below_high_watermark(self, node: Node) -> None:
        high_watermark = node.partition.high_watermark
        start = min(self.checked[node.id], high_watermark)
        if start == high_watermark:
            return
        for offset, value in values(node, start):
            if offset >= high_watermark:
                break
            if offset < len(self.committed):
                assert self.committed[offset] == value, f"broker {node.id} has another record at {offset}"
            else:
                assert offset == len(self.committed), f"broker {node.id} lacks committed records before {offset}"
                self.committed.append(value)
        self.checked[node.id] = high_watermark


def values(node: Node, start: int = 0) -> list[tuple[int, bytes]]:
    """Offsets and values of a replica's records, from the batch that holds `start` on."""
    log = node.partition.log
    found: list[tuple[int, bytes]] = []
    for header, data in log.read_batches(start):
        value = bytes(data[-1 - _value_size(data) : -1])
        found += [(offset, value) for offset in range(header.base_offset, header.last_offset + 1) if offset >= start]
        assert read_header(data).crc == header.crc
    return found


def _value_size(data: memoryview) -> int:
    """All records of a batch have the same value, of less than 64 bytes; it stands before the last byte."""
    size = 1
    while data[-2 - size] != size * 2:
        size += 1
    return size
