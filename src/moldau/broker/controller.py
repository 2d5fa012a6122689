"""The controller: the one place where metadata changes. Decides nothing itself; the functions in metadata/ do.

A change is decided on the current image, written as one transaction of the store (fenced by the controller epoch, with
its entry in the change feed), folded into the next image, and told to the listeners; then the caller goes on. So what
an answered request changed is already in `image`. One change at a time: there is no other writer in this process, and
one elsewhere makes the transaction fail, upon which the image is read anew and the decision made again.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from moldau.base.errors import Refusal, WireError
from moldau.base.tree import Delete
from moldau.base.uuids import text_of
from moldau.metadata import tree
from moldau.metadata.changes import (
    Batch,
    BrokerGone,
    BrokerRegistered,
    Change,
    ControllerElected,
    Decide,
    Decision,
    ProducerIdsAllocated,
    apply,
    decide_each,
)
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage
from moldau.store.port import Conflict, Store, StoreDamaged, StoreUnavailable

T = TypeVar("T")
Listener = Callable[[ClusterImage, ClusterImage], None]

FEED_ENTRIES = 1_000  # how many changes the feed keeps; who is further behind reads the whole tree
TRIMMED_AT_ONCE = 100  # feed entries removed beside one change at most, which bounds the transaction
ATTEMPTS = 3  # decisions on a fresh image before giving up against another writer
PRODUCER_ID_BLOCK = 1_000  # ids taken at once; what a restart leaves unused of a block is lost, not reused

NOT_CONTROLLER = Refusal(WireError.NOT_CONTROLLER, "Another broker has become the controller.")


class Controller:
    """Made with a store, then `load`, `join`, any number of submits, `leave`; `image` is always the newest one."""

    def __init__(self, store: Store, *, feed_entries: int = FEED_ENTRIES) -> None:
        self.image = ClusterImage()
        self._store = store
        self._feed_entries = feed_entries
        self._oldest_entry = 1
        self._listeners: list[Listener] = []
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()
        self._broker_id = NO_BROKER
        self._epoch = 0  # the controller epoch that this process was elected with

    def on_image(self, listener: Listener) -> None:
        """Has `listener(old, new)` called after every change, in order, before the change is answered."""
        self._listeners.append(listener)

    async def load(self, new_cluster_id: str | None = None) -> None:
        """Reads the image from the store; an empty store becomes that of a new cluster. Raises StoreError."""
        if not await self._store.exists(tree.FEED):
            # A conflict here means that another process founded the cluster just now: then that one counts.
            await self._store.multi(tree.founding_ops(new_cluster_id or text_of(fresh_id())))
        await self._reload()

    async def join(self, broker: Broker, *brought: Change) -> Refusal | None:
        """Registers this broker and takes the controller's place; the broker's epoch is given to it here.

        What a new broker has `brought` along counts with its first registration or not at all.
        """
        async with self._turn:
            result = await self._commit(Batch((ControllerElected(broker.id), BrokerRegistered(broker), *brought)))
            if result is None:
                self._broker_id, self._epoch = broker.id, self.image.controller_epoch
        return NOT_CONTROLLER if isinstance(result, Conflict) else result

    @property
    def founded(self) -> bool:
        """Whether this is a new cluster, which nobody has joined yet."""
        return self.image.controller_epoch == 0

    async def leave(self) -> Refusal | None:
        """Signs this broker off, at a clean shutdown."""
        result = await self.submit(lambda _: BrokerGone(self._broker_id))
        return result if isinstance(result, Refusal) else None

    async def submit(self, decide: Decide) -> Decision:
        """Makes the decided change and returns it, or returns why there is none. `decide` may be called again."""
        (result,) = await self.submit_each([decide])
        return result

    async def submit_each(self, decides: Sequence[Decide]) -> list[Decision]:
        """Like `submit` for several, each deciding on what the ones before it led to; all changes are made in one."""
        return await self._unbroken(self._submit(decides))

    async def allocate_producer_ids(self) -> range | Refusal:
        """A block of producer ids that nobody got before and nobody will get again."""
        taken = range(0)

        def decide(image: ClusterImage) -> Change:
            nonlocal taken
            taken = range(image.next_producer_id, image.next_producer_id + PRODUCER_ID_BLOCK)
            return ProducerIdsAllocated(self._broker_id, taken.stop)

        result = await self.submit(decide)
        return result if isinstance(result, Refusal) else taken

    async def skip_producer_ids(self, used: int) -> None:
        """Ids up to this one are in use already."""
        await self.submit(lambda image: ProducerIdsAllocated(self._broker_id, max(image.next_producer_id, used + 1)))

    async def _unbroken(self, work: Coroutine[Any, Any, T]) -> T:
        """A caller that goes away must not leave a change written in the store, but missing in the image."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _submit(self, decides: Sequence[Decide]) -> list[Decision]:
        async with self._turn:
            for _ in range(ATTEMPTS):
                if self._epoch == 0 or self.image.controller_epoch != self._epoch:
                    break
                decisions = decide_each(self.image, decides)
                changes = tuple(decision for decision in decisions if not isinstance(decision, Refusal))
                result = await self._commit(changes[0] if len(changes) == 1 else Batch(changes)) if changes else None
                if isinstance(result, Refusal):
                    return [decision if isinstance(decision, Refusal) else result for decision in decisions]
                if result is None:
                    return decisions
        return [NOT_CONTROLLER for _ in decides]

    async def _commit(self, change: Change) -> Conflict | Refusal | None:
        """None: the change is made, and `image` has it."""
        trim = [Delete(tree.entry_path(number)) for number in self._surplus_entries()]
        try:
            result = await self._store.multi([*tree.ops_for(change, self.image), *trim])
            if isinstance(result, Conflict):
                await self._reload()
                return result
        except StoreUnavailable as error:
            return Refusal(WireError.KAFKA_STORAGE_ERROR, f"The metadata store is not available: {error}")
        self._oldest_entry += len(trim)
        self._become(apply(self.image, change))
        return None

    def _surplus_entries(self) -> range:
        """The feed's oldest entries, which must go for it to keep its size with the one about to be written."""
        surplus = self.image.version + 2 - self._oldest_entry - self._feed_entries
        return range(self._oldest_entry, self._oldest_entry + min(surplus, TRIMMED_AT_ONCE))

    async def _reload(self) -> None:
        """The image as the store has it now, read again if a change came between the reads."""
        for _ in range(ATTEMPTS):
            before = await self._store.get(tree.FEED)
            nodes = {tree.FEED: before.data} if before else {}
            for root in tree.ROOTS:
                nodes |= {path: node.data for path, node in (await self._store.subtree(root)).items()}
            entries = await self._store.children(tree.FEED)
            if await self._store.get(tree.FEED) == before:
                break
        else:
            raise StoreUnavailable("the metadata changes faster than it can be read")
        try:
            image = tree.image_from(nodes)
        except tree.DamagedTree as error:
            raise StoreDamaged(f"the metadata in the store is damaged: {error}") from error
        self._oldest_entry = int(entries[0]) if entries else image.version + 1
        self._become(image)

    def _become(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        if image.version != old.version:
            for listener in self._listeners:
                listener(old, image)


def fresh_id() -> uuid.UUID:
    """A random id for a topic or a cluster. Its text never begins with a dash: command lines would see an option."""
    while True:
        value = uuid.uuid4()
        if not text_of(value).startswith("-"):
            return value
