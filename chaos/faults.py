"""What is done to a cluster: a table of faults by name. Each ends what it began; the next finds a whole cluster.

A fault that should have done something and did not is an error of the run. Knows nothing of clients but the names of
their topics and of what has a coordinator.
"""

import contextlib
import random
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal, Protocol

from confluent_kafka import KafkaException

from chaos.effects import Witness
from chaos.reassigning import elect_preferred, reassign
from moldau.broker.coordinators.partitioning import partition_of

Direction = Literal["both", "in", "out"]
SHORT_S, LONG_S = 0.3, 8.0  # how long a fault lasts: from a hiccup to twice as long as a session
GONE_S = 3.0  # one that has ended is noticed sooner
EFFECT_S = 60.0  # how long one waits for what a long fault must do; a bound for what hangs
AGAIN_S = 0.1
LOST = "Lost the connection to ZooKeeper"  # in a broker's log
JUMPS = (timedelta(seconds=20), timedelta(minutes=5), timedelta(hours=1))


class Nodes(Protocol):
    """What any cluster can do: `moldau.testing.Cluster`, and Apache Kafka's in `apache`."""

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

    cluster: Any  # Nodes, and for most faults what only moldau.testing.Cluster has besides
    dice: random.Random
    topics: dict[str, int]
    coordinated: list[tuple[str, str]]  # a coordinator's topic and a key: groups and transactional ids
    say: Callable[[str], None]
    witness: Witness
    first: bool = True  # whether this fault comes for the first time: then it is a long one

    @property
    def nodes(self) -> Nodes:
        nodes: Nodes = self.cluster
        return nodes

    def some_place(self) -> tuple[str, int]:
        topic = self.dice.choice(sorted(self.topics))
        return topic, self.dice.randrange(self.topics[topic])

    def linger(self, *, strikes: bool = False, long_s: float = LONG_S) -> None:
        """For as long as the fault lasts: the first time long, later mostly short.

        `strikes`: as a long one it costs partitions their leader or a replica, which is waited for.
        """
        lasts = self.dice.random() ** 2
        time.sleep(long_s if self.first else SHORT_S + (LONG_S - SHORT_S) * lasts)
        self.witness.look()
        if strikes and self.first:
            _await(self.witness.look, "the fault did nothing to any partition")


def _await(holds: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + EFFECT_S
    while True:
        with contextlib.suppress(OSError, LookupError, KafkaException):  # nobody who could tell
            if holds():
                return
        if time.monotonic() > until:
            raise TimeoutError(f"{otherwise} within {EFFECT_S:.0f} s")
        time.sleep(AGAIN_S)


def _leader_of(scene: Scene, topic: str, partition: int) -> int:
    nodes = scene.nodes
    _await(lambda: nodes.leader_of(topic, partition) in nodes.broker_ids, f"{topic}-{partition} got no leader")
    return nodes.leader_of(topic, partition)


def _leader(scene: Scene) -> int:
    return _leader_of(scene, *scene.some_place())


def _follower(scene: Scene) -> int:
    leader = _leader(scene)
    return scene.dice.choice([each for each in scene.nodes.broker_ids if each != leader])


def _controller(scene: Scene) -> int:
    return scene.nodes.controller


def _coordinator(scene: Scene) -> int:
    """Of a group or a transactional id. A run whose clients have none has no coordinator: somebody who leads, then."""
    if not scene.coordinated:
        scene.say("there is no coordinator, so a leader")
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
    """ZooKeeper hears nothing of the broker until its session has ended; brokers and clients do."""
    scene.cluster.isolate_from_zookeeper(broker)
    _await(scene.witness.look, f"the session of broker {broker} did not end")
    scene.cluster.heal()


def _jump(scene: Scene, broker: int) -> None:
    scene.cluster.broker(broker).pass_time(scene.dice.choice(JUMPS))


def _of(who: Callable[[Scene], int], how: Callable[[Scene, int], None]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        broker = who(scene)
        scene.say(f"broker {broker}")
        how(scene, broker)

    return run


def _everybody(scene: Scene) -> list[int]:
    return list(scene.nodes.broker_ids)


def _shuffled(scene: Scene) -> list[int]:
    brokers = _everybody(scene)
    scene.dice.shuffle(brokers)
    return brokers


def _others(scene: Scene) -> list[int]:
    """All but one, which is alone in sync then: fewer than min.insync.replicas, so it refuses what it is sent."""
    left = _leader(scene)
    scene.say(f"all but broker {left}")
    return [broker for broker in _everybody(scene) if broker != left]


def _kill_each(who: Callable[[Scene], list[int]]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        brokers = who(scene)
        for broker in brokers:
            scene.nodes.kill(broker)
        scene.linger(strikes=True)
        _start_all(scene, brokers)

    return run


def _pause_each(who: Callable[[Scene], list[int]]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        brokers = who(scene)
        for broker in brokers:
            scene.nodes.pause(broker)
        scene.linger(strikes=True)
        for broker in brokers:
            scene.nodes.resume(broker)

    return run


def _isolate_all(scene: Scene) -> None:
    """Every broker is alone, without the others and without ZooKeeper: nobody can commit anything."""
    for broker in scene.nodes.broker_ids:
        scene.cluster.isolate(broker)
    scene.linger()
    scene.cluster.heal()


def _start_all(scene: Scene, brokers: list[int]) -> None:
    with ThreadPoolExecutor(len(brokers)) as threads:
        list(threads.map(scene.nodes.start, brokers))


def _roll(scene: Scene) -> None:
    """One after the other in order, each back in sync before the next goes."""
    for broker in scene.nodes.broker_ids:
        scene.nodes.stop(broker)
        scene.nodes.start(broker)
        await_in_sync(scene)
        scene.witness.look()


def _server(begin: Callable[[Any, int], object], end: Callable[[Any, int], object]) -> Callable[[Scene], None]:
    """What is done to one of ZooKeeper's servers that brokers use, until they have noticed if it is a long one."""

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
    """How many a server has, beside this one that asks."""
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
    """No coordination at all for a while: brokers go on serving."""
    for node in range(ENSEMBLE):
        scene.cluster.zookeeper.kill(node)
    scene.linger()
    for node in range(ENSEMBLE):
        scene.cluster.zookeeper.restart(node, wait=node == ENSEMBLE - 1)


def _reassign(scene: Scene) -> None:
    """Replicas of some partitions in another order, first one fewer: the leader moves, one leaves and comes back."""
    for _ in range(3):
        topic, partition = scene.some_place()
        replicas = list(scene.nodes.broker_ids)
        scene.dice.shuffle(replicas)
        scene.say(f"{topic}-{partition} to {replicas[:2]}, then {replicas}")
        for wanted in (replicas[:2], replicas):
            reassign(scene.nodes.bootstrap_servers, topic, partition, wanted)
            scene.witness.look()


def _elect(scene: Scene) -> None:
    """Others than their leaders become the first replica of some partitions, and are elected."""
    wanted: dict[tuple[str, int], int] = {}
    for _ in range(3):
        topic, partition = scene.some_place()
        leader = _leader_of(scene, topic, partition)
        others = [broker for broker in scene.nodes.broker_ids if broker != leader]
        scene.dice.shuffle(others)
        reassign(scene.nodes.bootstrap_servers, topic, partition, [*others, leader])
        wanted[topic, partition] = others[0]
    scene.say(f"leaders: {wanted}")
    elect_preferred(scene.nodes.bootstrap_servers)
    for (topic, partition), leader in wanted.items():
        _await(partial(_leads, scene, topic, partition, leader), f"{leader} was not elected for {topic}-{partition}")


def _leads(scene: Scene, topic: str, partition: int, leader: int) -> bool:
    return scene.nodes.leader_of(topic, partition) == leader


def _kill_under_reassignment(scene: Scene) -> None:
    """A broker dies while replicas move."""
    apart = replace(scene, dice=random.Random(scene.dice.random()))  # who throws first must not decide anything
    with ThreadPoolExecutor(1) as threads:
        moving = threads.submit(_reassign, apart)
        _of(_leader, _kill)(scene)
        moving.result()


WHO = {"leader": _leader, "follower": _follower, "controller": _controller, "coordinator": _coordinator}
HOW: dict[str, Callable[[Scene, int], None]] = {
    "kill": _kill,
    "stop": _stop,
    "pause": _pause,
    "isolate": _isolate("both"),
    "deafen": _isolate("in"),
    "mute": _isolate("out"),
}
ENSEMBLE = 3  # ZooKeeper's servers
FAULTS: dict[str, Callable[[Scene], None]] = {
    **{f"{how}-{who}": _of(WHO[who], HOW[how]) for how in HOW for who in WHO},
    "kill-all": _kill_each(_shuffled),
    "pause-all": _pause_each(_everybody),
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
SORTS: dict[str, list[str]] = {  # what a run of the matrix has, every fault in one of them
    "kill": [f"{how}-{who}" for how in ("kill", "stop") for who in WHO],
    "pause": [*(f"pause-{who}" for who in WHO), "jump-clock"],
    "isolate": [f"{how}-{who}" for how in ("isolate", "deafen", "mute") for who in WHO],
    "zookeeper": [
        *(f"{how}-zookeeper" for how in ("kill", "pause", "isolate", "deafen", "mute")),
        "kill-ensemble",
        "expire-session",
    ],
    "all": ["kill-all", "pause-all", "kill-others", "pause-others", "isolate-all", "rolling-restart"],
    "move": ["reassign", "elect", "kill-under-reassignment"],
}  # fmt: skip
ANYWHERE = [  # what Apache Kafka can be put through too
    *(f"{how}-{who}" for how in ("kill", "stop", "pause") for who in WHO), "kill-all", "pause-all", "rolling-restart",
    "elect", "reassign",
]  # fmt: skip
BACK_S = 120.0


def await_in_sync(scene: Scene) -> None:
    """Every partition has all its replicas in sync again."""
    until, everybody = time.monotonic() + BACK_S, set(scene.nodes.broker_ids)
    while True:
        behind = _behind(scene, everybody)
        if not behind:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"not in sync within {BACK_S:.0f} s: {', '.join(behind)}")
        time.sleep(0.1)


def _behind(scene: Scene, everybody: set[int]) -> list[str]:
    rows = []
    for topic, partitions in scene.topics.items():
        for partition in range(partitions):
            try:
                found = scene.nodes.in_sync(topic, partition)
            except (OSError, LookupError, KafkaException) as failure:
                return [repr(failure)]
            if found != everybody:
                rows.append(f"{topic}-{partition} {sorted(found)}")
    return rows
