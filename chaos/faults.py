"""Faults by name. Each one repairs what it broke, so the next finds a complete cluster.

A fault without its expected effect is an error of the run. Of clients this file knows only their topics, groups and
transactional ids.
"""

import contextlib
import random
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal, Protocol

from confluent_kafka import KafkaException

from chaos.access import Access
from chaos.effects import Witness
from chaos.reassigning import elect_preferred, reassign
from moldau.broker.coordinators.partitioning import partition_of

Direction = Literal["both", "in", "out"]
SHORT_S, LONG_S = 0.3, 8.0  # duration of a fault: from a hiccup to twice the session timeout
GONE_S = 3.0  # the end of a process is noticed sooner
EFFECT_S = 60.0  # limit of the wait for the effect of a long fault
AGAIN_S = 0.1
LOST = "Lost the connection to ZooKeeper"  # in a broker's log
JUMPS = (timedelta(seconds=20), timedelta(minutes=5), timedelta(hours=1))


class Nodes(Protocol):
    """Methods of both clusters: `moldau.testing.Cluster`, and Apache Kafka's in `apache`."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def broker_ids(self) -> list[int]: ...
    @property
    def controller(self) -> int: ...
    def leader_of(self, topic: str, partition: int = 0) -> int: ...
    def in_sync(self, topic: str, partition: int = 0) -> set[int]: ...
    def metadata(self) -> Any: ...
    def start(self, broker_id: int) -> None: ...
    def stop(self, broker_id: int) -> None: ...
    def kill(self, broker_id: int) -> None: ...
    def pause(self, broker_id: int) -> None: ...
    def resume(self, broker_id: int) -> None: ...


@dataclass
class Scene:
    """A cluster under load."""

    cluster: Any  # Nodes; most faults need a moldau.testing.Cluster
    dice: random.Random
    topics: dict[str, int]
    coordinated: list[tuple[str, str]]  # (coordinator's topic, group or transactional id)
    say: Callable[[str], None]
    witness: Witness
    admin: Access
    first: bool = True  # whether this fault occurs for the first time: then it is a long one

    @property
    def nodes(self) -> Nodes:
        nodes: Nodes = self.cluster
        return nodes

    def some_place(self) -> tuple[str, int]:
        topic = self.dice.choice(sorted(self.topics))
        return topic, self.dice.randrange(self.topics[topic])

    def linger(self, *, strikes: bool = False, long_s: float = LONG_S) -> None:
        """Wait for the duration of the fault: the first time long, later mostly short.

        `strikes`: a long fault costs partitions their leader or a replica; wait for that.
        """
        lasts = self.dice.random() ** 2
        time.sleep(long_s if self.first else SHORT_S + (LONG_S - SHORT_S) * lasts)
        self.witness.look()
        if strikes and self.first:
            _await(self.witness.look, "the fault had no effect on any partition")


def _await(holds: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + EFFECT_S
    while True:
        with contextlib.suppress(OSError, LookupError, KafkaException):  # no broker answers
            if holds():
                return
        if time.monotonic() > until:
            raise TimeoutError(f"{otherwise} within {EFFECT_S:.0f} s")
        time.sleep(AGAIN_S)


def _leader_of(scene: Scene, topic: str, partition: int) -> int:
    nodes = scene.nodes
    _await(lambda: nodes.leader_of(topic, partition) in nodes.broker_ids, f"{topic}-{partition} has no leader")
    return nodes.leader_of(topic, partition)


def _leader(scene: Scene) -> int:
    return _leader_of(scene, *scene.some_place())


def _follower(scene: Scene) -> int:
    leader = _leader(scene)
    return scene.dice.choice([each for each in scene.nodes.broker_ids if each != leader])


def _controller(scene: Scene) -> int:
    return scene.nodes.controller


def _coordinator(scene: Scene) -> int:
    """The coordinator of a group or transactional id; a leader if the clients of the run have neither."""
    if not scene.coordinated:
        scene.say("there is no coordinator; using a leader")
        return _leader(scene)
    topic, key = scene.dice.choice(scene.coordinated)
    partitions = sum(len(row.partitions) for row in scene.nodes.metadata().topics if row.name == topic)
    scene.say(f"the coordinator of {key} in {topic}")
    return _leader_of(scene, topic, partition_of(key, partitions))


def _kill(scene: Scene, broker: int) -> None:
    scene.nodes.kill(broker)
    scene.linger(strikes=True, long_s=GONE_S)
    scene.nodes.start(broker)


def _stop(scene: Scene, broker: int) -> None:
    scene.nodes.stop(broker)
    scene.linger(strikes=True, long_s=GONE_S)
    scene.nodes.start(broker)


def _pause(scene: Scene, broker: int) -> None:
    scene.nodes.pause(broker)
    scene.linger(strikes=True)
    scene.nodes.resume(broker)


def _isolate(direction: Direction) -> Callable[[Scene, int], None]:
    def run(scene: Scene, broker: int) -> None:
        scene.cluster.isolate(broker, direction)
        scene.linger(strikes=True)
        scene.cluster.heal()

    return run


def _expire(scene: Scene, broker: int) -> None:
    """Isolate the broker from ZooKeeper, but not from brokers and clients, until its session expires."""
    scene.cluster.isolate_from_zookeeper(broker)
    _await(scene.witness.look, f"the session of broker {broker} did not expire")
    scene.cluster.heal()


def _jump(scene: Scene, broker: int) -> None:
    scene.cluster.broker(broker).pass_time(scene.dice.choice(JUMPS))


def _of(target: Callable[[Scene], int], action: Callable[[Scene, int], None]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        broker = target(scene)
        scene.say(f"broker {broker}")
        action(scene, broker)

    return run


def _all_brokers(scene: Scene) -> list[int]:
    return list(scene.nodes.broker_ids)


def _shuffled(scene: Scene) -> list[int]:
    brokers = _all_brokers(scene)
    scene.dice.shuffle(brokers)
    return brokers


def _others(scene: Scene) -> list[int]:
    """All but one, which is then the only in-sync replica: below min.insync.replicas, so it rejects writes."""
    left = _leader(scene)
    scene.say(f"all but broker {left}")
    return [broker for broker in _all_brokers(scene) if broker != left]


def _kill_each(target: Callable[[Scene], list[int]]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        brokers = target(scene)
        for broker in brokers:
            scene.nodes.kill(broker)
        scene.linger(strikes=True)
        _start_all(scene, brokers)

    return run


def _pause_each(target: Callable[[Scene], list[int]]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        brokers = target(scene)
        for broker in brokers:
            scene.nodes.pause(broker)
        scene.linger(strikes=True)
        for broker in brokers:
            scene.nodes.resume(broker)

    return run


def _isolate_all(scene: Scene) -> None:
    """Isolate every broker from the others and from ZooKeeper: no record can be committed."""
    for broker in scene.nodes.broker_ids:
        scene.cluster.isolate(broker)
    scene.linger()
    scene.cluster.heal()


def _start_all(scene: Scene, brokers: list[int]) -> None:
    with ThreadPoolExecutor(len(brokers)) as threads:
        list(threads.map(scene.nodes.start, brokers))


def _roll(scene: Scene) -> None:
    """Restart one broker after the other, each back in sync before the next stops."""
    for broker in scene.nodes.broker_ids:
        scene.nodes.stop(broker)
        scene.nodes.start(broker)
        await_in_sync(scene)
        scene.witness.look()


def _server(begin: Callable[[Any, int], object], end: Callable[[Any, int], object]) -> Callable[[Scene], None]:
    """A fault of one ZooKeeper server with connected brokers; a long one lasts until they have noticed."""

    def run(scene: Scene) -> None:
        used = {node: many for node in range(ENSEMBLE) if (many := _connections(scene, node))}
        node = scene.dice.choice(sorted(used))
        scene.say(f"server {node}, which {used[node]} brokers use")
        lost = _lost_connections(scene)
        begin(scene.cluster, node)
        scene.linger()
        if scene.first:
            _await(lambda: _lost_connections(scene) > lost, "no broker lost its connection to ZooKeeper")
        end(scene.cluster, node)

    return run


def _connections(scene: Scene, node: int) -> int:
    """Number of connections of a server, without the one used to ask."""
    host, _, port = scene.cluster.zookeeper.connect.split(",")[node].rpartition(":")
    with socket.create_connection((host, int(port)), EFFECT_S) as link:
        link.sendall(b"srvr")
        told = link.makefile("rb").read()
    return int(told.partition(b"Connections: ")[2].split()[0]) - 1


def _lost_connections(scene: Scene) -> int:
    return sum(scene.cluster.log_text(broker).count(LOST) for broker in scene.nodes.broker_ids)


def _isolate_server(direction: Direction) -> Callable[[Scene], None]:
    return _server(
        lambda cluster, node: cluster.isolate_zookeeper(node, direction), lambda cluster, _node: cluster.heal()
    )


def _kill_ensemble(scene: Scene) -> None:
    """Kill all ZooKeeper servers: brokers must keep serving."""
    for node in range(ENSEMBLE):
        scene.cluster.zookeeper.kill(node)
    scene.linger()
    for node in range(ENSEMBLE):
        scene.cluster.zookeeper.restart(node, wait=node == ENSEMBLE - 1)


def _reassign(scene: Scene) -> None:
    """Reassign some partitions to two replicas, then to three in another order: the leader moves, a replica leaves."""
    for _ in range(3):
        topic, partition = scene.some_place()
        replicas = list(scene.nodes.broker_ids)
        scene.dice.shuffle(replicas)
        scene.say(f"{topic}-{partition} to {replicas[:2]}, then {replicas}")
        for wanted in (replicas[:2], replicas):
            reassign(scene.admin, topic, partition, wanted)
            scene.witness.look()


def _elect(scene: Scene) -> None:
    """Make another broker the preferred replica of some partitions, and elect it."""
    wanted: dict[tuple[str, int], int] = {}
    for _ in range(3):
        topic, partition = scene.some_place()
        leader = _leader_of(scene, topic, partition)
        others = [broker for broker in scene.nodes.broker_ids if broker != leader]
        scene.dice.shuffle(others)
        reassign(scene.admin, topic, partition, [*others, leader])
        wanted[topic, partition] = others[0]
    scene.say(f"leaders: {wanted}")
    elect_preferred(scene.admin)
    for (topic, partition), leader in wanted.items():
        _await(
            partial(_leads, scene, topic, partition, leader),
            f"{leader} was not elected for {topic}-{partition}",
        )


def _leads(scene: Scene, topic: str, partition: int, leader: int) -> bool:
    return scene.nodes.leader_of(topic, partition) == leader


def _kill_under_reassignment(scene: Scene) -> None:
    """Kill a broker during a reassignment."""
    apart = replace(scene, dice=random.Random(scene.dice.random()))  # for a thread of its own
    with ThreadPoolExecutor(1) as threads:
        moving = threads.submit(_reassign, apart)
        _of(_leader, _kill)(scene)
        moving.result()


TARGETS = {"leader": _leader, "follower": _follower, "controller": _controller, "coordinator": _coordinator}
ACTIONS: dict[str, Callable[[Scene, int], None]] = {
    "kill": _kill,
    "stop": _stop,
    "pause": _pause,
    "isolate": _isolate("both"),
    "deafen": _isolate("in"),
    "mute": _isolate("out"),
}
ENSEMBLE = 3  # ZooKeeper's servers
FAULTS: dict[str, Callable[[Scene], None]] = {
    **{f"{action}-{target}": _of(TARGETS[target], ACTIONS[action]) for action in ACTIONS for target in TARGETS},
    "kill-all": _kill_each(_shuffled),
    "pause-all": _pause_each(_all_brokers),
    "kill-others": _kill_each(_others),
    "pause-others": _pause_each(_others),
    "isolate-all": _isolate_all,
    "rolling-restart": _roll,
    "kill-zookeeper": _server(
        lambda its, node: its.zookeeper.kill(node), lambda its, node: its.zookeeper.restart(node)
    ),
    "pause-zookeeper": _server(
        lambda its, node: its.zookeeper.pause(node), lambda its, node: its.zookeeper.resume(node)
    ),
    "isolate-zookeeper": _isolate_server("both"),
    "deafen-zookeeper": _isolate_server("in"),
    "mute-zookeeper": _isolate_server("out"),
    "kill-ensemble": _kill_ensemble,
    "expire-session": _of(_leader, _expire),
    "jump-clock": _of(_leader, _jump),
    "reassign": _reassign,
    "elect": _elect,
    "kill-under-reassignment": _kill_under_reassignment,
}
SORTS: dict[str, list[str]] = {  # kinds of faults; the matrix has one run for each
    "kill": [f"{action}-{target}" for action in ("kill", "stop") for target in TARGETS],
    "pause": [*(f"pause-{target}" for target in TARGETS), "jump-clock"],
    "isolate": [f"{action}-{target}" for action in ("isolate", "deafen", "mute") for target in TARGETS],
    "zookeeper": [
        *(f"{action}-zookeeper" for action in ("kill", "pause", "isolate", "deafen", "mute")),
        "kill-ensemble",
        "expire-session",
    ],
    "all": ["kill-all", "pause-all", "kill-others", "pause-others", "isolate-all", "rolling-restart"],
    "move": ["reassign", "elect", "kill-under-reassignment"],
}  # fmt: skip
ANYWHERE = [  # faults for Apache Kafka as well
    *(f"{action}-{target}" for action in ("kill", "stop", "pause") for target in TARGETS),
    "kill-all", "pause-all", "rolling-restart", "elect", "reassign",
]  # fmt: skip
BACK_S = 120.0


def await_in_sync(scene: Scene) -> None:
    """Wait until every partition has all its replicas in sync."""
    until, all_brokers = time.monotonic() + BACK_S, set(scene.nodes.broker_ids)
    while next(_behind(scene, all_brokers), None) is not None:
        if time.monotonic() > until:
            behind = ", ".join(_behind(scene, all_brokers))
            raise TimeoutError(f"not in sync within {BACK_S:.0f} s: {behind}")
        time.sleep(AGAIN_S)


def _behind(scene: Scene, all_brokers: set[int]) -> Iterator[str]:
    """Partitions that are not in sync, one by one: each costs a connection to every broker."""
    for topic, partitions in scene.topics.items():
        for partition in range(partitions):
            try:
                found = scene.nodes.in_sync(topic, partition)
            except (OSError, LookupError, KafkaException) as failure:
                yield repr(failure)
                return
            if found != all_brokers:
                yield f"{topic}-{partition} {sorted(found)}"
