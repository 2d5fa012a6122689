"""World: three simulated brokers and a controller, with restarts, registrations, elections and the guarantees.

The controller consists of the pure decisions of `moldau.metadata` and the handler of AlterPartition. It never fails,
but may be unreachable. A pipe brings each change to each broker, as the change feed does.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from chaos.simulation.broker import SimulatedBroker
from chaos.simulation.committed import Committed, same
from chaos.simulation.network import Network, Pipe
from moldau.base.errors import Refusal
from moldau.broker.apis.alter_partition import alter_partitions
from moldau.log.settings import LogConfig
from moldau.metadata.changes import (
    BrokerLeaving,
    BrokerRegistered,
    Change,
    ChangeSet,
    Decide,
    TopicCreated,
    apply,
    decide_each,
)
from moldau.metadata.elections import (
    ElectionRules,
    broker_failure_changes,
    controlled_shutdown_changes,
    leader_and_isr_changes,
    leader_rebalance_changes,
    unclean_shutdown_changes,
)
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState
from moldau.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, AlterPartitionTopic

IDS = (1, 2, 3)
TOPIC, TOPIC_ID = "topic", UUID("5f0e8d2c-7f3a-4a59-9b0e-3a2f7c1d9e44")
DETECTION_S = (0.02, 0.3)  # until the controller detects a dead process
SESSION_S = 3.0  # an unreachable broker stays registered so long
CONTROLLER = Network.CONTROLLER


class World:
    def __init__(self, home: Path, dice: random.Random, *, partitions: int, config: LogConfig) -> None:
        self.dice, self.config = dice, config
        self.network = Network(dice)
        self.rules = ElectionRules(lambda _: config.min_insync_replicas, lambda _: False)
        self.committed = [Committed(f"{TOPIC}-{index}") for index in range(partitions)]
        self.answers_lost = 0.0  # the share of the controller's responses that are lost
        self._home = home
        self._brokers: dict[int, SimulatedBroker] = {}
        self._feeds: dict[int, Pipe] = {}
        self._checked: dict[tuple[int, int], int] = {}  # by broker and partition: the offset checked so far
        self.image = self._founded(partitions)

    def _founded(self, partitions: int) -> ClusterImage:
        image = ClusterImage()
        for each in IDS:
            image = apply(image, BrokerRegistered(Broker(each, {})))
        order = [IDS[shift:] + IDS[:shift] for shift in range(3)]
        states = tuple(PartitionState(n, order[n % 3], order[n % 3], order[n % 3][0]) for n in range(partitions))
        return apply(image, TopicCreated(TOPIC, TOPIC_ID, states, {}))

    def broker(self, broker_id: int) -> SimulatedBroker | None:
        return self._brokers.get(broker_id)

    @property
    def alive(self) -> list[SimulatedBroker]:
        return list(self._brokers.values())

    # ── processes ──

    def begin(self) -> None:
        for each in IDS:
            self._start(each, trusted=True).epoch = self.image.brokers[each].epoch

    def _start(self, broker_id: int, *, trusted: bool) -> SimulatedBroker:
        broker = SimulatedBroker(self, broker_id, self._home / str(broker_id), self.image)
        self._brokers[broker_id] = broker
        self._feeds[broker_id] = self.network.pipe(CONTROLLER, broker_id)
        for index in range(len(self.committed)):
            self._checked[broker_id, index] = 0
        broker.start(trusted=trusted)
        return broker

    def restart(self, broker_id: int, *, trusted: bool = True) -> None:
        broker = self._start(broker_id, trusted=trusted)
        self._register(broker, trusted=trusted)

    def _register(self, broker: SimulatedBroker, *, trusted: bool) -> None:
        """Register a broker. A moment later the controller updates its partitions."""
        known = broker.id in self.image.brokers
        doubts = () if trusted else unclean_shutdown_changes(self.image, broker.id, self.rules)
        self.decide(*doubts, BrokerRegistered(Broker(broker.id, {})))
        broker.epoch = self.image.brokers[broker.id].epoch
        self._soon(lambda: self.decide(*leader_and_isr_changes(self.image, self.rules, [broker.id] if known else [])))

    async def kill(self, broker_id: int, *, power: bool = False) -> None:
        self.check()
        broker = self._brokers.pop(broker_id)
        self._end_feed(broker_id)
        await broker.kill(power=self.dice if power else None)
        asyncio.get_running_loop().call_later(self.dice.uniform(*DETECTION_S), self._dead, broker_id, broker.epoch)

    async def stop(self, broker_id: int) -> None:
        """Stop a broker, with a controlled shutdown if the controller is reachable."""
        broker = self._brokers[broker_id]
        if self._in_touch(broker_id):
            self.decide(BrokerLeaving(broker_id), *controlled_shutdown_changes(self.image, broker_id, self.rules))
            await asyncio.sleep(0.05)
        self.check()
        del self._brokers[broker_id]
        self._end_feed(broker_id)
        await broker.stop()
        self._dead(broker_id, broker.epoch)

    def _end_feed(self, broker_id: int) -> None:
        feed = self._feeds.pop(broker_id)
        feed.clear()
        feed.used = False

    def _dead(self, broker_id: int, epoch: int) -> None:
        registered = self.image.brokers.get(broker_id)
        if registered is not None and registered.epoch == epoch:
            self.decide(*broker_failure_changes(self.image, [broker_id], self.rules))

    # ── connectivity ──

    def cut(self, source: int, target: int) -> None:
        self.network.cut.add((source, target))
        if CONTROLLER in (source, target):
            broker_id = source or target
            broker = self._brokers.get(broker_id)
            if broker is not None:
                asyncio.get_running_loop().call_later(SESSION_S, self._expire, broker_id, broker.epoch)

    def _expire(self, broker_id: int, epoch: int) -> None:
        if not self._in_touch(broker_id):
            self._dead(broker_id, epoch)

    def _in_touch(self, broker_id: int) -> bool:
        return self.network.reaches(broker_id, CONTROLLER) and self.network.reaches(CONTROLLER, broker_id)

    def heal(self) -> None:
        self.network.heal()
        for broker in self.alive:
            registered = self.image.brokers.get(broker.id)
            if registered is None or registered.epoch != broker.epoch:
                self._register(broker, trusted=True)

    def _soon(self, work: Any) -> None:
        asyncio.get_running_loop().call_later(self.network.latency() * 3, work)

    # ── the controller ──

    def decide(self, *changes: Change) -> None:
        if not changes:
            return
        self.image = image = apply(self.image, ChangeSet(changes))
        for broker_id, feed in self._feeds.items():
            broker = self._brokers[broker_id]
            feed.put(lambda broker=broker: broker.learn(image))  # type: ignore[misc]

    def rebalance(self) -> None:
        self.decide(*leader_rebalance_changes(self.image, 0, self.rules))

    async def alter(
        self, asker: int, epoch: int, topics: Sequence[AlterPartitionTopic]
    ) -> AlterPartitionResponse | None:
        request = AlterPartitionRequest(broker_id=asker, broker_epoch=epoch, topics=tuple(topics))
        await self._travel(asker, CONTROLLER)
        answer = await alter_partitions(self._context(), request, SimpleNamespace())  # type: ignore[arg-type]
        await self._travel(CONTROLLER, asker)
        return None if self.dice.random() < self.answers_lost else answer

    async def _travel(self, source: int, target: int) -> None:
        arrived = asyncio.Event()
        pipe = self.network.pipe(source, target)
        pipe.put(arrived.set)
        try:
            await arrived.wait()
        finally:
            pipe.used = False

    def _context(self) -> Any:
        """The controller's context for the handler of AlterPartition."""
        controller = SimpleNamespace(leads=True, submit_each=self._submit_each, feed=SimpleNamespace(catch_up=_nothing))
        return _ControllersContext(self, controller)

    async def _submit_each(self, decides: Sequence[Decide]) -> list[Change | Refusal]:
        decisions = decide_each(self.image, decides)
        self.decide(*(each for each in decisions if not isinstance(each, Refusal)))
        return decisions

    # ── guarantees ──

    def check(self) -> None:
        """Check that committed records are below every high watermark, and acknowledged records are committed."""
        for broker in self.alive:
            for partition in broker.partitions():
                key = (broker.id, partition.index)
                committed = self.committed[partition.index]
                self._checked[key] = committed.look(f"broker {broker.id}", partition, self._checked[key])
        for committed in self.committed:
            committed.check_acknowledged()

    def unrest(self) -> str:
        """Why the cluster is not in sync yet; empty if it is."""
        if len(self._brokers) < len(IDS):
            return "a broker is dead"
        for state in self.image.topics[TOPIC].partitions:
            if state.leader == NO_BROKER or len(state.isr) < len(IDS):
                return f"{state}"
        for broker in self.alive:
            if broker.image is not self.image:
                return f"broker {broker.id} does not know the newest image"
            for partition in broker.partitions():
                if partition.high_watermark != self.end_of(partition.index):
                    return f"broker {broker.id}: {partition.index} is committed to {partition.high_watermark}"
        return ""

    def end_of(self, index: int) -> int:
        """The largest log end offset of any replica."""
        return max(broker.replicas.get(TOPIC, index).log.end_offset for broker in self.alive)  # type: ignore[union-attr]

    def check_rest(self) -> None:
        self.check()
        for index, committed in enumerate(self.committed):
            committed.check_acknowledged(all_of_them=True)
            same(committed.name, [(each.id, each.replicas.get(TOPIC, index)) for each in self.alive])  # type: ignore[misc]


class _ControllersContext:
    def __init__(self, world: World, controller: Any) -> None:
        self._world = world
        self.controller = controller

    @property
    def image(self) -> ClusterImage:
        return self._world.image

    def rules(self, image: ClusterImage) -> ElectionRules:
        return self._world.rules


async def _nothing(*, sync: bool) -> None:
    """The controller's image is always the newest."""
