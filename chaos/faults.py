"""What is done to a cluster: a table of faults by name. Each ends what it began; the next finds a whole cluster.

Knows nothing of clients but the names of their topics and groups.
"""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from chaos.reassigning import elect_preferred, reassign

Direction = Literal["both", "in", "out"]
ASK_S = 10.0
SHORT_S, LONG_S = 0.3, 7.0  # how long a fault lasts: from a hiccup to far beyond the session's end
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
    groups: list[str]
    say: Callable[[str], None]

    @property
    def nodes(self) -> Nodes:
        nodes: Nodes = self.cluster
        return nodes

    def some_place(self) -> tuple[str, int]:
        topic = self.dice.choice(sorted(self.topics))
        return topic, self.dice.randrange(self.topics[topic])

    def linger(self) -> None:
        """For as long as the fault lasts: mostly short, sometimes long."""
        time.sleep(SHORT_S + (LONG_S - SHORT_S) * self.dice.random() ** 2)


def _leader(scene: Scene) -> int:
    topic, partition = scene.some_place()
    found = scene.nodes.leader_of(topic, partition)
    return found if found in scene.nodes.broker_ids else scene.dice.choice(scene.nodes.broker_ids)


def _follower(scene: Scene) -> int:
    leader = _leader(scene)
    return scene.dice.choice([each for each in scene.nodes.broker_ids if each != leader])


def _controller(scene: Scene) -> int:
    return scene.nodes.controller


def _coordinator(scene: Scene) -> int:
    """Of a group, or whoever leads something if there is none."""
    if not scene.groups:
        return _leader(scene)
    group = scene.dice.choice(scene.groups)
    admin = AdminClient({"bootstrap.servers": scene.nodes.bootstrap_servers, "log_level": 0})
    try:
        found = admin.describe_consumer_groups([group], request_timeout=ASK_S)[group].result()
    except KafkaException:
        return _leader(scene)
    return int(found.coordinator.id)


def _kill(scene: Scene, broker: int) -> None:
    scene.nodes.kill(broker)
    scene.linger()
    scene.nodes.start(broker)


def _stop(scene: Scene, broker: int) -> None:
    scene.nodes.stop(broker)
    scene.linger()
    scene.nodes.start(broker)


def _pause(scene: Scene, broker: int) -> None:
    scene.nodes.pause(broker)
    scene.linger()
    scene.nodes.resume(broker)


def _isolate(direction: Direction) -> Callable[[Scene, int], None]:
    def run(scene: Scene, broker: int) -> None:
        scene.cluster.isolate(broker, direction)
        scene.linger()
        scene.cluster.heal()

    return run


def _expire(scene: Scene, broker: int) -> None:
    """ZooKeeper hears nothing of the broker until its session has ended; brokers and clients do."""
    scene.cluster.isolate_from_zookeeper(broker)
    time.sleep(LONG_S)
    scene.cluster.heal()


def _jump(scene: Scene, broker: int) -> None:
    scene.cluster.broker(broker).pass_time(scene.dice.choice(JUMPS))


def _of(who: Callable[[Scene], int], how: Callable[[Scene, int], None]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        broker = who(scene)
        scene.say(f"broker {broker}")
        how(scene, broker)

    return run


def _kill_all(scene: Scene) -> None:
    brokers = list(scene.nodes.broker_ids)
    scene.dice.shuffle(brokers)
    for broker in brokers:
        scene.nodes.kill(broker)
    scene.linger()
    _start_all(scene, brokers)


def _pause_all(scene: Scene) -> None:
    for broker in scene.nodes.broker_ids:
        scene.nodes.pause(broker)
    scene.linger()
    for broker in scene.nodes.broker_ids:
        scene.nodes.resume(broker)


def _start_all(scene: Scene, brokers: list[int]) -> None:
    with ThreadPoolExecutor(len(brokers)) as threads:
        list(threads.map(scene.nodes.start, brokers))


def _roll(scene: Scene) -> None:
    """One after the other in order, each back in sync before the next goes."""
    for broker in scene.nodes.broker_ids:
        scene.nodes.stop(broker)
        scene.nodes.start(broker)
        await_in_sync(scene)


def _kill_zookeeper(scene: Scene) -> None:
    node = scene.dice.randrange(ENSEMBLE)
    scene.cluster.zookeeper.kill(node)
    scene.linger()
    scene.cluster.zookeeper.restart(node)


def _pause_zookeeper(scene: Scene) -> None:
    node = scene.dice.randrange(ENSEMBLE)
    scene.cluster.zookeeper.pause(node)
    scene.linger()
    scene.cluster.zookeeper.resume(node)


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


def _elect(scene: Scene) -> None:
    elect_preferred(scene.nodes.bootstrap_servers)


def _kill_under_reassignment(scene: Scene) -> None:
    """A broker dies while replicas move."""
    moving = threading.Thread(target=_reassign, args=(scene,), daemon=True)
    moving.start()
    _of(_leader, _kill)(scene)
    moving.join()


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
    "kill-all": _kill_all,
    "pause-all": _pause_all,
    "rolling-restart": _roll,
    "kill-zookeeper": _kill_zookeeper,
    "pause-zookeeper": _pause_zookeeper,
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
    "zookeeper": ["kill-zookeeper", "pause-zookeeper", "kill-ensemble", "expire-session"],
    "all": ["kill-all", "pause-all", "rolling-restart"],
    "move": ["reassign", "elect", "kill-under-reassignment"],
}
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
