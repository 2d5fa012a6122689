"""ControllerElection: makes this broker the controller when the cluster has none, or when its controller has failed.

The controller's claim is an ephemeral node in the metadata store. The first broker that creates it, together with a new
controller epoch, is elected.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from moldau.base.errors import Refusal, WireError
from moldau.broker.cluster.controller_loop import PAUSE_S
from moldau.broker.controller import Controller
from moldau.metadata import features, znodes
from moldau.metadata.changes import BrokerGone, Change, ChangeSet, ControllerElected, TopicCreated
from moldau.metadata.image import NO_BROKER, ClusterImage
from moldau.net.tasks import cancel
from moldau.store.port import StoreError, StoreUnavailable

logger = logging.getLogger("moldau.broker")

NOT_NEEDED = Refusal(WireError.ELECTION_NOT_NEEDED, "The cluster has a controller.")


class ControllerElection:
    """`on_elected` is called when this broker has become the controller of an existing cluster."""

    def __init__(self, controller: Controller, node_id: int, on_elected: Callable[[], None]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._on_elected = on_elected
        self._withdrawn = False
        self._replacement: asyncio.Task[None] | None = None  # of a failed controller

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

    async def run(self) -> None:
        """Run for controller whenever the cluster has none. Never ends."""
        store = self._controller.feed.store
        while True:
            try:
                changed = await store.watch_data(znodes.CONTROLLER)
                if await store.exists(znodes.CONTROLLER):
                    await self._recognize()
                    await changed
                elif self._withdrawn:
                    await changed
                else:  # then check again: a controller elected meanwhile may be gone, too
                    await self._claim(NO_BROKER)
            except StoreError:
                await asyncio.sleep(PAUSE_S)

    def replace(self, dead: int) -> None:
        """Replace a controller that has failed, before its session expires."""
        if self._replacement is None or self._replacement.done():
            self._replacement = asyncio.get_running_loop().create_task(self._replace(dead))

    def withdraw(self) -> None:
        """Do not run from now on: this broker stops."""
        self._withdrawn = True

    async def stop(self) -> None:
        self.withdraw()
        await cancel(self._replacement)

    async def _replace(self, dead: int) -> None:
        try:
            await self._claim(dead)
        except StoreError as problem:
            logger.warning("Cannot replace the failed controller yet; retrying: %s", problem)

    async def _recognize(self) -> None:
        """Take office if this broker was elected and the response was lost: no other broker will run."""
        await self._controller.feed.catch_up()
        if self._controller.image.controller_id == self._node_id and not self._controller.leads:
            self._controller.take_office(self._node_id)
            self._elected()

    async def _claim(self, dead: int) -> None:
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

        if self._withdrawn:
            return
        result = await self._controller.claim(decide)
        if isinstance(result, Refusal):
            await asyncio.sleep(PAUSE_S if result is not NOT_NEEDED else 0)
            return
        self._elected()

    def _elected(self) -> None:
        epoch = self._controller.image.controller_epoch
        logger.info("Broker %d is the controller, controller epoch %d", self._node_id, epoch)
        self._on_elected()
