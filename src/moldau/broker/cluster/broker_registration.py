"""BrokerRegistration: keeps the broker registered while it runs, and takes part in controller elections.

The registration and the controller's claim are ephemeral nodes of a broker's session with the metadata store. A lost
registration (an expired session, or a false alarm of failure detection) is made again. A lost controller is replaced by
the first broker that claims its node.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import TopicPartition
from moldau.broker.cluster.controller_loop import PAUSE_S, ControllerLoop
from moldau.broker.cluster.failure_detector import FailureDetector, WatchedBroker
from moldau.broker.controller import Controller
from moldau.metadata import features, znodes
from moldau.metadata.changes import (
    BrokerGone,
    BrokerRegistered,
    Change,
    ChangeSet,
    ControllerElected,
    ProducerIdsAllocated,
    TopicCreated,
)
from moldau.metadata.elections import ElectionRules, unclean_shutdown_changes
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage
from moldau.net.peer import Address
from moldau.store.port import StoreError, StoreUnavailable

logger = logging.getLogger("moldau.broker")

RESTART_PAUSE_S = 1.0  # before a loop that failed is restarted

NOT_NEEDED = Refusal(WireError.ELECTION_NOT_NEEDED, "The cluster has a controller.")


class Findings(NamedTuple):
    """What a starting broker found in its log directories that the cluster must know."""

    trusted: bool = True  # False: unflushed data may be lost
    unsound: Collection[TopicPartition] = ()  # partitions without usable data
    last_producer_id: int = -1  # the greatest in its logs: it must not be allocated again


NO_FINDINGS = Findings()


class BrokerRegistration:
    """`listener_name` is the inter-broker listener; `rules(image)` are the election rules of the settings."""

    def __init__(
        self, controller: Controller, node_id: int, listener_name: str, rules: Callable[[ClusterImage], ElectionRules]
    ) -> None:
        self._controller = controller
        self._node_id = node_id
        self._listener_name = listener_name
        self._rules = rules
        self._broker: Broker | None = None
        self._epoch = -1  # of the last registration
        self._leaving = False
        self._controller_loop = ControllerLoop(controller, rules)
        self._failure_detector = FailureDetector(node_id, self._died)
        self._registration_lost = asyncio.Event()  # set when this broker's node may be gone
        self._elections: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.on_replaced: Callable[[str], None] = logger.error  # called when another broker registers with this id
        controller.feed.own_id = node_id
        controller.on_image(self._follow)

    @property
    def epoch(self) -> int:
        """The broker epoch."""
        return self._epoch

    async def create_cluster(self, brought: Sequence[Change]) -> None:
        """Become the controller of a new cluster, with these first changes. Raises StoreUnavailable."""

        def decide(image: ClusterImage) -> Change | Refusal:
            if image.controller_epoch > 0:
                return NOT_NEEDED
            # An earlier attempt may have failed half-way. The election is the last change: it ends the founding.
            new = (each for each in brought if not (isinstance(each, TopicCreated) and each.topic in image.topics))
            return ChangeSet((*new, ControllerElected(self._node_id)))

        result = await self._controller.claim(decide)
        if isinstance(result, Refusal) and result is not NOT_NEEDED:
            raise StoreUnavailable(result.message)

    async def start(self, broker: Broker, findings: Findings) -> None:
        """Register, and start the loops. Raises StoreUnavailable."""
        self._broker = broker
        refusal = await self._register(findings)
        if refusal is not None:
            raise StoreUnavailable(refusal.message)
        if self._controller.leads:
            self._controller_loop.elected()
        loop = asyncio.get_running_loop()
        feed = self._controller.feed
        feed.store.on_session(self._registration_lost.set)
        loops: dict[str, Callable[[], Coroutine[object, object, None]]] = {
            "metadata feed": feed.follow,
            "broker registration": self._stay_registered,
            "controller election": self._keep_a_controller,
            "controller loop": self._controller_loop.work,
            "watch of registrations": self._controller_loop.watch_registrations,
        }
        self._tasks = [loop.create_task(_run_forever(name, work)) for name, work in loops.items()]
        self._watch_others(self._controller.image)

    def begin_shutdown(self) -> None:
        """Do not register again and do not run for controller from now on."""
        self._leaving = True

    async def stop(self) -> None:
        """The registration ends with the session."""
        self._leaving = True
        await self._failure_detector.stop()
        tasks = [*self._tasks, *self._elections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def rebalance_leaders(self, percentage: int) -> None:
        """leader.imbalance.per.broker.percentage"""
        await self._controller_loop.rebalance_leaders(percentage)

    # ── registration ──

    async def _register(self, found: Findings = NO_FINDINGS) -> Refusal | None:
        broker = self._broker
        assert broker is not None

        def decide(image: ClusterImage) -> Change | Refusal:
            doubts = unclean_shutdown_changes(
                image, broker.id, self._rules(image), found.unsound if found.trusted else None
            )
            here: tuple[Change, ...] = (*doubts, BrokerRegistered(broker))
            if found.last_producer_id >= image.next_producer_id:  # the store was restored from an older state
                here += (ProducerIdsAllocated(broker.id, found.last_producer_id + 1),)
            if image.controller_id != broker.id or broker.id not in image.brokers or self._controller.leads:
                return ChangeSet(here)
            # An earlier incarnation of this broker was the controller, and its session has not expired yet.
            return ChangeSet((BrokerGone(broker.id), *here, ControllerElected(broker.id)))

        earlier = broker.id in self._controller.image.brokers
        led = self._controller.leads
        result = await self._controller.claim(decide)
        if isinstance(result, Refusal):
            return result
        self._epoch = self._controller.image.brokers[broker.id].epoch
        logger.info("Registered as broker %d, broker epoch %d", broker.id, self._epoch)
        if self._controller.leads and not led:
            self._controller_loop.elected(restarted=(broker.id,) if earlier else ())
        return None

    async def _stay_registered(self) -> None:
        path = znodes.broker_path(self._node_id)
        store = self._controller.feed.store
        while True:
            try:
                changed = await store.watch_data(path)
                changed.add_done_callback(lambda _: self._registration_lost.set())
                node = await store.get(path)
                there = None if node is None else znodes.parse_broker(node.data)
                known = self._controller.image.brokers.get(self._node_id)
                if there is not None and self._is_another(there):
                    self._give_way(there)
                elif there is None or there.epoch != self._epoch or known is None:
                    await self._register_again()
                await self._registration_lost.wait()
                self._registration_lost.clear()
                changed.cancel()
            except StoreError:
                await asyncio.sleep(PAUSE_S)

    def _is_another(self, registered: Broker) -> bool:
        """Whether another process has registered with this id since."""
        assert self._broker is not None
        return registered.epoch > self._epoch and registered.endpoints != self._broker.endpoints

    def _give_way(self, other: Broker) -> None:
        """Stop this broker: two brokers with one id would fence each other again and again."""
        if not self._leaving:
            self._leaving = True
            where = ", ".join(f"{host}:{port}" for host, port in other.endpoints.values())
            self.on_replaced(f"broker id {other.id} is now in use by another broker at {where}")

    async def _register_again(self) -> None:
        if self._leaving:
            return
        logger.warning("Broker %d lost its registration; registering again", self._node_id)
        refusal = await self._register()
        if refusal is not None:
            logger.warning("Broker %d could not register; retrying: %s", self._node_id, refusal.message)
            await asyncio.sleep(PAUSE_S)
            self._registration_lost.set()

    # ── controller election ──

    async def _keep_a_controller(self) -> None:
        store = self._controller.feed.store
        while True:
            try:
                changed = await store.watch_data(znodes.CONTROLLER)
                if await store.exists(znodes.CONTROLLER):
                    await self._recognize()
                    await changed
                elif self._leaving:
                    await changed
                else:  # then check again: a controller elected meanwhile may be gone, too
                    await self._run_for_controller(NO_BROKER)
            except StoreError:
                await asyncio.sleep(PAUSE_S)

    async def _recognize(self) -> None:
        """Take office if this broker was elected and the response was lost: no other broker will run."""
        await self._controller.feed.catch_up()
        if self._controller.image.controller_id == self._node_id and not self._controller.leads:
            self._controller.take_office(self._node_id)
            self._start_controller_loop()

    async def _run_for_controller(self, dead: int) -> None:
        """Claim the controller's node, unless another broker was first. `dead`: the controller that is replaced."""
        known_epoch = self._controller.image.controller_epoch

        def decide(image: ClusterImage) -> Change | Refusal:
            if image.controller_epoch != known_epoch:
                return NOT_NEEDED
            new: list[Change] = [ControllerElected(self._node_id)]
            if image.features_epoch < 0:
                new.append(features.newest())
            if image.controller_id == dead and dead in image.brokers:
                # Deletes its two nodes, if they are still there.
                new.insert(0, BrokerGone(dead, expired=dead in self._controller.feed.unregistered))
            return ChangeSet(tuple(new))

        if self._leaving:
            return
        result = await self._controller.claim(decide)
        if isinstance(result, Refusal):
            await asyncio.sleep(PAUSE_S if result is not NOT_NEEDED else 0)
            return
        self._start_controller_loop()

    def _start_controller_loop(self) -> None:
        logger.info(
            "Broker %d is the controller, controller epoch %d", self._node_id, self._controller.image.controller_epoch
        )
        self._controller_loop.elected()
        self._watch_others(self._controller.image)

    # ── other brokers ──

    def _died(self, broker: WatchedBroker) -> None:
        if self._controller.leads:
            self._controller_loop.died(broker)
        elif self._controller.image.controller_id == broker.broker_id and not self._elections:
            task = asyncio.get_running_loop().create_task(self._replace(broker.broker_id))
            self._elections.add(task)
            task.add_done_callback(self._elections.discard)

    async def _replace(self, dead: int) -> None:
        try:
            await self._run_for_controller(dead)
        except StoreError as problem:
            logger.warning("Cannot replace the failed controller yet; retrying: %s", problem)

    def _follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self._controller_loop.follow(old, new)
        if self._epoch < 0 or self._leaving:
            return
        if old.brokers is not new.brokers or old.controller_id != new.controller_id:
            self._watch_others(new)
        ours = new.brokers.get(self._node_id)
        if ours is None or ours.epoch < self._epoch:
            self._registration_lost.set()

    def _watch_others(self, image: ClusterImage) -> None:
        """The controller watches all brokers, the others watch the controller."""
        watched = {}
        for broker in image.brokers.values():
            endpoint = broker.endpoints.get(self._listener_name)
            of_interest = self._controller.leads or broker.id == image.controller_id
            if of_interest and broker.id != self._node_id and endpoint is not None:
                watched[broker.id] = WatchedBroker(broker.id, broker.epoch, Address(endpoint.host, endpoint.port))
        self._failure_detector.watch(watched)


async def _run_forever(name: str, work: Callable[[], Coroutine[object, object, None]]) -> None:
    """Run a loop and restart it after an exception, which is logged."""
    while True:
        try:
            await work()
        except Exception:
            logger.exception("The %s failed; restarting it", name)
        await asyncio.sleep(RESTART_PAUSE_S)
