"""The controller on a real embedded store: what it answered stays, and every failure is an answer."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.tree import Op, Set
from moldau.broker.controller import PRODUCER_ID_BLOCK, Controller
from moldau.broker.fresh import fresh_id
from moldau.metadata import znodes
from moldau.metadata.changes import BrokerConfigured, Decide, GroupConfigured, PartitionChanged, TopicCreated, apply
from moldau.metadata.image import Broker, ClusterImage, Endpoint
from moldau.metadata.topics import TopicDefaults, TopicSpec, create_topic, delete_topic
from moldau.store.port import Conflict, Done, Store, StoreDamaged, StoreUnavailable
from moldau.store.sqlite import SqliteStore

BROKER = Broker(1, {"PLAINTEXT": Endpoint("localhost", 9092)}, rack="r1")


def creating(name: str, partitions: int = 1) -> Decide:
    spec = TopicSpec(name, partitions)
    topic_id = fresh_id()
    return lambda image: create_topic(image, spec, topic_id=topic_id, defaults=TopicDefaults())


def session(path: Path, scenario: Callable[[Controller, SqliteStore], Awaitable[None]], **options: int) -> None:
    async def run() -> None:
        store = await SqliteStore.open(path / "store.db")
        controller = Controller(store, **options)
        await controller.load()
        assert await controller.join(BROKER) is None
        try:
            await scenario(controller, store)
        finally:
            await store.close()

    asyncio.run(run())


async def loaded(store: Store) -> ClusterImage:
    """What another process would read now."""
    reader = Controller(store)
    await reader.load()
    return reader.image


class FlakyStore:
    """A store that fails on demand, before or after having done what it was asked."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.fail_before = self.fail_after = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def multi(self, ops: Sequence[Op]) -> list[Done] | Conflict:
        if self.fail_before:
            raise StoreUnavailable("disk full")
        result = await self._store.multi(ops)
        if self.fail_after:
            raise StoreUnavailable("connection lost")
        return result


def test_a_new_node_has_a_cluster_id_a_broker_and_a_controller(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        image = controller.image
        assert len(image.cluster_id) == 22
        assert (image.controller_id, image.controller_epoch) == (1, 1)
        assert image.brokers[1].endpoints == BROKER.endpoints
        assert image.brokers[1].epoch == image.version
        assert await loaded(store) == image

    session(tmp_path, scenario)


def test_everything_is_there_after_a_restart_under_new_epochs(tmp_path: Path) -> None:
    seen: list[ClusterImage] = []

    async def first(controller: Controller, store: SqliteStore) -> None:
        await controller.submit(creating("t", 3))
        await controller.submit(lambda image: BrokerConfigured("", {"log.retention.ms": "5"}))
        await controller.submit(lambda image: GroupConfigured("a/b", {"consumer.session.timeout.ms": "50000"}))
        seen.append(controller.image)

    async def second(controller: Controller, store: SqliteStore) -> None:
        old, new = seen[0], controller.image
        assert (new.topics, new.broker_configs, new.cluster_id) == (old.topics, old.broker_configs, old.cluster_id)
        assert new.group_configs == old.group_configs == {"a/b": {"consumer.session.timeout.ms": "50000"}}
        assert new.controller_epoch == old.controller_epoch + 1
        assert new.brokers[1].epoch > old.brokers[1].epoch

    session(tmp_path, first)
    session(tmp_path, second)


def test_a_change_is_in_the_image_and_told_before_it_is_answered(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        told: list[tuple[int, int]] = []
        controller.on_image(lambda old, new: told.append((len(old.topics), len(new.topics))))
        result = await controller.submit(creating("t"))
        assert isinstance(result, TopicCreated)
        assert "t" in controller.image.topics
        assert told == [(0, 1)]

    session(tmp_path, scenario)


def test_a_refusal_changes_nothing(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        before = controller.image
        result = await controller.submit(creating("not a name"))
        assert isinstance(result, Refusal)
        assert controller.image is before

    session(tmp_path, scenario)


def test_several_decisions_build_on_each_other_and_are_one_change(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        version = controller.image.version
        results = await controller.submit_each(
            [creating("a"), creating("a"), creating("b"), lambda image: delete_topic(image, name="b")]
        )
        assert isinstance(results[1], Refusal)
        assert results[1].error is WireError.TOPIC_ALREADY_EXISTS
        assert not any(isinstance(result, Refusal) for result in (results[0], results[2], results[3]))
        assert list(controller.image.topics) == ["a"]
        assert controller.image.version == version + 1
        assert await loaded(store) == controller.image

    session(tmp_path, scenario)


def test_concurrent_submits_are_taken_one_by_one(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        results = await asyncio.gather(*(controller.submit(creating(f"t{i % 10}")) for i in range(20)))
        assert sum(isinstance(result, Refusal) for result in results) == 10
        assert len(controller.image.topics) == 10
        assert await loaded(store) == controller.image

    session(tmp_path, scenario)


def test_a_caller_that_goes_away_leaves_image_and_store_in_step(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        caller = asyncio.create_task(controller.submit(creating("t")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        caller.cancel()
        await controller.submit(creating("u"))
        assert sorted(controller.image.topics) == ["t", "u"]
        assert await loaded(store) == controller.image

    session(tmp_path, scenario)


def test_an_unavailable_store_is_a_retriable_refusal(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        flaky = FlakyStore(store)
        controller.feed.store = flaky  # type: ignore[assignment]
        flaky.fail_before = True
        before = controller.image
        result = await controller.submit(creating("t"))
        assert isinstance(result, Refusal)
        assert result.error.retriable
        assert "disk full" in result.message
        assert controller.image is before
        assert isinstance(await controller.allocate_producer_ids(), Refusal)
        flaky.fail_before = False
        assert isinstance(await controller.submit(creating("t")), TopicCreated)

    session(tmp_path, scenario)


def test_a_change_whose_answer_was_lost_is_found_again(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        flaky = FlakyStore(store)
        controller.feed.store = flaky  # type: ignore[assignment]
        flaky.fail_after = True
        assert isinstance(await controller.submit(creating("t")), Refusal)
        flaky.fail_after = False
        result = await controller.submit(creating("t"))
        assert isinstance(result, Refusal)
        assert result.error is WireError.TOPIC_ALREADY_EXISTS
        assert await loaded(store) == controller.image

    session(tmp_path, scenario)


def test_another_writers_change_is_seen_and_the_decision_made_again(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        await controller.submit(creating("t"))
        change = PartitionChanged("t", 0, (1,), (1,), leader=1, leader_epoch=5)
        assert isinstance(await store.multi(znodes.ops_for(change, controller.image)), list)
        asked: list[int] = []

        def decide(image: ClusterImage) -> PartitionChanged:
            asked.append(image.topics["t"].partitions[0].leader_epoch)
            return PartitionChanged("t", 0, (1,), (1,), leader=1, leader_epoch=asked[-1] + 1)

        await controller.submit(decide)
        assert asked == [0, 5]
        assert controller.image.topics["t"].partitions[0].leader_epoch == 6

    session(tmp_path, scenario)


def test_a_deposed_controller_changes_nothing(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        await store.multi([Set(znodes.CONTROLLER_EPOCH, b"2", 1)])
        result = await controller.submit(creating("t"))
        assert isinstance(result, Refusal)
        assert result.error is WireError.NOT_CONTROLLER
        assert (await loaded(store)).topics == {}

    session(tmp_path, scenario)


def test_there_is_one_controller(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        second = Controller(store)
        await second.load()
        refusal = await second.join(Broker(2, {}))
        assert refusal is not None
        assert refusal.error is WireError.NOT_CONTROLLER
        result = await second.submit(creating("t"))
        assert isinstance(result, Refusal)
        await controller.leave()
        await second.load()
        assert await second.join(Broker(2, {})) is None
        assert second.image.controller_epoch == 2

    session(tmp_path, scenario)


def test_producer_ids_are_never_given_out_twice(tmp_path: Path) -> None:
    given: list[int] = []

    async def scenario(controller: Controller, store: SqliteStore) -> None:
        for block in await asyncio.gather(*(controller.allocate_producer_ids() for _ in range(3))):
            assert isinstance(block, range)
            assert len(block) == PRODUCER_ID_BLOCK
            given.extend(block)

    session(tmp_path, scenario)
    session(tmp_path, scenario)
    assert len(set(given)) == len(given) == 6 * PRODUCER_ID_BLOCK


def test_the_feed_replays_to_the_image_and_keeps_its_size(tmp_path: Path) -> None:
    async def scenario(controller: Controller, store: SqliteStore) -> None:
        follower = controller.image
        for i in range(12):
            await controller.submit(creating(f"t{i}"))
            path = znodes.entry_path(controller.image.version)
            node = await store.get(path)
            assert node is not None
            follower = apply(follower, znodes.feed_entry(path, node.data))
            assert follower == controller.image
            assert len(await store.children(znodes.FEED)) <= 5

    session(tmp_path, scenario, feed_entries=5)


def test_a_smaller_feed_is_trimmed_in_bounded_steps(tmp_path: Path) -> None:
    async def grow(controller: Controller, store: SqliteStore) -> None:
        for i in range(250):
            await controller.submit(lambda image, i=i: BrokerConfigured("", {"x": str(i)}))

    async def shrink(controller: Controller, store: SqliteStore) -> None:
        sizes = [len(await store.children(znodes.FEED))]
        for i in range(3):
            await controller.submit(lambda image, i=i: BrokerConfigured("", {"x": str(i)}))
            sizes.append(len(await store.children(znodes.FEED)))
        assert max(before - after for before, after in itertools.pairwise(sizes)) <= 100
        assert sizes[-1] == 10

    session(tmp_path, grow)
    session(tmp_path, shrink, feed_entries=10)


def test_damaged_metadata_is_told_at_the_start(tmp_path: Path) -> None:
    async def damage(controller: Controller, store: SqliteStore) -> None:
        await controller.submit(creating("t"))
        await store.multi([Set("/brokers/topics/t", b"{")])
        with pytest.raises(StoreDamaged, match="/brokers/topics/t"):
            await loaded(store)

    session(tmp_path, damage)
