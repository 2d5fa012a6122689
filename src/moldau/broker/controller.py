"""The controller: commits metadata changes, one at a time. The decisions are pure functions in metadata/.

A change is decided on the current image, written as one transaction of the store (fenced by the controller epoch, with
its entry in the change feed), folded into the next image, and published to the listeners; then the caller continues. So
`image` has the changes of every request that was answered. If another process wrote in between, the transaction fails,
the image is read again and the decision is made again.

Every broker has a Controller object, and one of them leads: the others refuse changes.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from moldau.base.errors import Refusal, WireError
from moldau.broker.cluster.metadata_feed import ImageListener, MetadataFeed
from moldau.broker.cluster.topic_nodes import remove_deleted_topics
from moldau.metadata.changes import (
    BrokerGone,
    BrokerRegistered,
    Change,
    ChangeSet,
    ControllerElected,
    Decide,
    ProducerIdsAllocated,
    TopicDeleted,
    decide_each,
    fold,
)
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage
from moldau.metadata.splitting import count_fitting, split_change
from moldau.store.port import Conflict, Store, StoreError

logger = logging.getLogger("moldau.broker")

T = TypeVar("T")

FEED_ENTRIES = 1_000  # changes that the feed keeps; a broker that is further behind reads the whole tree
TRIMMED_AT_ONCE = 100  # feed entries trimmed with one change at most, which bounds the transaction
ATTEMPTS = 5  # to decide on a fresh image before giving up against another writer
CLAIMS = 50  # the same for registrations and elections: many brokers may start at once
PRODUCER_ID_BLOCK = 1_000  # ids allocated at once; ids of a block that are unused at a restart are lost, not reused

NOTHING = ChangeSet(())  # the decision to change nothing
NOT_CONTROLLER = Refusal(WireError.NOT_CONTROLLER, "Another broker has become the controller.")
CONTENDED = Refusal(WireError.NOT_CONTROLLER, "Too many concurrent metadata updates; retry.")


@dataclass(frozen=True, slots=True)
class NotController(Generic[T]):
    """A request that this broker could not carry out, at least in part, because it is not the controller any more.

    `response` says so to a client, in case no other controller can be found to forward the request to.
    """

    response: T


ControllerResponse: TypeAlias = T | NotController[T]


def unless_deposed(response: T, decisions: Iterable[Change | Refusal]) -> ControllerResponse[T]:
    """The response to a request that led to these decisions."""
    return NotController(response) if any(each is NOT_CONTROLLER for each in decisions) else response


class Controller:
    """Call `load`, then `join`, any number of submits, `leave`; `image` is always the newest one.

    `limit`: the most bytes of a transaction, where the store has a limit. `patience_s`: how long a change waits for an
    unreachable store.
    """

    def __init__(
        self, store: Store, *, feed_entries: int = FEED_ENTRIES, limit: int | None = None, patience_s: float = 0
    ) -> None:
        self.feed = MetadataFeed(store)
        # Changes that follow from a change, given the images before and after it.
        self.resulting_changes: Callable[[ClusterImage, ClusterImage], Sequence[Change]] = lambda before, after: ()
        self._feed_entries = feed_entries
        self._limit = limit
        self._patience_s = patience_s
        self._running: set[asyncio.Task[Any]] = set()
        self._broker_id = NO_BROKER
        self._epoch = 0  # the controller epoch that this process was elected with

    @property
    def image(self) -> ClusterImage:
        return self.feed.image

    @property
    def leads(self) -> bool:
        """Whether this broker believes to be the controller; the store fences it if it is not."""
        return self._epoch > 0 and self.image.controller_epoch == self._epoch

    def on_image(self, listener: ImageListener) -> None:
        """Call `listener(old, new)` after every change, in order, before the change is answered."""
        self.feed.on_image(listener)

    async def load(self, new_cluster_id: str | None = None) -> None:
        """Read the image from the store; an empty store becomes a new cluster. Raises StoreError."""
        await self.feed.load(new_cluster_id)

    @property
    def founded(self) -> bool:
        """Whether this is a new cluster without any broker."""
        return self.image.controller_epoch == 0

    # ── registration and election ──

    async def join(self, broker: Broker, *brought: Change) -> Refusal | None:
        """Register this broker and make it the controller; the registration assigns its broker epoch.

        The changes that a new broker has `brought` are committed with its registration or not at all.
        """
        async with self.feed.lock:
            result = await self._commit(ChangeSet((ControllerElected(broker.id), BrokerRegistered(broker), *brought)))
            if result is None:
                self.take_office(broker.id)
        return NOT_CONTROLLER if isinstance(result, Conflict) else result

    async def claim(self, decide: Decide) -> Change | Refusal:
        """Commit a change that any broker may make: its own registration, or its election."""
        return await self._unbroken(self._claim(decide))

    async def _claim(self, decide: Decide) -> Change | Refusal:
        deadline = self._deadline()
        async with self.feed.lock:
            for _ in range(CLAIMS):
                decision = decide(self.image)
                if isinstance(decision, Refusal):
                    return decision
                result = await self._commit_all(decision, deadline)
                if isinstance(result, Refusal):
                    return result
                if result is None:
                    self._notice_election(decision)
                    return decision
        return CONTENDED

    def _notice_election(self, change: Change) -> None:
        for each in change.changes if isinstance(change, ChangeSet) else (change,):
            if isinstance(each, ControllerElected):
                self.take_office(each.broker_id)

    def take_office(self, broker_id: int) -> None:
        """Note that this process was elected with the image's controller epoch. The store fences any other epoch."""
        self._broker_id, self._epoch = broker_id, self.image.controller_epoch

    async def leave(self) -> Refusal | None:
        """Unregister this broker, at a clean shutdown."""
        result = await self.submit(lambda _: BrokerGone(self._broker_id))
        return result if isinstance(result, Refusal) else None

    # ── changes by the controller ──

    async def submit(self, decide: Decide) -> Change | Refusal:
        """Commit the decided change and return it, or the refusal. `decide` may be called several times."""
        (result,) = await self.submit_each([decide])
        return result

    async def submit_each(self, decides: Sequence[Decide]) -> list[Change | Refusal]:
        """Like `submit` for several: each decides on the image that those before it lead to, and all are one commit.

        Where the store has a limit, changes that exceed one transaction are committed in several.
        """
        return await self._unbroken(self._submit(decides))

    async def allocate_producer_ids(self, broker_id: int | None = None) -> range | Refusal:
        """Allocate a block of producer ids, which is never allocated again."""
        taken = range(0)

        def decide(image: ClusterImage) -> Change:
            nonlocal taken
            taken = range(image.next_producer_id, image.next_producer_id + PRODUCER_ID_BLOCK)
            return ProducerIdsAllocated(self._broker_id if broker_id is None else broker_id, taken.stop)

        result = await self.submit(decide)
        return result if isinstance(result, Refusal) else taken

    async def skip_producer_ids(self, used: int) -> None:
        """Never allocate ids up to this one: they are in use."""
        await self.submit(lambda image: ProducerIdsAllocated(self._broker_id, max(image.next_producer_id, used + 1)))

    async def _unbroken(self, work: Coroutine[Any, Any, T]) -> T:
        """Shield from cancellation: a change must not be in the store and missing in the image."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _submit(self, decides: Sequence[Decide]) -> list[Change | Refusal]:
        done: list[Change | Refusal] = []
        deadline = self._deadline()
        async with self.feed.lock:
            for _ in range(ATTEMPTS):
                if not self.leads:
                    break
                result = await self._decide_and_commit(decides, done, deadline)
                if isinstance(result, Refusal):
                    return [*done, *(result for _ in decides[len(done) :])]
                if result is None:
                    return done
        refusal = CONTENDED if self.leads else NOT_CONTROLLER
        return [*done, *(refusal for _ in decides[len(done) :])]

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._patience_s

    async def _decide_and_commit(
        self, decides: Sequence[Decide], done: list[Change | Refusal], deadline: float
    ) -> Conflict | Refusal | None:
        """Commit changes and append them to `done`: all or nothing, unless the store has a limit."""
        decisions = decide_each(self.image, decides[len(done) :])
        while decisions:
            count = self._fitting(decisions)
            changes = tuple(each for each in decisions[:count] if not isinstance(each, Refusal) and each != NOTHING)
            if changes:
                change = changes[0] if len(changes) == 1 else ChangeSet(changes)
                result = await self._commit_all(self._with_consequences(change), deadline)
                if result is not None:
                    return result
            done += decisions[:count]
            decisions = decisions[count:]
        return None

    def _fitting(self, decisions: Sequence[Change | Refusal]) -> int:
        """The number of decisions that fit into one transaction; at least one."""
        if self._limit is None:
            return len(decisions)
        changes = [NOTHING if isinstance(each, Refusal) else each for each in decisions]
        return max(count_fitting(changes, self.image, self._limit), 1)

    def _with_consequences(self, change: Change) -> Change:
        caused = tuple(self.resulting_changes(self.image, fold(self.image, change)))
        return ChangeSet((change, *caused)) if caused else change

    async def _commit_all(self, change: Change, deadline: float) -> Conflict | Refusal | None:
        pieces = [change] if self._limit is None else split_change(change, self.image, self._limit)
        for number, piece in enumerate(pieces):
            result = await self._commit(piece, deadline)
            attempts = ATTEMPTS if number and not isinstance(change, ChangeSet) else 0
            while attempts and isinstance(result, Conflict) and self.leads:
                # A broker registered in between. A topic must not stay with a part of its new partitions.
                result = await self._commit(piece, deadline)
                attempts -= 1
            if result is not None:
                return result
            await self._sweep_after(piece)
        return None

    async def remove_deleted_topics(self) -> None:
        """Remove the nodes of deleted topics that earlier controllers may have left."""
        async with self.feed.lock:
            if self.leads:
                await remove_deleted_topics(self.feed.store, self._epoch, frozenset(self.image.topics))

    async def _sweep_after(self, change: Change) -> None:
        parts = change.changes if isinstance(change, ChangeSet) else (change,)
        if any(isinstance(part, TopicDeleted) for part in parts):
            try:
                await remove_deleted_topics(self.feed.store, self._epoch, frozenset(self.image.topics))
            except StoreError as problem:
                logger.warning(
                    "Nodes of deleted topics stay in the metadata store until the next deletion or election: %s",
                    problem,
                )

    async def _commit(self, change: Change, deadline: float = 0) -> Conflict | Refusal | None:
        """None: the change is committed, and `image` has it."""
        trim = self._surplus_entries() if self.leads or self.founded else range(0)
        return await self.feed.commit(change, trim, deadline)

    def _surplus_entries(self) -> range:
        """The oldest entries of the feed, to trim with the entry that is about to be written."""
        oldest = self.feed.oldest_entry
        surplus = self.image.version + 2 - oldest - self._feed_entries
        return range(oldest, oldest + min(surplus, TRIMMED_AT_ONCE))
