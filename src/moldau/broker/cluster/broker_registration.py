"""A broker's place in its cluster: registered as long as it runs, and the controller if it is elected.

Registration and candidacy are ephemeral nodes of the broker's session with the store. The broker looks after both: a
node that is gone (the session expired, or somebody took the broker for dead) is made again, and a controller that is
gone is replaced by whoever is first. Nothing here needs a restart, and nothing here keeps clients waiting.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, NamedTuple

from moldau.base.errors import Refusal, WireError
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
from moldau.metadata.elections import ElectionRules, TopicPartition, unclean_shutdown_changes
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage
from moldau.net.peer import Address
from moldau.store.port import StoreError, StoreUnavailable

logger = logging.getLogger("moldau.broker")

RESTART_PAUSE_S = 1.0  # before a work that failed begins again

NOT_NEEDED = Refusal(WireError.ELECTION_NOT_NEEDED, "There is a controller.")


class Findings(NamedTuple):
    """What a broker that starts has found on its disks, as far as it concerns the others."""

    trusted: bool = True  # otherwise what was written last may be lost
    unsound: Collection[TopicPartition] = ()  # partitions of which it has nothing to offer
    last_producer_id: int = -1  # the greatest that its logs know: nobody else may get it


NO_FINDINGS = Findings()


class BrokerRegistration:
    """`listener_name` is the one that brokers meet on; `rules(image)` says what topics' settings demand."""

    def __init__(
        self, controller: Controller, node_id: int, listener_name: str, rules: Callable[[ClusterImage], ElectionRules]
    ) -> None:
        self._controller = controller
        self._node_id = node_id
        self._listener_name = listener_name
        self._rules = rules
        self._broker: Broker | None = None
        self._epoch = -1  # of the registration that counts
        self._leaving = False
        self._controller_loop = ControllerLoop(controller, rules)
        self._failure_detector = FailureDetector(node_id, self._died)
        self._registration_lost = asyncio.Event()  # the node of this broker may be gone
        self._elections: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.on_replaced: Callable[[str], None] = logger.error  # told that another broker has this one's id
        controller.feed.own_id = node_id
        controller.on_image(self._follow)

    @property
    def epoch(self) -> int:
        """Of this broker, as the others know it."""
        return self._epoch

    async def create_cluster(self, brought: Sequence[Change]) -> None:
        """The first broker of a new cluster becomes its controller, with what it brings along.

        StoreUnavailable if that cannot be now.
        """

        def decide(image: ClusterImage) -> Change | Refusal:
            if image.controller_epoch > 0:
                return NOT_NEEDED
            # An earlier attempt may have ended half-way. Election comes last: from then on it is no new cluster.
            new = (each for each in brought if not (isinstance(each, TopicCreated) and each.topic in image.topics))
            return ChangeSet((*new, ControllerElected(self._node_id)))

        result = await self._controller.claim(decide)
        if isinstance(result, Refusal) and result is not NOT_NEEDED:
            raise StoreUnavailable(result.message)

    async def start(self, broker: Broker, findings: Findings) -> None:
        """From here on the others know this broker. StoreUnavailable if that cannot be now."""
        self._broker = broker
        refusal = await self._register(findings)
        if refusal is not None:
            raise StoreUnavailable(refusal.message)
        if self._controller.leads:
            self._controller_loop.elected()
        loop = asyncio.get_running_loop()
        feed = self._controller.feed
        feed.store.on_session(self._registration_lost.set)
        works = (
            feed.follow,
            self._stay_registered,
            self._keep_a_controller,
            self._controller_loop.work,
            self._controller_loop.watch_registrations,
        )
        self._tasks = [loop.create_task(_run_forever(work)) for work in works]
        self._watch_others(self._controller.image)

    def begin_shutdown(self) -> None:
        """This broker is about to go: whoever takes it for dead from here on is right."""
        self._leaving = True

    async def stop(self) -> None:
        """The registration goes with the session."""
        self._leaving = True
        await self._failure_detector.stop()
        tasks = [*self._tasks, *self._elections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def rebalance_leaders(self, percentage: int) -> None:
        """leader.imbalance.per.broker.percentage"""
        await self._controller_loop.rebalance_leaders(percentage)

    # ── being registered ──

    async def _register(self, found: Findings = NO_FINDINGS) -> Refusal | None:
        broker = self._broker
        assert broker is not None

        def decide(image: ClusterImage) -> Change | Refusal:
            doubts = unclean_shutdown_changes(
                image, broker.id, self._rules(image), found.unsound if found.trusted else None
            )
            here: tuple[Change, ...] = (*doubts, BrokerRegistered(broker))
            if found.last_producer_id >= image.next_producer_id:  # the store was set back to an earlier time
                here += (ProducerIdsAllocated(broker.id, found.last_producer_id + 1),)
            if image.controller_id != broker.id or broker.id not in image.brokers or self._controller.leads:
                return ChangeSet(here)
            # An earlier life of this broker was the controller, and its session is not over yet.
            return ChangeSet((BrokerGone(broker.id), *here, ControllerElected(broker.id)))

        earlier = broker.id in self._controller.image.brokers
        led = self._controller.leads
        result = await self._controller.claim(decide)
        if isinstance(result, Refusal):
            return result
        self._epoch = self._controller.image.brokers[broker.id].epoch
        logger.info("registered as broker %d, epoch %d", broker.id, self._epoch)
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
        """Whether it is not this process that was registered last under this id."""
        assert self._broker is not None
        return registered.epoch > self._epoch and registered.endpoints != self._broker.endpoints

    def _give_way(self, other: Broker) -> None:
        """Two that register in turn would take everything from each other, again and again. The one before goes."""
        if not self._leaving:
            self._leaving = True
            where = ", ".join(f"{host}:{port}" for host, port in other.endpoints.values())
            self.on_replaced(f"broker id {other.id} is in use by another broker now, at {where}")

    async def _register_again(self) -> None:
        if self._leaving:
            return
        logger.warning("broker %d is not registered any more, and registers again", self._node_id)
        refusal = await self._register()
        if refusal is not None:
            logger.warning("broker %d could not register: %s", self._node_id, refusal.message)
            await asyncio.sleep(PAUSE_S)
            self._registration_lost.set()

    # ── having a controller ──

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
                else:  # then look again: a controller that was elected meanwhile may be gone meanwhile
                    await self._run_for_controller(NO_BROKER)
            except StoreError:
                await asyncio.sleep(PAUSE_S)

    async def _recognize(self) -> None:
        """An election of this broker whose answer was lost with the connection counts: nobody else will stand."""
        await self._controller.feed.catch_up()
        if self._controller.image.controller_id == self._node_id and not self._controller.leads:
            self._controller.take_office(self._node_id)
            self._start_controller_loop()

    async def _run_for_controller(self, dead: int) -> None:
        """Be elected, unless somebody else was first. `dead` is the controller whose nodes may still be there."""
        known_epoch = self._controller.image.controller_epoch

        def decide(image: ClusterImage) -> Change | Refusal:
            if image.controller_epoch != known_epoch:
                return NOT_NEEDED
            new: list[Change] = [ControllerElected(self._node_id)]
            if image.features_epoch < 0:
                new.append(features.newest())
            if image.controller_id == dead and dead in image.brokers:
                # Takes its two nodes away, unless they are gone.
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
        logger.info("broker %d is the controller, epoch %d", self._node_id, self._controller.image.controller_epoch)
        self._controller_loop.elected()
        self._watch_others(self._controller.image)

    # ── the others ──

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
            logger.warning("the dead controller cannot be replaced yet: %s", problem)

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
        """The controller watches all, the others the controller."""
        watched = {}
        for broker in image.brokers.values():
            endpoint = broker.endpoints.get(self._listener_name)
            of_interest = self._controller.leads or broker.id == image.controller_id
            if of_interest and broker.id != self._node_id and endpoint is not None:
                watched[broker.id] = WatchedBroker(broker.id, broker.epoch, Address(endpoint.host, endpoint.port))
        self._failure_detector.watch(watched)


async def _run_forever(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Nobody waits for these works, and one that failed would be missed when it is needed: it is told, and goes on."""
    while True:
        try:
            await work()
        except Exception:
            logger.exception("a member's work failed, and begins again")
        await asyncio.sleep(RESTART_PAUSE_S)
