"""What every coordination store promises. A new implementation adds one row to FACTORIES and passes all of this."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moldau.base.tree import Check, Create, Delete, Set
from moldau.store.port import Conflict, Done, Node, Reason, Store, StoreUnavailable
from moldau.store.sqlite import SqliteStore
from moldau.store.zookeeper import ZooKeeperStore
from moldau.testing import ZooKeeper

OpenStore = Callable[[], Awaitable[Store]]  # each call is a new session on the same tree


def sqlite_factory(request: pytest.FixtureRequest) -> OpenStore:
    directory: Path = request.getfixturevalue("tmp_path")
    return lambda: SqliteStore.open(directory / "store.db")


def zookeeper_factory(request: pytest.FixtureRequest) -> OpenStore:
    zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
    chroot = f"/{uuid.uuid4().hex}"
    return lambda: ZooKeeperStore.open(zookeeper.connect + chroot)


FACTORIES = {"sqlite": sqlite_factory, "zookeeper": zookeeper_factory}


@pytest.fixture(params=FACTORIES.values(), ids=FACTORIES.keys())
def open_store(request: pytest.FixtureRequest) -> OpenStore:
    factory: Callable[[pytest.FixtureRequest], OpenStore] = request.param
    return factory(request)


def with_store(open_store: OpenStore, scenario: Callable[[Store], Awaitable[None]]) -> None:
    async def session() -> None:
        store = await open_store()
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(session())


def test_a_new_node_has_its_data_and_version_0(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        assert await store.get("/a") is None
        assert not await store.exists("/a")
        assert await store.multi([Create("/a", b"x")]) == [Done("/a", 0)]
        assert await store.get("/a") == Node(b"x", 0)
        assert await store.exists("/a")

    with_store(open_store, scenario)


def test_set_raises_the_version_by_one(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        await store.multi([Create("/a")])
        assert await store.multi([Set("/a", b"1", 0), Set("/a", b"2", 1), Set("/a", b"3")]) == [
            Done("/a", 1),
            Done("/a", 2),
            Done("/a", 3),
        ]
        assert await store.get("/a") == Node(b"3", 3)

    with_store(open_store, scenario)


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (Create("/a"), Reason.NODE_EXISTS),
        (Create("/x/y"), Reason.NO_NODE),
        (Create("/e/y"), Reason.EPHEMERAL_PARENT),
        (Set("/x", b""), Reason.NO_NODE),
        (Set("/a", b"", 1), Reason.BAD_VERSION),
        (Delete("/x"), Reason.NO_NODE),
        (Delete("/a/b", 7), Reason.BAD_VERSION),
        (Delete("/a"), Reason.NOT_EMPTY),
        (Check("/x"), Reason.NO_NODE),
        (Check("/a", 1), Reason.BAD_VERSION),
    ],
)
def test_a_conflict_names_the_operation_and_leaves_no_trace(open_store: OpenStore, op, reason: Reason) -> None:
    async def scenario(store: Store) -> None:
        await store.multi([Create("/a", b"old"), Create("/a/b"), Create("/e", ephemeral=True)])
        before = await store.subtree("/")
        watch = await store.watch_data("/a")
        ops = [Check("/a", 0), Set("/a/b", b"new"), Create("/c"), op, Set("/a", b"new")]
        conflict = await store.multi(ops)
        assert conflict == Conflict(reason, 3, op)
        assert op.path in str(conflict)
        assert await store.subtree("/") == before
        assert not watch.done()

    with_store(open_store, scenario)


def test_operations_of_a_multi_see_each_other(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        ops = [Create("/a"), Create("/a/b"), Set("/a/b", b"1", 0), Check("/a/b", 1), Delete("/a/b", 1), Delete("/a")]
        assert isinstance(await store.multi(ops), list)
        assert not await store.exists("/a")

    with_store(open_store, scenario)


def test_any_version_is_accepted_where_none_is_asked_for(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        await store.multi([Create("/a"), Set("/a", b"1"), Check("/a")])
        assert isinstance(await store.multi([Check("/a"), Set("/a", b"2"), Delete("/a")]), list)

    with_store(open_store, scenario)


def test_children_are_names_in_order_without_grandchildren(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        paths = ["/a", "/a/c", "/a/b", "/a/b/d", "/a-", "/a-/x", "/b"]
        await store.multi([Create(path) for path in paths])
        assert await store.children("/a") == ["b", "c"]
        assert await store.children("/a/b/d") == []
        assert await store.children("/nowhere") == []
        assert [name for name in await store.children("/") if name in ("a", "a-", "b")] == ["a", "a-", "b"]

    with_store(open_store, scenario)


def test_a_subtree_is_the_node_and_all_below_it(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        await store.multi([Create(path, path.encode()) for path in ("/a", "/a/b", "/a/b/c", "/a.b", "/a0", "/ab")])
        assert await store.subtree("/a") == {path: Node(path.encode(), 0) for path in ("/a", "/a/b", "/a/b/c")}
        assert await store.subtree("/nowhere") == {}

    with_store(open_store, scenario)


def test_sequential_names_only_grow(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        await store.multi([Create("/q")])
        seen = []
        for _ in range(12):
            (done,) = await store.multi([Create("/q/n-", sequential=True)])
            await store.multi([Delete(done.path)])  # a number is not used again even when its node is gone
            seen.append(done.path)
        assert seen == sorted(set(seen))
        assert all(len(path) == len("/q/n-") + 10 for path in seen)

    with_store(open_store, scenario)


def test_data_may_be_any_bytes(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        data = bytes(range(256)) * 1000
        await store.multi([Create("/a", data), Create("/b", b"")])
        assert await store.get("/a") == Node(data, 0)
        assert await store.get("/b") == Node(b"", 0)

    with_store(open_store, scenario)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/a/../b", "/./a", "/a\0b"])
def test_what_is_not_a_path_is_refused(open_store: OpenStore, path: str) -> None:
    async def scenario(store: Store) -> None:
        with pytest.raises(ValueError, match="not a path"):
            await store.multi([Create(path)])

    with_store(open_store, scenario)


def test_a_data_watch_fires_once_for_each_kind_of_change(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        for op in (Create("/a"), Set("/a", b"1"), Delete("/a")):
            watch = await store.watch_data("/a")
            other = await store.watch_data("/b")
            await store.multi([op])
            await asyncio.wait_for(watch, 5)
            assert not other.done()
            other.cancel()

    with_store(open_store, scenario)


def test_a_child_watch_fires_for_children_and_not_for_data(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        await store.multi([Create("/a"), Create("/a/b")])
        watch = await store.watch_children("/a")
        await store.multi([Set("/a", b"1"), Set("/a/b", b"1"), Create("/a/b/c")])
        await asyncio.sleep(0)
        assert not watch.done()
        await store.multi([Create("/a/d")])
        await asyncio.wait_for(watch, 5)
        watch = await store.watch_children("/a")
        await store.multi([Delete("/a/d")])
        await asyncio.wait_for(watch, 5)

    with_store(open_store, scenario)


def test_a_cancelled_watch_harms_nobody(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        gone, stays = await store.watch_data("/a"), await store.watch_data("/a")
        gone.cancel()
        await store.multi([Create("/a")])
        await asyncio.wait_for(stays, 5)

    with_store(open_store, scenario)


def test_closing_cancels_watches_and_refuses_more_work(open_store: OpenStore) -> None:
    async def session() -> None:
        store = await open_store()
        watch = await store.watch_data("/a")
        await store.close()
        await store.close()
        assert watch.cancelled()
        with pytest.raises(StoreUnavailable):
            await store.get("/a")

    asyncio.run(session())


def test_nodes_stay_and_ephemeral_ones_go_with_their_session(open_store: OpenStore) -> None:
    async def first(store: Store) -> None:
        await store.multi([Create("/a", b"x"), Set("/a", b"y"), Create("/e", ephemeral=True)])
        assert await store.exists("/e")

    async def second(store: Store) -> None:
        assert await store.get("/a") == Node(b"y", 1)
        assert not await store.exists("/e")

    with_store(open_store, first)
    with_store(open_store, second)


def test_concurrent_changes_of_one_version_let_one_through(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        await store.multi([Create("/a")])
        results = await asyncio.gather(*(store.multi([Set("/a", bytes([i]), 0)]) for i in range(10)))
        assert sum(not isinstance(result, Conflict) for result in results) == 1

    with_store(open_store, scenario)


def test_a_multi_of_nothing_does_nothing(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        assert await store.multi([]) == []

    with_store(open_store, scenario)


def test_a_store_is_connected_until_it_is_closed(open_store: OpenStore) -> None:
    async def session() -> None:
        told: list[str] = []
        store = await open_store()
        store.on_session(lambda: told.append("a new session"))
        assert store.connected
        await store.sync()
        await store.close()
        assert not store.connected
        assert not told

    asyncio.run(session())


def test_a_subtree_of_thousands_of_nodes_is_complete(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        expected = {"/t": Node(b"", 0)}
        await store.multi([Create("/t")])
        for topic in range(30):
            ops = [Create(f"/t/{topic}", b"topic")]
            for partition in range(40):
                ops += [Create(f"/t/{topic}/{partition}"), Create(f"/t/{topic}/{partition}/state", b"%d" % partition)]
            await store.multi(ops)
            expected |= {op.path: Node(op.data, 0) for op in ops}
        assert await store.subtree("/t") == expected

    with_store(open_store, scenario)


def test_a_caller_who_stops_waiting_does_not_stop_the_change(open_store: OpenStore) -> None:
    async def scenario(store: Store) -> None:
        tasks = [asyncio.create_task(store.multi([Create(f"/{number}")])) for number in range(50)]
        await asyncio.sleep(0)  # all have asked
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await store.children("/") == sorted(map(str, range(50)))

    with_store(open_store, scenario)
