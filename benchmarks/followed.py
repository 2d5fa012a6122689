"""A broker that leads a topic whose other replica has stopped, so that raw frames can fetch in the follower's place.

Brokers of both kinds answer a Fetch with the id of a replica that is assigned to the partition, and nobody else.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import topics
from benchmarks.clusters import ApacheKafkaNode, MoldauNode
from benchmarks.peers import READY_LIMIT_S, SETTINGS, ApacheKafka, FromSource, Kind, Peer, free_port
from benchmarks.topics import Topic
from moldau.testing.zookeeper import ZooKeeper

LEADER, FOLLOWER = 1, 2
NAME = "bench-followed"
LIMIT_S = 120.0


@contextlib.contextmanager
def leading(
    kind: Kind,
    workdir: Path,
    label: str,
    partitions: int,
    wrap: Callable[[Kind], Kind],
    ready_limit_s: float = READY_LIMIT_S,
) -> Iterator[tuple[Peer, Topic]]:
    """The leader, wrapped by the caller, and its topic; processes and directories are always removed."""
    home = workdir / f"{label}-{free_port()}"
    home.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        leader_kind, follower_kind = _nodes(kind, stack, home)
        leader = Peer(label, wrap(leader_kind), home / "leader", free_port(), ready_limit_s)
        follower = Peer(f"the follower of {label}", follower_kind, home / "follower", free_port())
        for peer in (leader, follower):
            peer.home.mkdir()
            peer.kind.prepare(peer.home, peer.port)
            stack.callback(peer.kill)
            peer.start()
        topic = _created(leader, partitions)
        follower.stop()
        _await_isr(leader, topic, {LEADER})
        yield leader, topic


def _nodes(kind: Kind, stack: contextlib.ExitStack, home: Path) -> tuple[Kind, Kind]:
    """Leader and follower of this kind, as members of one cluster."""
    if isinstance(kind, FromSource):
        leader, follower = _nodes(kind.kind, stack, home)
        return replace(kind, kind=leader), replace(kind, kind=follower)
    if isinstance(kind, ApacheKafka):
        controllers = {LEADER: free_port()}
        return (
            ApacheKafkaNode(kind.jars, LEADER, controllers, SETTINGS),
            ApacheKafkaNode(kind.jars, FOLLOWER, controllers, SETTINGS),
        )
    zookeeper = stack.enter_context(ZooKeeper(1, home / "zookeeper"))
    return MoldauNode(LEADER, zookeeper.connect, SETTINGS), MoldauNode(FOLLOWER, zookeeper.connect, SETTINGS)


def _created(leader: Peer, partitions: int) -> Topic:
    deadline = time.monotonic() + LIMIT_S
    admin = AdminClient({"bootstrap.servers": leader.bootstrap})
    while len(admin.list_topics(timeout=LIMIT_S).brokers) < FOLLOWER:
        _pause(deadline, "the leader does not know its follower")
    wanted = NewTopic(NAME, num_partitions=partitions, replica_assignment=[[LEADER, FOLLOWER]] * partitions)
    admin.create_topics([wanted], operation_timeout=LIMIT_S)[NAME].result(LIMIT_S)
    made = topics.when_led(leader, Topic(NAME, topics.topic_id(admin, NAME, deadline), partitions), deadline)
    _await_isr(leader, made, {LEADER, FOLLOWER})
    return made


def _await_isr(leader: Peer, topic: Topic, wanted: set[int]) -> None:
    deadline = time.monotonic() + LIMIT_S
    admin = AdminClient({"bootstrap.servers": leader.bootstrap})
    while True:
        found = admin.list_topics(topic.name, timeout=LIMIT_S).topics[topic.name].partitions.values()
        if all(set(each.isrs) == wanted and each.leader == LEADER for each in found):
            return
        _pause(deadline, f"the ISRs of {topic.name} are {[each.isrs for each in found]}")


def _pause(deadline: float, problem: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(problem)
    time.sleep(0.05)
