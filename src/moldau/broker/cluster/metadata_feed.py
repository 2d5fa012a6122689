"""The newest image, kept in step with the store: read from the tree once, then from the feed. Decides nothing.

Whoever changes the metadata holds `lock` from deciding to committing, so that nothing moves in between; `catch_up`
takes it too. A feed that was trimmed too far, has a gap or cannot be read is no harm: then the tree is read again.
Ephemeral nodes go without an entry in the feed, so a tree may tell of fewer brokers than a feed of the same version.
Those are `unregistered`, and stay in the image until a controller has written the entry.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from moldau.base.errors import Refusal, WireError
from moldau.base.tree import Delete, name_of, parent_of
from moldau.base.uuids import text_of
from moldau.broker.cluster.topic_nodes import remove_topic_nodes, stage_topic_nodes
from moldau.broker.fresh import fresh_id
from moldau.metadata import znodes
from moldau.metadata.changes import Change, TopicCreated, apply, to_json
from moldau.metadata.image import NO_BROKER, ClusterImage, Topic
from moldau.store.port import Conflict, Reason, Store, StoreDamaged, StoreError, StoreFull, StoreUnavailable, TooMuch

logger = logging.getLogger("moldau.broker")

Listener = Callable[[ClusterImage, ClusterImage], None]

ENTRIES_PER_READ = 64  # entries of the feed
MAX_REREADS = 30  # of what changes meanwhile, before giving up
RETRY_S = 0.1  # between attempts to make a change while the store is out of reach
PAUSE_S = 0.5  # before a store that could not be read is asked again


class MetadataFeed:
    """`image` is always the newest one known here."""

    def __init__(self, store: Store) -> None:
        self.image = ClusterImage()
        self.store = store
        self.lock = asyncio.Lock()
        self.oldest_entry = 1
        self.own_id = NO_BROKER  # of the broker that follows, which knows best whether it is registered
        self.unregistered: set[int] = set()  # brokers whose nodes are gone, and no entry of the feed has told so
        self._listeners: list[Listener] = []

    def on_image(self, listener: Listener) -> None:
        """Has `listener(old, new)` called after every change, in order."""
        self._listeners.append(listener)

    async def load(self, new_cluster_id: str | None = None) -> None:
        """Reads the image from the store; an empty store becomes that of a new cluster. Raises StoreError."""
        if not await self.store.exists(znodes.FEED):
            # A conflict here means that another process founded the cluster just now: then that one counts.
            await self.store.multi(znodes.founding_ops(new_cluster_id or text_of(fresh_id())))
        await self.reload()

    async def follow(self) -> None:
        """Never ends: takes over every change, soon after it was made. A store out of reach is waited for."""
        away = False
        while True:
            try:
                changed = await self.store.watch_data(znodes.FEED)
                await self.catch_up()
                if away:
                    logger.info(
                        "the cluster's metadata can be read again, and is known up to change %d", self.image.version
                    )
                away = False
                await changed
            except StoreError as problem:
                if not away:
                    logger.warning("cannot read the cluster's metadata, and goes on with what is known: %s", problem)
                away = True
                await asyncio.sleep(PAUSE_S)

    async def catch_up(self, *, sync: bool = False) -> None:
        """Takes over all changes; with `sync` surely those that were made before. Raises StoreError."""
        if sync:
            await self.store.sync()
        async with self.lock:
            await self._read_feed()

    async def refresh(self) -> None:
        """Whoever holds the turn found that the image is not what the store has."""
        version = self.image.version
        await self._read_feed()
        if self.image.version == version:  # what is different does not come by the feed
            await self.reload()

    async def commit(self, change: Change, trim: range = range(0), deadline: float = 0) -> Conflict | Refusal | None:
        """For whoever holds the turn. None: the change is made, and `image` has it.

        A store out of reach is waited for until the deadline, which the loop's clock counts.
        """
        loop = asyncio.get_running_loop()
        ops = [*znodes.ops_for(change, self.image), *(Delete(znodes.entry_path(number)) for number in trim)]
        large = znodes.large_topics(change)
        doubt = False  # whether an attempt may have succeeded, with its answer lost
        while True:
            try:
                made = doubt and await self._made(change)
                result = None if made else await self._stage_topics(large) or await self.store.multi(ops)
                if isinstance(result, Conflict):
                    await self._remove_leftovers(result)
                    await self.refresh()
                    return result
                break
            except TooMuch as problem:
                await self._unstage_topics(large)
                return Refusal(WireError.POLICY_VIOLATION, f"The metadata store does not take it: {problem}.")
            except StoreUnavailable as problem:
                doubt = True
                if loop.time() >= deadline:
                    prefix = "" if isinstance(problem, StoreFull) else "The metadata store is not available: "
                    return Refusal(WireError.KAFKA_STORAGE_ERROR, f"{prefix}{problem}")
                await asyncio.sleep(RETRY_S)
        self.oldest_entry += len(trim)
        self._publish(apply(self.image, change))
        return None

    async def _stage_topics(self, topics: Sequence[TopicCreated]) -> Conflict | None:
        for topic in topics:
            conflict = await stage_topic_nodes(self.store, self.image.controller_epoch, topic)
            if conflict is not None:
                return conflict
        return None

    async def _unstage_topics(self, topics: Sequence[TopicCreated]) -> None:
        try:
            for topic in topics:
                await remove_topic_nodes(self.store, self.image.controller_epoch, topic.topic)
        except StoreError as problem:
            logger.warning("what was prepared for a topic in the metadata store is removed later: %s", problem)

    async def _remove_leftovers(self, conflict: Conflict) -> None:
        """What is left of a deleted topic must not be in the way of a new one of its name."""
        if conflict.reason is Reason.NODE_EXISTS and parent_of(conflict.op.path) == znodes.TOPICS:
            await remove_topic_nodes(self.store, self.image.controller_epoch, name_of(conflict.op.path))

    async def _made(self, change: Change) -> bool:
        """Whether the entry behind the last one known here is this very change."""
        await self.store.sync()
        node = await self.store.get(znodes.entry_path(self.image.version + 1))
        return node is not None and node.data == to_json(change)

    async def _read_feed(self) -> None:
        head = await self.store.get(znodes.FEED)
        if head is None:
            raise StoreDamaged(f"{znodes.FEED} is missing")
        while self.image.version < head.version:
            first = self.image.version + 1
            paths = [znodes.entry_path(n) for n in range(first, min(head.version + 1, first + ENTRIES_PER_READ))]
            nodes = await asyncio.gather(*(self.store.get(path) for path in paths))
            for path, node in zip(paths, nodes, strict=True):
                if node is None or not self._apply_entry(path, node.data):
                    await self.reload()
                    break

    async def find_oldest_entry(self) -> None:
        """Which entry is the first that is still there, for whoever trims the feed from now on."""
        entries = await self.store.children(znodes.FEED)
        self.oldest_entry = int(entries[0]) if entries else self.image.version + 1

    def _apply_entry(self, path: str, data: bytes) -> bool:
        try:
            image = apply(self.image, znodes.feed_entry(path, data))
        except (znodes.MalformedZnodeError, LookupError) as problem:
            logger.warning("reading the whole metadata again, since a change cannot be taken over: %s", problem)
            return False
        self._publish(image)
        return True

    async def reload(self) -> None:
        """The image as the store's tree has it now.

        What was changed meanwhile is read again, and that alone: a large tree takes longer to read than it stays as it
        is.
        """
        head = await self.store.get(znodes.FEED)
        nodes = await self._read(dict.fromkeys(znodes.ROOTS, True))
        for _ in range(MAX_REREADS):
            entries = await self.store.children(znodes.FEED)
            before, head = head, await self.store.get(znodes.FEED)
            if head is None or head == before:
                break
            places = await self._touched(before.version if before else 0, head.version)
            again = await self._read(places)
            nodes = {path: data for path, data in nodes.items() if not _within(path, places)} | again
        else:
            raise StoreUnavailable("the metadata changes faster than it can be read")
        try:
            image = znodes.image_from(nodes | ({znodes.FEED: head.data} if head else {}))
        except znodes.MalformedZnodeError as error:
            raise StoreDamaged(f"the metadata in the store is damaged: {error}") from error
        self.oldest_entry = int(entries[0]) if entries else image.version + 1
        self._publish(self._with_the_missing(_sharing(self.image, image)))

    async def _read(self, places: Mapping[str, bool]) -> dict[str, bytes]:
        """The nodes at these paths and, where that is said, all below them."""
        nodes: dict[str, bytes] = {}
        for path in (path for path, whole in places.items() if whole):
            nodes |= {below: node.data for below, node in (await self.store.subtree(path)).items()}
        single = [path for path, whole in places.items() if not whole]
        found = await asyncio.gather(*map(self.store.get, single))
        return nodes | {path: node.data for path, node in zip(single, found, strict=True) if node is not None}

    async def _touched(self, before: int, after: int) -> dict[str, bool]:
        """Where changes behind one and up to the other have written. Everywhere, if that cannot be said."""
        paths = [znodes.entry_path(number) for number in range(before + 1, after + 1)]
        places: dict[str, bool] = {}
        for path, node in zip(paths, await asyncio.gather(*map(self.store.get, paths)), strict=True):
            try:
                written = list(znodes.touched(znodes.feed_entry(path, node.data))) if node is not None else None
            except znodes.MalformedZnodeError:
                written = None
            if written is None:
                return dict.fromkeys(znodes.ROOTS, True)
            for place, whole in written:
                places[place] = whole or places.get(place, False)
        return places

    def _with_the_missing(self, image: ClusterImage) -> ClusterImage:
        """A broker is there until an entry of the feed says otherwise, for who reads the tree too.

        Unless there are entries that were not read: they may have told.
        """
        unregistered = self.image.brokers.keys() - image.brokers.keys() - {self.own_id}
        self.unregistered = set(unregistered) if image.version == self.image.version else set()
        kept = {each: self.image.brokers[each] for each in self.unregistered}
        return replace(image, brokers={**image.brokers, **kept}) if kept else image

    def _publish(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        self.unregistered = {each for each in self.unregistered if image.brokers.get(each) is old.brokers.get(each)}
        if image.version != old.version or image.brokers != old.brokers:
            for listener in self._listeners:
                listener(old, image)


def _within(path: str, places: Mapping[str, bool]) -> bool:
    """Whether a path is one of these places, or below one that is meant as a whole."""
    if path in places:
        return True
    while path.count("/") > 1:
        path = parent_of(path)
        if places.get(path):
            return True
    return False


def _sharing(old: ClusterImage, new: ClusterImage) -> ClusterImage:
    """The new image with the old one's topics where they are the same: who follows compares by identity."""

    def same(topic: Topic) -> Topic:
        known = old.topics.get(topic.name)
        return known if known is not None and known == topic else topic

    topics = {name: same(topic) for name, topic in new.topics.items()}
    if topics == old.topics:
        return replace(new, topics=old.topics, topics_by_id=old.topics_by_id)
    return replace(new, topics=topics, topics_by_id={topic.id: topic for topic in topics.values()})
