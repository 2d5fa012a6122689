"""MetadataFeed: the newest cluster image, read from the store's tree once and then updated from its feed of changes.

A change holds `lock` from its decision to its commit; `catch_up` takes the lock, too. If the feed was trimmed too far,
has a gap or cannot be read, the tree is read again. Ephemeral nodes vanish without an entry in the feed, so the tree
may have fewer brokers than the feed at the same version. Those are `unregistered`: they stay in the image until a
controller has written the entry.
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

ImageListener = Callable[[ClusterImage, ClusterImage], None]

ENTRIES_PER_READ = 64
MAX_REREADS = 30  # of nodes that change while the tree is read
RETRY_S = 0.1  # between attempts to commit while the store is unreachable
PAUSE_S = 0.5  # between attempts to read while the store is unreachable


class MetadataFeed:
    """`image` is the newest image known to this broker."""

    def __init__(self, store: Store) -> None:
        self.image = ClusterImage()
        self.store = store
        self.lock = asyncio.Lock()
        self.oldest_entry = 1
        self.own_id = NO_BROKER  # this broker, which keeps track of its own registration
        self.unregistered: set[int] = set()  # brokers that lost their node before the feed removed them
        self._listeners: list[ImageListener] = []

    def on_image(self, listener: ImageListener) -> None:
        """Call `listener(old, new)` after every change, in order."""
        self._listeners.append(listener)

    async def load(self, new_cluster_id: str | None = None) -> None:
        """Read the image from the store; found a new cluster in an empty store. Raises StoreError."""
        if not await self.store.exists(znodes.FEED):
            # A conflict is fine: another broker has just founded the cluster.
            await self.store.multi(znodes.founding_ops(new_cluster_id or text_of(fresh_id())))
        await self.reload()

    async def follow(self) -> None:
        """Apply every change soon after its commit. Never ends: retries while the store is unreachable or damaged."""
        away: type[StoreError] | None = None  # the problem that was logged last
        while True:
            try:
                changed = await self.store.watch_data(znodes.FEED)
                await self.catch_up()
                if away is not None:
                    logger.info(
                        "Metadata store reachable again; metadata is current at version %d.", self.image.version
                    )
                away = None
                await changed
            except StoreDamaged as problem:
                if away is not StoreDamaged:
                    logger.error(
                        "Metadata in the store cannot be read: it is damaged, or written by a newer release. Serving "
                        "the last known metadata; changes wait. Restore ZooKeeper's data, or upgrade this broker: %s",
                        problem,
                    )
                away = StoreDamaged
                await asyncio.sleep(PAUSE_S)
            except StoreError as problem:
                if away is not StoreError:
                    logger.warning(
                        "Metadata store unreachable: reads and writes continue; elections, ISR and topic changes wait. "
                        "Check ZooKeeper: %s",
                        problem,
                    )
                away = StoreError
                await asyncio.sleep(PAUSE_S)

    async def catch_up(self, *, sync: bool = False) -> None:
        """Apply all changes; with `sync`, including all that were committed before this call. Raises StoreError."""
        if sync:
            await self.store.sync()
        async with self.lock:
            await self._read_feed()

    async def refresh(self) -> None:
        """Read again after a conflict, which shows that the image is behind the store. Call with the lock held."""
        version = self.image.version
        await self._read_feed()
        if self.image.version == version:  # the difference is not in the feed
            await self.reload()

    async def commit(self, change: Change, trim: range = range(0), deadline: float = 0) -> Conflict | Refusal | None:
        """Commit a change; call with the lock held. None: it is committed, and in `image`.

        Retries while the store is unreachable, until the deadline of the loop's clock.
        """
        loop = asyncio.get_running_loop()
        ops = [*znodes.ops_for(change, self.image), *(Delete(znodes.entry_path(number)) for number in trim)]
        large = znodes.large_topics(change)
        in_doubt = False  # an attempt may have succeeded, with its response lost
        while True:
            try:
                committed = in_doubt and await self._is_committed(change)
                result = None if committed else await self._stage_topics(large) or await self.store.multi(ops)
                if isinstance(result, Conflict):
                    await self._remove_leftovers(result)
                    await self.refresh()
                    return result
                break
            except TooMuch as problem:
                await self._unstage_topics(large)
                return Refusal(WireError.POLICY_VIOLATION, f"The metadata store refuses the change: {problem}.")
            except StoreUnavailable as problem:
                in_doubt = True
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
            logger.warning("Nodes staged for a topic that was not created are removed later: %s", problem)

    async def _remove_leftovers(self, conflict: Conflict) -> None:
        """Remove nodes of a deleted topic that block a new one with its name."""
        if conflict.reason is Reason.NODE_EXISTS and parent_of(conflict.op.path) == znodes.TOPICS:
            await remove_topic_nodes(self.store, self.image.controller_epoch, name_of(conflict.op.path))

    async def _is_committed(self, change: Change) -> bool:
        """Whether the next entry of the feed is this change."""
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
        """Find the first entry that is still in the feed; a new controller trims from there."""
        entries = await self.store.children(znodes.FEED)
        self.oldest_entry = int(entries[0]) if entries else self.image.version + 1

    def _apply_entry(self, path: str, data: bytes) -> bool:
        try:
            image = apply(self.image, znodes.feed_entry(path, data))
        except (znodes.MalformedZnodeError, LookupError) as problem:
            logger.warning("Cannot apply a change of the metadata feed; reading all metadata again: %s", problem)
            return False
        self._publish(image)
        return True

    async def reload(self) -> None:
        """Read the whole tree. Nodes that change meanwhile are read again, since a large tree takes long to read."""
        head = await self.store.get(znodes.FEED)
        nodes = await self._read(dict.fromkeys(znodes.ROOTS, True))
        for _ in range(MAX_REREADS):
            entries = await self.store.children(znodes.FEED)
            before, head = head, await self.store.get(znodes.FEED)
            if head is None or head == before:
                break
            paths = await self._touched(before.version if before else 0, head.version)
            again = await self._read(paths)
            nodes = {path: data for path, data in nodes.items() if not _within(path, paths)} | again
        else:
            raise StoreUnavailable("the metadata changes faster than it can be read; retrying")
        try:
            image = znodes.image_from(nodes | ({znodes.FEED: head.data} if head else {}))
        except znodes.MalformedZnodeError as error:
            raise StoreDamaged(f"the metadata in the store is corrupt: {error}") from error
        self.oldest_entry = int(entries[0]) if entries else image.version + 1
        self._publish(self._with_unregistered(_sharing(self.image, image)))

    async def _read(self, paths: Mapping[str, bool]) -> dict[str, bytes]:
        """The nodes at these paths; with True, the whole subtree."""
        nodes: dict[str, bytes] = {}
        for path in (path for path, whole in paths.items() if whole):
            nodes |= {below: node.data for below, node in (await self.store.subtree(path)).items()}
        single = [path for path, whole in paths.items() if not whole]
        found = await asyncio.gather(*map(self.store.get, single))
        return nodes | {path: node.data for path, node in zip(single, found, strict=True) if node is not None}

    async def _touched(self, before: int, after: int) -> dict[str, bool]:
        """The paths that changes after `before` up to `after` have written; all roots if an entry is unreadable."""
        entries = [znodes.entry_path(number) for number in range(before + 1, after + 1)]
        paths: dict[str, bool] = {}
        for path, node in zip(entries, await asyncio.gather(*map(self.store.get, entries)), strict=True):
            try:
                written = list(znodes.touched(znodes.feed_entry(path, node.data))) if node is not None else None
            except znodes.MalformedZnodeError:
                written = None
            if written is None:
                return dict.fromkeys(znodes.ROOTS, True)
            for written_path, whole in written:
                paths[written_path] = whole or paths.get(written_path, False)
        return paths

    def _with_unregistered(self, image: ClusterImage) -> ClusterImage:
        """The image with brokers that the tree has lost and no entry of the feed has removed.

        If entries were skipped they may have removed them.
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


def _within(path: str, paths: Mapping[str, bool]) -> bool:
    """Whether a path is one of these, or below one that stands for its subtree."""
    if path in paths:
        return True
    while path.count("/") > 1:
        path = parent_of(path)
        if paths.get(path):
            return True
    return False


def _sharing(old: ClusterImage, new: ClusterImage) -> ClusterImage:
    """The new image, sharing equal topics with the old one: listeners compare topics by identity."""

    def same(topic: Topic) -> Topic:
        known = old.topics.get(topic.name)
        return known if known is not None and known == topic else topic

    topics = {name: same(topic) for name, topic in new.topics.items()}
    if topics == old.topics:
        return replace(new, topics=old.topics, topics_by_id=old.topics_by_id)
    return replace(new, topics=topics, topics_by_id={topic.id: topic for topic in topics.values()})
