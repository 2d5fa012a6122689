"""A cluster has a controller that all know of, whatever was missed; on a store in memory of one process."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from moldau.base.tree import Create, Delete
from moldau.broker.cluster.broker_registration import BrokerRegistration, Findings
from moldau.broker.cluster.controller_loop import ControllerLoop
from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.controller import Controller
from moldau.metadata import znodes
from moldau.metadata.changes import BrokerGone, BrokerRegistered, ControllerElected, TopicCreated
from moldau.metadata.elections import ElectionRules
from moldau.metadata.image import Broker, ClusterImage, Endpoint, PartitionState
from moldau.net.peer import connect_plain
from moldau.store.sqlite import SqliteStore

RULES = ElectionRules(min_isr=lambda _: 1, unclean=lambda _: False)


def one_broker(path: Path, scenario: Callable[[Controller, BrokerRegistration, SqliteStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = await SqliteStore.open(path / "store.db")
        controller = Controller(store)
        await controller.load()
        registration = BrokerRegistration(controller, 1, "X", lambda _: RULES, connect_plain)
        try:
            await registration.election.create_cluster(())
            await registration.start(Broker(1, {}), Findings())
            await scenario(controller, registration, store)
        finally:
            await registration.stop()
            await store.close()

    asyncio.run(run())


def test_a_controller_that_came_and_went_unnoticed_is_replaced(tmp_path: Path) -> None:
    """Cut off from the store, this broker missed that another one was elected. That one is gone, too, by now."""

    async def scenario(controller: Controller, registration: BrokerRegistration, store: SqliteStore) -> None:
        registration._tasks[0].cancel()  # nothing comes by the feed
        for _ in range(10):  # the store serves one after the other: by then it knows that it is the controller
            await store.exists(znodes.CONTROLLER)
        ops = znodes.ops_for(ControllerElected(9), controller.image)
        elected = asyncio.Event()
        controller.on_image(lambda _, new: elected.set() if new.controller_epoch == 3 else None)
        await store.multi([Delete(znodes.CONTROLLER), *(op for op in ops if op != _elected(9))])
        await elected.wait()

    one_broker(tmp_path, scenario)


def _elected(broker_id: int) -> Create:
    (made,) = [
        op for op in znodes.ops_for(ControllerElected(broker_id), ClusterImage()) if op.path == znodes.CONTROLLER
    ]
    assert isinstance(made, Create)
    return made


def test_a_controller_without_registration_does_not_remove_itself(tmp_path: Path) -> None:
    """Its own node was removed, but not the controller's: no broker would run, and clients would find no controller."""

    async def scenario(controller: Controller, registration: BrokerRegistration, store: SqliteStore) -> None:
        await registration.stop()
        state = PartitionState(0, (1,), (1,), 1)
        await controller.submit(lambda _: TopicCreated("t", UUID(int=7), (state,), {}))
        controller_loop = ControllerLoop(controller, lambda _: RULES)
        await store.multi([Delete(znodes.broker_path(1))])
        controller_loop.elected()
        assert await controller_loop._settle()
        assert controller.image.controller_id == 1
        await controller.feed.reload()
        assert await controller_loop._settle()
        assert controller.image.controller_id == 1

    one_broker(tmp_path, scenario)


def test_brokers_that_are_removed_are_a_warning_and_elections_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(controller: Controller, registration: BrokerRegistration, store: SqliteStore) -> None:
        await registration.stop()
        waiting = PartitionState(0, (1,), (1,), -1)  # for a leader
        with_another = PartitionState(0, (2, 1), (2, 1), 2)
        await controller.claim(lambda _: BrokerRegistered(Broker(2, {})))
        await controller.submit(lambda _: TopicCreated("t", UUID(int=7), (with_another,), {}))
        await store.multi([Delete(znodes.broker_path(2))])
        controller_loop = ControllerLoop(controller, lambda _: RULES)
        assert await controller_loop._settle()
        await controller.submit(lambda _: TopicCreated("u", UUID(int=8), (waiting,), {}))
        assert await controller_loop._settle()
        assert await controller_loop._settle(), "and of nothing nothing is told"

    with caplog.at_level(logging.INFO, "moldau.broker"):
        one_broker(tmp_path, scenario)
    lines = [(each.levelname, re.sub(r"[\d.]+ ms", "_ ms", each.getMessage())) for each in caplog.records]
    assert [line for line in lines if line[1].endswith(" ms")] == [
        ("WARNING", "Brokers 2 are unavailable; changed 1 partitions in _ ms"),
        ("INFO", "Elected leaders or changed the ISR of 1 partitions in _ ms"),
    ]


def test_a_mistake_does_not_end_what_a_broker_does_for_ever(tmp_path: Path) -> None:
    async def scenario(controller: Controller, registration: BrokerRegistration, store: SqliteStore) -> None:
        other = Controller(store)
        await other.load()
        failed, told = asyncio.Event(), asyncio.Event()

        def follow(_: ClusterImage, new: ClusterImage) -> None:
            if not failed.is_set():
                failed.set()
                raise ZeroDivisionError
            if 3 in new.brokers:
                told.set()

        controller.on_image(follow)
        await other.claim(lambda _: BrokerRegistered(Broker(2, {})))
        await failed.wait()
        await other.claim(lambda _: BrokerRegistered(Broker(3, {})))
        await told.wait()
        assert set(controller.image.brokers) == {1, 2, 3}

    one_broker(tmp_path, scenario)


def test_a_broker_that_was_told_of_as_gone_by_mistake_registers_again(tmp_path: Path) -> None:
    """Its node is there all the same."""

    async def scenario(controller: Controller, registration: BrokerRegistration, store: SqliteStore) -> None:
        epoch, back = registration.epoch, asyncio.Event()
        controller.on_image(lambda _, new: back.set() if 1 in new.brokers and new.brokers[1].epoch > epoch else None)
        await controller.submit(lambda _: BrokerGone(1, expired=True))
        await back.wait()
        follower = MetadataFeed(store)
        await follower.load()
        assert follower.image.brokers[1].epoch > epoch

    one_broker(tmp_path, scenario)


def test_registrations_are_not_read_from_a_server_that_lags_behind(tmp_path: Path) -> None:
    """After a session has expired the next one may be with any server of the ensemble."""

    class Lagging:
        def __init__(self, store: SqliteStore) -> None:
            self._store = store
            self._synced = False

        def __getattr__(self, name: str) -> object:
            return getattr(self._store, name)

        async def sync(self) -> None:
            self._synced = True

        async def children(self, path: str) -> list[str]:
            found = await self._store.children(path)
            return found if self._synced or path != znodes.BROKERS else found[:1]

    async def scenario(controller: Controller, registration: BrokerRegistration, store: SqliteStore) -> None:
        await registration.stop()
        await controller.claim(lambda _: BrokerRegistered(Broker(2, {})))
        controller.feed.store = Lagging(store)  # type: ignore[assignment]
        assert await ControllerLoop(controller, lambda _: RULES)._settle()
        assert set(controller.image.brokers) == {1, 2}

    one_broker(tmp_path, scenario)


def test_of_two_brokers_with_one_id_the_one_before_gives_way(tmp_path: Path) -> None:
    """It was removed by mistake and started again elsewhere; or two brokers have one id."""

    async def scenario(controller: Controller, registration: BrokerRegistration, store: SqliteStore) -> None:
        elsewhere = {"X": Endpoint("elsewhere", 9092)}
        told: list[str] = []
        replaced = asyncio.Event()
        registration.on_replaced = lambda reason: (told.append(reason), replaced.set())[0]
        other = Controller(store)
        await other.load()
        await other.claim(lambda _: BrokerRegistered(Broker(1, elsewhere)))
        await replaced.wait()
        for _ in range(10):
            await store.exists(znodes.CONTROLLER)
        assert told == ["broker id 1 is now in use by another broker at elsewhere:9092"]
        await other.feed.catch_up()
        assert other.image.brokers[1].endpoints == elsewhere

    one_broker(tmp_path, scenario)
