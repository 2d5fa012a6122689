"""Following the metadata: two who share a store see the same, whatever became of the feed between them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from moldau.base.errors import Refusal
from moldau.base.tree import Delete, Op, Set
from moldau.broker.cluster.feed import Feed
from moldau.broker.controller import Controller
from moldau.broker.fresh import fresh_id
from moldau.metadata import tree
from moldau.metadata.changes import BrokerConfigured, Decide, TopicCreated
from moldau.metadata.image import Broker, ClusterImage
from moldau.metadata.topics import TopicDefaults, TopicSpec, create_topic, delete_topic
from moldau.store.port import Conflict, Done, StoreUnavailable
from moldau.store.sqlite import SqliteStore


def creating(name: str, partitions: int = 1) -> Decide:
    spec, topic_id = TopicSpec(name, partitions), fresh_id()
    return lambda image: create_topic(image, spec, topic_id=topic_id, defaults=TopicDefaults())


def configuring(number: int) -> Decide:
    return lambda image: BrokerConfigured("", {"log.retention.ms": str(number)})


def session(path: Path, scenario: Callable[[Controller, Feed], Awaitable[None]], **options: int) -> None:
    """A controller, and somebody who follows it."""

    async def run() -> None:
        store = await SqliteStore.open(path / "store.db")
        controller = Controller(store, **options)
        await controller.load()
        assert await controller.join(Broker(1, {})) is None
        follower = Feed(store)
        await follower.load()
        try:
            await scenario(controller, follower)
        finally:
            await store.close()

    asyncio.run(run())


def test_who_follows_sees_every_change_in_order(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: Feed) -> None:
        seen: list[int] = []
        follower.on_image(lambda old, new: seen.append(new.version))
        arrived = asyncio.Event()
        first = follower.image.version
        follower.on_image(lambda old, new: arrived.set() if new.version == first + 20 else None)
        following = asyncio.create_task(follower.follow())
        for number in range(20):
            await controller.submit(creating(f"t{number}"))
        await arrived.wait()
        following.cancel()
        assert follower.image == controller.image
        assert seen == list(range(first + 1, first + 21))

    session(tmp_path, scenario)


def test_who_is_too_far_behind_reads_the_tree(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: Feed) -> None:
        told: list[tuple[ClusterImage, ClusterImage]] = []
        follower.on_image(lambda old, new: told.append((old, new)))
        await controller.submit(creating("t"))
        await follower.catch_up()
        topic = follower.image.topics["t"]
        for number in range(20):
            await controller.submit(configuring(number))
        await follower.catch_up()
        assert follower.image == controller.image
        assert len(told) == 2
        assert follower.image.topics["t"] is topic, "what is the same stays the same object"

    session(tmp_path, scenario, feed_entries=5)


def test_a_gap_or_a_damaged_entry_does_no_harm(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: Feed) -> None:
        for damage in (
            lambda path: Delete(path),
            lambda path: Set(path, b"{"),
            lambda path: Set(path, b'{"change":"TopicDeleted","topic":"unknown"}'),
        ):
            await controller.submit(configuring(follower.image.version))
            path = tree.entry_path(controller.image.version)
            await controller.submit(creating(f"t{follower.image.version}"))
            await follower.store.multi([damage(path)])
            await follower.catch_up()
            assert follower.image == controller.image

    session(tmp_path, scenario)


class Breaking:
    """A store whose connection breaks on demand, before or after a change was made."""

    def __init__(self, store: SqliteStore, made: bool, times: int) -> None:
        self._store = store
        self._made = made
        self.times = times

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def multi(self, ops: Sequence[Op]) -> list[Done] | Conflict:
        if self.times:
            self.times -= 1
            if self._made:
                await self._store.multi(ops)
            raise StoreUnavailable("connection lost")
        return await self._store.multi(ops)


def test_a_change_waits_for_a_store_that_is_away_and_is_made_once(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: Feed) -> None:
        store = follower.store
        assert isinstance(store, SqliteStore)
        patient = Controller(store, patience_s=60)
        await controller.leave()
        await patient.load()
        await patient.join(Broker(1, {}))
        for number, made in enumerate((True, False)):
            patient.feed.store = Breaking(store, made, times=1)  # type: ignore[assignment]
            version = patient.image.version
            assert isinstance(await patient.submit(creating(f"t{number}")), TopicCreated)
            assert patient.image.version == version + 1
        await follower.catch_up()
        assert follower.image == patient.image

    session(tmp_path, scenario)


def test_a_store_with_a_limit_gets_large_changes_in_portions(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: Feed) -> None:
        result = await controller.submit_each([creating("a", 200), creating("a"), creating("b", 3), creating("c", 100)])
        assert [isinstance(each, Refusal) for each in result] == [False, True, False, False]
        assert {name: len(topic.partitions) for name, topic in controller.image.topics.items()} == {
            "a": 200,
            "b": 3,
            "c": 100,
        }
        await follower.catch_up()
        assert follower.image == controller.image
        largest = max(
            [len(node.data) for path, node in (await follower.store.subtree(tree.FEED)).items() if path != tree.FEED]
        )
        assert largest < 20_000

    session(tmp_path, scenario, limit=20_000)


def test_a_large_topic_is_deleted_in_one_change_and_can_be_created_again(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: Feed) -> None:
        size = tree.DELETED_AT_ONCE + 1
        for _ in range(2):
            await controller.submit(creating("t", size))
            version = controller.image.version
            await controller.submit(lambda image: delete_topic(image, name="t"))
            assert controller.image.version == version + 1
            assert await follower.store.children(tree.TOPICS) == []
        await follower.catch_up()
        await follower.reload()
        assert follower.image == controller.image

    session(tmp_path, scenario)


def test_what_a_dead_controller_left_of_a_topic_is_swept_by_the_next(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: Feed) -> None:
        await controller.submit(creating("t", 3))
        await controller.submit(creating("u", 3))
        await follower.store.multi([Delete("/config/topics/t"), Set(f"{tree.TOPICS}/t", tree.DELETED)])
        await controller.feed.reload()
        assert list(controller.image.topics) == ["u"]
        await controller.sweep()
        assert await follower.store.children(tree.TOPICS) == ["u"]

    session(tmp_path, scenario)
