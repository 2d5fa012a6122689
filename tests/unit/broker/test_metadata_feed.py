"""Following the metadata: two feeds of one store see the same image, even if the feed was trimmed or is damaged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.tree import Create, Delete, Op, Set
from moldau.broker.cluster import metadata_feed
from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.cluster.topic_nodes import remove_topic_nodes
from moldau.broker.controller import Controller
from moldau.broker.fresh import fresh_id
from moldau.metadata import znodes
from moldau.metadata.changes import (
    BrokerConfigured,
    BrokerRegistered,
    Change,
    ChangeSet,
    Decide,
    GroupConfigured,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
)
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage
from moldau.metadata.topics import TopicDefaults, TopicSpec, add_partitions, create_topic, delete_topic
from moldau.store.port import Conflict, Done, Node, StoreDamaged, StoreUnavailable, TooMuch
from moldau.store.sqlite import SqliteStore


def creating(name: str, partitions: int = 1) -> Decide:
    spec, topic_id = TopicSpec(name, partitions), fresh_id()
    return lambda image: create_topic(image, spec, topic_id=topic_id, defaults=TopicDefaults())


def configuring(number: int) -> Decide:
    return lambda image: BrokerConfigured("", {"log.retention.ms": str(number)})


def session(path: Path, scenario: Callable[[Controller, MetadataFeed], Awaitable[None]], **options: int) -> None:
    """A controller, and a feed that follows it."""

    async def run() -> None:
        store = await SqliteStore.open(path / "store.db")
        controller = Controller(store, **options)
        await controller.load()
        assert await controller.join(Broker(1, {})) is None
        follower = MetadataFeed(store)
        await follower.load()
        try:
            await scenario(controller, follower)
        finally:
            await store.close()

    asyncio.run(run())


def test_a_follower_sees_every_change_in_order(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
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


def test_a_store_that_is_away_or_damaged_is_told_once_and_so_is_its_return(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[Exception] = [
        *[StoreUnavailable("connection lost")] * 3,
        *[StoreDamaged("/brokers is corrupt")] * 3,
        StoreUnavailable("connection lost"),
    ]

    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        caught_up = asyncio.Event()

        async def catch_up() -> None:
            if problems:
                raise problems.pop(0)
            caught_up.set()

        monkeypatch.setattr(metadata_feed, "PAUSE_S", 0)
        monkeypatch.setattr(follower, "catch_up", catch_up)
        with caplog.at_level(logging.INFO, "moldau.broker"):
            following = asyncio.create_task(follower.follow())
            await caught_up.wait()
            await asyncio.sleep(0)
            following.cancel()
        lines = [(each.levelname, each.getMessage().partition(":")[0]) for each in caplog.records]
        away = ("WARNING", "Metadata store unreachable")
        damaged = ("ERROR", "Metadata in the store cannot be read")
        back = f"Metadata store reachable again; metadata is current at version {follower.image.version}."
        assert lines == [away, damaged, away, ("INFO", back)]

    session(tmp_path, scenario)


def test_a_follower_too_far_behind_reads_the_tree(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
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
    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        for damage in (
            lambda path: Delete(path),
            lambda path: Set(path, b"{"),
            lambda path: Set(path, b'{"change":"TopicDeleted","topic":"unknown"}'),
        ):
            await controller.submit(configuring(follower.image.version))
            path = znodes.entry_path(controller.image.version)
            await controller.submit(creating(f"t{follower.image.version}"))
            await follower.store.multi([damage(path)])
            await follower.catch_up()
            assert follower.image == controller.image

    session(tmp_path, scenario)


class Breaking:
    """A store with a connection that breaks on demand, before or after a commit."""

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
    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
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
    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
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
            [
                len(node.data)
                for path, node in (await follower.store.subtree(znodes.FEED)).items()
                if path != znodes.FEED
            ]
        )
        assert largest < 20_000

    session(tmp_path, scenario, limit=20_000)


def test_a_large_topic_is_deleted_in_one_change_and_can_be_created_again(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        size = znodes.DELETED_AT_ONCE + 1
        for _ in range(2):
            await controller.submit(creating("t", size))
            version = controller.image.version
            await controller.submit(lambda image: delete_topic(image, name="t"))
            assert controller.image.version == version + 1
            assert await follower.store.children(znodes.TOPICS) == []
        await follower.catch_up()
        await follower.reload()
        assert follower.image == controller.image

    session(tmp_path, scenario)


def test_what_a_dead_controller_left_of_a_topic_is_swept_by_the_next(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        await controller.submit(creating("t", 3))
        await controller.submit(creating("u", 3))
        await follower.store.multi([Delete("/config/topics/t"), Set(f"{znodes.TOPICS}/t", znodes.DELETED)])
        await controller.feed.reload()
        assert list(controller.image.topics) == ["u"]
        await controller.remove_deleted_topics()
        assert await follower.store.children(znodes.TOPICS) == ["u"]

    session(tmp_path, scenario)


LARGE = znodes.CREATED_AT_ONCE + 10  # partitions


@pytest.fixture
def in_three_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(znodes, "STAGED_AT_ONCE", LARGE // 3)


class Intruding:
    """A store in which something happens before a transaction of a certain number."""

    def __init__(self, store: SqliteStore, at: int, happens: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._at = at
        self._happens = happens

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def multi(self, ops: Sequence[Op]) -> list[Done] | Conflict:
        self._at -= 1
        if self._at == 0:
            await self._happens()
        return await self._store.multi(ops)


@pytest.mark.usefixtures("in_three_stages")
@pytest.mark.parametrize("at", range(1, 6))
def test_a_large_topic_is_there_as_a_whole_or_not_at_all(tmp_path: Path, at: int) -> None:
    """Its controller dies while it creates it; the next one creates it when it is asked again."""

    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        store = controller.feed.store
        assert isinstance(store, SqliteStore)

        async def die() -> None:
            raise asyncio.CancelledError

        controller.feed.store = Intruding(store, at, die)  # type: ignore[assignment]
        with pytest.raises(asyncio.CancelledError):
            await controller.submit(creating("t", LARGE))
        await follower.reload()
        assert not follower.image.topics
        await store.multi([Delete(znodes.CONTROLLER), Delete(znodes.broker_path(1))])
        successor = Controller(store, limit=100_000)
        await successor.load()
        assert await successor.join(Broker(2, {})) is None
        assert isinstance(await successor.submit(creating("t", LARGE)), TopicCreated)
        await follower.reload()
        assert len(follower.image.topics["t"].partitions) == LARGE
        assert follower.image.topics == successor.image.topics

    session(tmp_path, scenario, limit=100_000)


@pytest.mark.usefixtures("in_three_stages")
@pytest.mark.parametrize("partitions", [LARGE, 120])
def test_brokers_that_register_meanwhile_do_not_make_a_new_topic_an_old_one(tmp_path: Path, partitions: int) -> None:
    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        store = controller.feed.store
        assert isinstance(store, SqliteStore)
        other = Controller(store)
        await other.load()
        for at in (2, 5) if partitions == LARGE else (1, 2, 4, 5):

            async def register(number: int = at) -> None:
                await other.claim(lambda _: BrokerRegistered(Broker(100 + number, {})))

            controller.feed.store = Intruding(store, at, register)  # type: ignore[assignment]
            names = [f"t{at}-{number}" for number in range(2 if partitions == LARGE else 6)]
            results = await controller.submit_each([creating(name, partitions) for name in names])
            assert not [each for each in results if isinstance(each, Refusal)]
            assert all(len(controller.image.topics[name].partitions) == partitions for name in names)
            await controller.submit_each([partial(delete_topic, name=name) for name in names])

    session(tmp_path, scenario, limit=100_000)


def test_an_interrupted_growth_of_a_topic_is_completed(tmp_path: Path) -> None:
    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        store = controller.feed.store
        assert isinstance(store, SqliteStore)
        other = Controller(store)
        await other.load()
        await controller.submit(creating("t"))

        registered = 0

        async def register() -> None:
            nonlocal registered
            registered += 1
            await other.claim(lambda image: BrokerRegistered(Broker(100 + registered, {})))
            if registered < 3:
                controller.feed.store = Intruding(store, 1, register)  # type: ignore[assignment]

        controller.feed.store = Intruding(store, 2, register)  # type: ignore[assignment]
        replicas = [(1,)] * 600  # as somebody wishes it: what is left cannot be asked for in the same words
        result = await controller.submit(lambda image: add_partitions(image, "t", 601, replicas))
        assert isinstance(result, PartitionsAdded)
        assert len(controller.image.topics["t"].partitions) == 601

    session(tmp_path, scenario, limit=100_000)


def test_what_is_left_of_a_deleted_topic_is_not_in_the_way_of_a_new_one(tmp_path: Path) -> None:
    """The connection was lost before the nodes of its partitions were removed."""

    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        store = controller.feed.store
        assert isinstance(store, SqliteStore)
        for size in (1, znodes.DELETED_AT_ONCE + 1):
            await controller.submit(creating("t", znodes.DELETED_AT_ONCE + 1))

            async def lose() -> None:
                raise StoreUnavailable("connection lost")

            controller.feed.store = Intruding(store, 2, lose)  # type: ignore[assignment]
            await controller.submit(lambda image: delete_topic(image, name="t"))
            assert await store.children(znodes.TOPICS) == ["t"]
            controller.feed.store = store
            assert isinstance(await controller.submit(creating("t", size)), TopicCreated)
            await follower.reload()
            assert len(follower.image.topics["t"].partitions) == size
            await controller.submit(lambda image: delete_topic(image, name="t"))

    session(tmp_path, scenario)


@pytest.mark.usefixtures("in_three_stages")
def test_a_staged_topic_that_another_broker_removes_is_not_created(tmp_path: Path) -> None:
    """Two brokers that found a cluster at once have the same controller epoch."""

    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        store = controller.feed.store
        assert isinstance(store, SqliteStore)
        swept = []

        async def remove_deleted_topics() -> None:
            swept.append(await remove_topic_nodes(store, controller.image.controller_epoch, "t"))

        for at in range(2, 6):  # of the transactions that make it, the first has nothing to sweep
            controller.feed.store = Intruding(store, at, remove_deleted_topics)  # type: ignore[assignment]
            assert isinstance(await controller.submit(creating("t", LARGE)), TopicCreated)
            await follower.reload()
            assert len(follower.image.topics["t"].partitions) == LARGE
            await controller.submit(lambda image: delete_topic(image, name="t"))
        assert swept == [None] * 4

    session(tmp_path, scenario)


def test_what_is_more_than_the_store_takes_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    class Small(Intruding):
        async def multi(self, ops: Sequence[Op]) -> list[Done] | Conflict:
            if sum(len(op.data) for op in ops if isinstance(op, Create | Set)) > 9_000 and ops[-1].path == znodes.FEED:
                raise TooMuch("a change of 9,001 bytes")
            return await self._store.multi(ops)

    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        store = controller.feed.store
        assert isinstance(store, SqliteStore)
        controller.feed.store = Small(store, 0, asyncio.Event().wait)  # type: ignore[assignment]
        large = await controller.submit(creating("t", 1_000))
        assert isinstance(large, Refusal)
        assert large.error is WireError.POLICY_VIOLATION
        assert await store.children(znodes.TOPICS) == []
        assert isinstance(await controller.submit(creating("t")), TopicCreated)

    session(tmp_path, scenario)


class Busy:
    """A store that other brokers change during every read."""

    def __init__(self, store: SqliteStore, work: Callable[[str, str], Awaitable[None]]) -> None:
        self._store = store
        self._work = work

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def get(self, path: str) -> Node | None:
        found = await self._store.get(path)
        await self._work("get", path)
        return found

    async def subtree(self, path: str) -> dict[str, Node]:
        found = await self._store.subtree(path)
        await self._work("subtree", path)
        return found


def test_a_tree_that_changes_faster_than_it_can_be_read_is_read(tmp_path: Path) -> None:
    """All of a large cluster takes seconds, and there is a change every second."""

    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        store = controller.feed.store
        assert isinstance(store, SqliteStore)

        async def work(how: str, path: str) -> None:
            if path == "/brokers":
                await controller.submit(creating(f"t{controller.image.version}"))

        follower.store = Busy(store, work)  # type: ignore[assignment]
        await follower.reload()
        assert follower.image == controller.image
        assert len(follower.image.topics) == 1

    session(tmp_path, scenario)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_read_while_others_change_it_is_what_they_made_of_it(tmp_path: Path, seed: int) -> None:
    async def scenario(controller: Controller, follower: MetadataFeed) -> None:
        store = controller.feed.store
        assert isinstance(store, SqliteStore)
        random, left = Random(seed), 12
        for number in range(4):
            await controller.submit(creating(f"t{number}", 3))

        async def work(how: str, path: str) -> None:
            nonlocal left
            if left and random.random() < 0.5:
                left -= 1
                name = f"t{random.randrange(5)}"
                decide = random.choice(
                    (
                        creating(name, random.choice((1, 3, znodes.CREATED_AT_ONCE + 1))),
                        partial(delete_topic, name=name),
                        partial(add_partitions, name=name, total=5),
                        partial(leaderless, name),
                        configuring(left),
                        lambda image: GroupConfigured("g", {} if "g" in image.group_configs else {"a": "b"}),
                        lambda image: BrokerRegistered(Broker(7, {})),
                    )
                )
                await controller.submit(decide)

        follower.store = Busy(store, work)  # type: ignore[assignment]
        await follower.reload()
        left = 0
        await follower.catch_up()
        assert follower.image == controller.image
        fresh = MetadataFeed(store)
        await fresh.reload()
        assert fresh.image == controller.image

    session(tmp_path, scenario)


def leaderless(name: str, image: ClusterImage) -> Change | Refusal:
    if name not in image.topics:
        return ChangeSet(())
    state = image.topics[name].partitions[0]
    return PartitionChanged(name, 0, (2, 1), state.isr, NO_BROKER, state.leader_epoch + 1, adding=(2,))
