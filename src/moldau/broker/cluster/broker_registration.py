"""BrokerRegistration: keeps the broker registered while it runs, and runs the loops of its part in the cluster.

The registration is an ephemeral node of the broker's session with the metadata store. A lost registration (after an
expired session, or a false alarm of failure detection) is made again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import NamedTuple

from moldau.base.errors import Refusal
from moldau.base.ids import Epoch, TopicPartition
from moldau.broker.cluster.controller_election import ControllerElection
from moldau.broker.cluster.controller_loop import PAUSE_S, ControllerLoop
from moldau.broker.cluster.failure_detector import FailureDetector, WatchedBroker
from moldau.broker.controller import Controller
from moldau.metadata import znodes
from moldau.metadata.changes import (
    BrokerGone,
    BrokerRegistered,
    Change,
    ChangeSet,
    ControllerElected,
    ProducerIdsAllocated,
)
from moldau.metadata.elections import ElectionRules, unclean_shutdown_changes
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage
from moldau.net.peer import Address, Connect
from moldau.net.tasks import cancel
from moldau.store.port import StoreError, StoreUnavailable

logger = logging.getLogger("moldau.broker")

RESTART_PAUSE_S = 1.0  # before a loop that failed is restarted
ELECTION_TIMEOUT_S = 10.0  # a broker that starts is then ready without a controller


class Findings(NamedTuple):
    """Findings of a starting broker in its log directories, which the controller must know."""

    trusted: bool = True  # False: unflushed data may be lost
    unsound: Collection[TopicPartition] = ()  # partitions without usable data
    last_producer_id: int = -1  # the greatest in its logs: it must not be allocated again


NO_FINDINGS = Findings()


class BrokerRegistration:
    """`listener_name` is the inter-broker listener; `rules(image)` are the election rules of the settings."""

    def __init__(
        self,
        controller: Controller,
        node_id: int,
        listener_name: str,
        rules: Callable[[ClusterImage], ElectionRules],
        connect: Connect,
    ) -> None:
        self._controller = controller
        self._node_id = node_id
        self._listener_name = listener_name
        self._rules = rules
        self._broker: Broker | None = None
        self._epoch = -1  # of the last registration
        self._leaving = False
        self._controller_loop = ControllerLoop(controller, rules)
        self.election = ControllerElection(controller, node_id, self._elected)
        self._failure_detector = FailureDetector(node_id, connect, self._died)
        self._registration_lost = asyncio.Event()  # set when this broker's node may be gone
        self._controller_known = asyncio.Event()  # set by the first controller after the start
        self._tasks: list[asyncio.Task[None]] = []
        self.on_replaced: Callable[[str], None] = logger.error  # called when another broker registers with this id
        controller.feed.own_id = node_id
        controller.on_image(self._follow)

    @property
    def epoch(self) -> Epoch:
        """The broker epoch."""
        return self._epoch

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
            "controller election": self.election.run,
            "controller loop": self._controller_loop.work,
            "watch of registrations": self._controller_loop.watch_registrations,
        }
        self._tasks = [loop.create_task(_run_forever(name, work)) for name, work in loops.items()]
        self._watch_others(self._controller.image)

    async def await_controller(self) -> None:
        """Wait until the cluster has a controller; this broker runs for it, too.

        An admin client of librdkafka that reads metadata without one asks once more, and then not for minutes.
        """
        if self._controller.image.controller_id == NO_BROKER:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._controller_known.wait(), ELECTION_TIMEOUT_S)

    def begin_shutdown(self) -> None:
        """Do not register again and do not run for controller from now on."""
        self._leaving = True
        self.election.withdraw()

    async def stop(self) -> None:
        """The registration ends with the session."""
        self.begin_shutdown()
        await self._failure_detector.stop()
        await cancel(*self._tasks)
        await self.election.stop()

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
            self.begin_shutdown()
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

    # ── other brokers ──

    def _elected(self) -> None:
        self._controller_loop.elected()
        self._watch_others(self._controller.image)

    def _died(self, broker: WatchedBroker) -> None:
        if self._controller.leads:
            self._controller_loop.died(broker)
        elif self._controller.image.controller_id == broker.broker_id:
            self.election.replace(broker.broker_id)

    def _follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self._controller_loop.follow(old, new)
        if new.controller_id != NO_BROKER:
            self._controller_known.set()
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
