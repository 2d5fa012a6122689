"""Members of a cluster on a real ZooKeeper: registered, led, and none the wiser for what happened to one of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

import pytest

from moldau.base.errors import Refusal
from moldau.base.tree import Delete
from moldau.broker.cluster.broker_registration import BrokerRegistration, Findings
from moldau.broker.controller import Controller
from moldau.broker.fresh import fresh_id
from moldau.metadata import znodes
from moldau.metadata.alter_partition import ProposedIsr, alter_partition
from moldau.metadata.changes import Change, ControllerElected
from moldau.metadata.elections import ElectionRules
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage, Endpoint
from moldau.metadata.splitting import TRANSACTION_BYTES
from moldau.metadata.topics import TopicDefaults, TopicSpec, create_topic, delete_topic
from moldau.net.peer import connect_plain
from moldau.store.zookeeper import ZooKeeperStore
from moldau.testing import ZooKeeper

RULES = ElectionRules(min_isr=lambda _: 1, unclean=lambda _: False)
SESSION_MS = 4_000


class Node:
    """A broker in its cluster without the rest: a port that answers nothing, a session, a registration."""

    def __init__(self, connect: str, number: int) -> None:
        self._connect = connect
        self.number = number

    async def start(self, *, trusted: bool = True, last_producer_id: int = -1) -> "Node":
        self._server = await asyncio.start_server(self._hold, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self._open: set[asyncio.StreamWriter] = set()
        self.store = await ZooKeeperStore.open(self._connect, SESSION_MS)
        self.controller = Controller(self.store, limit=TRANSACTION_BYTES, patience_s=20)
        await self.controller.load()
        self.registration = BrokerRegistration(self.controller, self.number, "X", lambda _: RULES, connect_plain)
        if self.controller.founded:
            await self.registration.election.create_cluster(())
        findings = Findings(trusted=trusted, last_producer_id=last_producer_id)
        await self.registration.start(Broker(self.number, {"X": Endpoint("127.0.0.1", port)}), findings)
        return self

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    async def die(self) -> None:
        """As a killed process: its port is closed, and its session not ended."""
        self._server.close()
        for writer in self._open:
            writer.close()
        await self.registration.stop()

    async def stop(self) -> None:
        await self.die()
        await self.store.close()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError("it did not come true")


async def create(node: Node, name: str, partitions: int, replication: int = 3) -> None:
    spec, topic_id = TopicSpec(name, partitions, replication), fresh_id()
    result = await node.controller.submit(
        lambda image: create_topic(image, spec, topic_id=topic_id, defaults=TopicDefaults())
    )
    assert not isinstance(result, Refusal), result


def leaders(image: ClusterImage) -> set[int]:
    return {state.leader for topic in image.topics.values() for state in topic.partitions}


@pytest.fixture
def connect(zookeeper: ZooKeeper) -> str:
    return f"{zookeeper.connect}/{uuid4().hex}"


def members(connect: str, scenario: Callable[..., Awaitable[None]]) -> None:
    async def run() -> None:
        async with cluster(connect) as nodes:
            await scenario(*nodes)

    asyncio.run(run())


@asynccontextmanager
async def cluster(connect: str) -> AsyncIterator[list[Node]]:
    nodes = [await Node(connect, number).start() for number in (1, 2, 3)]
    try:
        await until(lambda: all(set(node.image.brokers) == {1, 2, 3} for node in nodes))
        yield nodes
    finally:
        for node in nodes:
            await node.stop()


def test_brokers_register_and_one_of_them_is_the_controller(connect: str) -> None:
    async def scenario(*nodes: Node) -> None:
        await until(lambda: nodes[0].image == nodes[1].image == nodes[2].image)
        assert [node.controller.leads for node in nodes] == [True, False, False]
        with pytest.raises(AssertionError, match="NOT_CONTROLLER"):
            await create(nodes[1], "t", 6)
        await create(nodes[0], "t", 6)
        await until(lambda: all("t" in node.image.topics for node in nodes))
        assert leaders(nodes[2].image) == {1, 2, 3}

    members(connect, scenario)


def test_an_election_with_a_lost_response_counts(connect: str) -> None:
    async def scenario() -> None:
        store = await ZooKeeperStore.open(connect, SESSION_MS)
        unheard = Controller(store)
        await unheard.load()
        await unheard.claim(lambda _: ControllerElected(1))
        node = Node(connect, 1)
        await node.start()
        await until(lambda: node.controller.leads)
        assert node.image.controller_epoch == 1, "no election was needed"
        await create(node, "t", 1, 1)
        await node.stop()
        await store.close()

    asyncio.run(scenario())


def test_no_producer_gets_an_id_that_a_joining_brokers_logs_know(connect: str) -> None:
    """The store was restored from a copy that is older than the logs."""

    async def scenario(first: Node, *others: Node) -> None:
        late = await Node(connect, 4).start(last_producer_id=7_654)
        await until(lambda: first.image.next_producer_id > 0)
        assert await first.controller.allocate_producer_ids() == range(7_655, 8_655)
        known = await Node(connect, 5).start(last_producer_id=7_654)
        assert known.image.next_producer_id == 8_655, "what the store knows already is not set back"
        for node in (late, known):
            await node.stop()

    members(connect, scenario)


def test_when_the_controllers_session_ends_another_one_takes_its_place(connect: str) -> None:
    async def scenario(first: Node, *others: Node) -> None:
        await create(first, "t", 6)
        await first.stop()
        await until(lambda: all(set(node.image.brokers) == {2, 3} for node in others))
        await until(lambda: all(leaders(node.image) <= {2, 3} for node in others))
        (new,) = [node for node in others if node.controller.leads]
        assert new.image.controller_epoch == 2
        states = new.image.topics["t"].partitions
        assert all(set(state.isr) == {2, 3} for state in states)
        assert all(state.leader_epoch == (state.replicas[0] == 1) for state in states)

    members(connect, scenario)


@pytest.mark.parametrize("dead", [0, 1], ids=["the controller", "another one"])
def test_a_killed_process_is_noticed_before_its_session_expires(connect: str, dead: int) -> None:
    async def scenario(*nodes: Node) -> None:
        await create(nodes[0], "t", 6)
        others = [node for node in nodes if node is not nodes[dead]]
        await until(lambda: all("t" in node.image.topics for node in others))
        await nodes[dead].die()
        await until(lambda: all(nodes[dead].number not in node.image.brokers for node in others))
        await until(lambda: all(leaders(node.image) <= {node.number for node in others} for node in others))
        assert nodes[dead].store.connected
        assert sum(node.controller.leads for node in others) == 1

    members(connect, scenario)


def test_a_broker_without_its_node_registers_again(connect: str) -> None:
    async def scenario(*nodes: Node) -> None:
        epochs = [node.registration.epoch for node in nodes]
        for node in nodes:
            await nodes[0].store.multi([Delete(znodes.broker_path(node.number))])
        await until(lambda: all(node.registration.epoch > epoch for node, epoch in zip(nodes, epochs, strict=True)))
        for node in nodes:
            await node.controller.feed.catch_up(sync=True)
            assert {each.id: each.epoch for each in node.image.brokers.values()} == {
                each.number: each.registration.epoch for each in nodes
            }

    members(connect, scenario)


def test_a_deposed_controller_knows_it_and_the_cluster_goes_on(connect: str) -> None:
    async def scenario(*nodes: Node) -> None:
        await nodes[2].store.multi([Delete(znodes.CONTROLLER)])
        await until(lambda: sum(node.controller.leads for node in nodes) == 1 and nodes[0].image.controller_epoch == 2)
        (leader,) = [node for node in nodes if node.controller.leads]
        await create(leader, "t", 3)
        await until(lambda: all("t" in node.image.topics for node in nodes))

    members(connect, scenario)


def test_a_broker_that_may_have_lost_records_comes_back_as_a_follower(connect: str) -> None:
    async def scenario(*nodes: Node) -> None:
        await create(nodes[0], "t", 6)
        await create(nodes[0], "alone", 3, replication=1)
        await nodes[2].stop()
        again = await Node(connect, 3).start(trusted=False)
        try:
            await until(lambda: 3 in nodes[0].image.brokers)
            assert all(3 not in state.isr for state in nodes[0].image.topics["t"].partitions)
            await until(lambda: NO_BROKER not in leaders(nodes[0].image))
        finally:
            await again.stop()

    members(connect, scenario)


def test_the_partitions_of_a_dead_broker_get_leaders_in_few_transactions(
    connect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(*nodes: Node) -> None:
        for number in range(10):
            await create(nodes[0], f"topic-{number}", 100)
        await until(lambda: len(nodes[1].image.topics) == 10)
        version = nodes[1].image.version
        begun = time.monotonic()
        await nodes[2].die()
        await until(lambda: leaders(nodes[0].image) == {1, 2})
        decided = time.monotonic() - begun
        await until(lambda: leaders(nodes[1].image) == {1, 2})
        with capsys.disabled():
            print(f"\n1,000 partitions: decided {decided:.2f} s after the end, known {time.monotonic() - begun:.2f} s")
        assert nodes[1].image.version - version <= 3

    members(connect, scenario)


def test_a_controller_that_restarts_at_once_is_the_controller_again(connect: str) -> None:
    async def scenario() -> None:
        first = await Node(connect, 1).start()
        await create(first, "t", 3, replication=1)
        await first.die()
        again = await Node(connect, 1).start()
        try:
            assert again.controller.leads
            assert again.registration.epoch > first.registration.epoch
            await until(lambda: all(state.leader_epoch == 1 for state in again.image.topics["t"].partitions))
            assert leaders(again.image) == {1}
        finally:
            await first.store.close()
            await again.stop()

    asyncio.run(scenario())


def test_preferred_replicas_lead_again(connect: str) -> None:
    async def scenario(*nodes: Node) -> None:
        await create(nodes[0], "t", 6)
        await nodes[2].stop()
        await until(lambda: leaders(nodes[0].image) == {1, 2})
        again = await Node(connect, 3).start()
        try:
            await until(lambda: 3 in nodes[0].image.brokers)
            for state in nodes[0].image.topics["t"].partitions:
                members = {each.id: each.epoch for each in nodes[0].image.brokers.values()}
                epoch = nodes[0].image.brokers[state.leader].epoch
                asked = ProposedIsr(
                    nodes[0].image.topics["t"].id, state.index, state.leader_epoch, state.partition_epoch, members
                )
                await nodes[0].controller.submit(partial(_let_in, state.leader, epoch, asked))
            await nodes[0].registration.rebalance_leaders(10)
            assert all(state.leader == state.replicas[0] for state in nodes[0].image.topics["t"].partitions)
        finally:
            await again.stop()

    members(connect, scenario)


def _let_in(leader: int, epoch: int, asked: ProposedIsr, image: ClusterImage) -> Change | Refusal:
    return alter_partition(image, leader, epoch, asked, RULES)


def test_a_topic_of_thousands_of_partitions(connect: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(*nodes: Node) -> None:
        begun = time.monotonic()
        await create(nodes[0], "large", 3_000)
        made = time.monotonic() - begun
        await until(
            lambda: "large" in nodes[2].image.topics and len(nodes[2].image.topics["large"].partitions) == 3_000
        )
        await nodes[2].controller.feed.reload()
        assert nodes[2].image == nodes[0].image
        begun = time.monotonic()
        await nodes[0].controller.submit(lambda image: delete_topic(image, name="large"))
        with capsys.disabled():
            print(f"\n3,000 partitions: created in {made:.2f} s, deleted in {time.monotonic() - begun:.2f} s")
        assert await nodes[0].store.children(znodes.TOPICS) == []

    members(connect, scenario)
