"""ControllerLoop: removes failed brokers from the metadata and elects leaders for their partitions.

Runs on every broker, and works only on the controller. Events only set `due`; the work is derived from the image and
the store, so nothing is missed that happened under another controller.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from moldau.base.errors import Refusal
from moldau.base.ids import Epoch
from moldau.broker.cluster.failure_detector import WatchedBroker
from moldau.broker.controller import Controller
from moldau.metadata import znodes
from moldau.metadata.changes import BrokerGone, Change, ChangeSet, fold
from moldau.metadata.elections import ElectionRules, leader_and_isr_changes, leader_rebalance_changes
from moldau.metadata.image import ClusterImage
from moldau.store.port import StoreError

logger = logging.getLogger("moldau.broker")

GRACE_S = 5.0  # for brokers to register again after an outage of the store
PAUSE_S = 0.2  # before a retry


class ControllerLoop:
    """`rules(image)` are the election rules of the settings."""

    def __init__(self, controller: Controller, rules: Callable[[ClusterImage], ElectionRules]) -> None:
        self._controller = controller
        self._rules = rules
        self._due = asyncio.Event()
        self._dead: dict[int, Epoch] = {}  # broker id → broker epoch of the failed incarnation
        self._restarted: set[int] = set()
        self._grace_until = 0.0  # of the loop's clock
        self._announced: set[int] = set()  # brokers that this controller has removed
        self._new = False  # just elected: the predecessor may have left work undone

    def elected(self, restarted: Iterable[int] = ()) -> None:
        self._new = True
        self._announced.clear()
        self._restarted.update(restarted)
        self._due.set()

    def died(self, broker: WatchedBroker) -> None:
        """The broker's process has ended; its session may not have expired yet."""
        self._dead[broker.broker_id] = broker.epoch
        self._due.set()

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        if old.brokers is new.brokers or not self._controller.leads:
            return
        self._announced -= new.brokers.keys()
        for broker_id, broker in new.brokers.items():
            known = old.brokers.get(broker_id)
            if known is not None and known.epoch != broker.epoch:
                self._restarted.add(broker_id)
        self._due.set()

    async def work(self) -> None:
        """Never ends."""
        while True:
            await self._due.wait()
            self._due.clear()
            if not self._controller.leads:
                self._dead.clear()
                self._restarted.clear()
                continue
            try:
                done = await self._settle()
            except StoreError:  # logged by the metadata feed
                done = False
            except Exception:
                self._due.set()
                raise
            if not done:
                await asyncio.sleep(PAUSE_S)
                self._due.set()

    async def watch_registrations(self) -> None:
        """Never ends. A broker's node is deleted when its session expires."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                changed = await self._controller.feed.store.watch_children(znodes.BROKERS)
                self._due.set()
                await changed
            except StoreError:
                self._grace_until = loop.time() + GRACE_S
                await asyncio.sleep(PAUSE_S)

    def _all_back(self, registered: set[int]) -> bool:
        """Whether all brokers are registered, or their time for it is over: an outage may have ended all sessions."""
        if asyncio.get_running_loop().time() > self._grace_until:
            return True
        image = self._controller.image
        return registered >= {*image.brokers, *_replica_brokers(image)}

    async def rebalance_leaders(self, percentage: int) -> None:
        """Elect preferred leaders for brokers above this imbalance (auto.leader.rebalance.enable)."""

        def changes(image: ClusterImage) -> ChangeSet:
            return ChangeSet(leader_rebalance_changes(image, percentage, self._rules(image)))

        if self._controller.leads and changes(self._controller.image).changes:
            await self._controller.submit(changes)

    async def _settle(self) -> bool:
        begun = time.monotonic()
        feed = self._controller.feed
        new, dead, restarted = self._new, dict(self._dead), set(self._restarted)
        if new:
            await feed.find_oldest_entry()
            await self._controller.remove_deleted_topics()
        known = {broker.id: broker.epoch for broker in self._controller.image.brokers.values()}
        # The server of a new session may be behind the image, which was read from another server.
        await feed.store.sync()
        registered = {int(name) for name in await feed.store.children(znodes.BROKERS)}
        if not self._all_back(registered):
            return False
        # This broker is alive and registers again by itself. Removing it would depose the controller.
        present = registered | {feed.own_id}
        ended = dead | {each: epoch for each, epoch in known.items() if each not in present}

        def decide(image: ClusterImage) -> Change | Refusal:
            gone = _removals(image, registered, ended, _replica_brokers(image) - self._announced - {feed.own_id})
            after = image
            for change in gone:
                after = fold(after, change)
            return ChangeSet(
                (*gone, *leader_and_isr_changes(after, self._rules(image), restarted & after.brokers.keys()))
            )

        decision = await self._controller.submit(decide)
        if isinstance(decision, Refusal):
            return not self._controller.leads
        self._new = self._new and not new
        assert isinstance(decision, ChangeSet)
        self._announced |= {each.broker_id for each in decision.changes if isinstance(each, BrokerGone)}
        self._restarted -= restarted
        self._dead = {each: epoch for each, epoch in self._dead.items() if dead.get(each) != epoch}
        _log_changes(decision, (time.monotonic() - begun) * 1000)
        return True


def _removals(
    image: ClusterImage, registered: set[int], ended: dict[int, int], mentioned: set[int]
) -> tuple[BrokerGone, ...]:
    """The brokers to remove. `ended` maps ids to broker epochs: a broker may have registered again since.

    `mentioned` are replicas' brokers without a registration, which a predecessor may not have removed.
    """
    failed = [broker.id for broker in image.brokers.values() if ended.get(broker.id) == broker.epoch]
    return (
        *(BrokerGone(each, expired=True) for each in sorted(mentioned - image.brokers.keys())),
        *(BrokerGone(each, expired=each not in registered) for each in failed),
    )


def _replica_brokers(image: ClusterImage) -> set[int]:
    return {each for topic in image.topics.values() for state in topic.partitions for each in state.replicas}


def _log_changes(change: Change, ms: float) -> None:
    parts = change.changes if isinstance(change, ChangeSet) else (change,)
    gone = [part.broker_id for part in parts if isinstance(part, BrokerGone)]
    partitions = len(parts) - len(gone)
    if gone:
        names = ", ".join(map(str, gone))
        logger.warning("Brokers %s are unavailable; changed %d partitions in %.0f ms", names, partitions, ms)
    elif partitions:
        logger.info("Elected leaders or changed the ISR of %d partitions in %.0f ms", partitions, ms)
