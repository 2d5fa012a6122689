"""The store on ZooKeeper, besides the port's guarantees: it survives lost servers, sessions and connections."""

import asyncio
import socket
import sys
import uuid
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from moldau.base.tree import Check, Create, Delete, Op, Set
from moldau.store.port import Conflict, Done, Node, Reason, StoreError, StoreUnavailable
from moldau.store.zookeeper import MAX_REQUEST_BYTES, ZooKeeperStore, read_connect
from moldau.store.zookeeper_session import IN_FLIGHT
from moldau.testing import ZooKeeper
from support.brokers.zookeeper import end_session, start_zookeeper
from support.net import loops
from support.net.loops import until

NODES = 3
SHORT_SESSION_MS = 2000


@pytest.fixture
def connect(zookeeper: ZooKeeper) -> str:
    """A tree of the test's own on the shared server."""
    return f"{zookeeper.connect}/{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def servers() -> Iterator[ZooKeeper]:
    with start_zookeeper(NODES) as started:
        yield started


@pytest.fixture
def ensemble(servers: ZooKeeper) -> Iterator[ZooKeeper]:
    """Three servers that a test may kill; all run again after it."""
    yield servers
    for node in range(NODES):
        servers.resume(node)
    servers.start()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    loops.run("uvloop", scenario)


async def insist(store: ZooKeeperStore, ops: list[Op]) -> list[Done] | Conflict:
    """The change, as soon as a server takes it."""
    while True:
        try:
            return await store.multi(ops)
        except StoreUnavailable:
            await asyncio.sleep(0.05)


# ── sessions ──


def test_an_expired_session_is_replaced_and_told(connect: str) -> None:
    async def scenario() -> None:
        store, other = await ZooKeeperStore.open(connect), await ZooKeeperStore.open(connect)
        told: list[bool] = []
        store.on_session(lambda: told.append(store.connected))
        await store.multi([Create("/stays"), Create("/goes", ephemeral=True)])
        watch = await store.watch_data("/stays")
        await end_session(store._session)
        await until(lambda: told)
        assert told == [True]  # it can be used by then
        assert watch.done()
        await other.sync()
        assert await other.children("/") == ["stays"]
        assert isinstance(await store.multi([Create("/goes", ephemeral=True)]), list)
        await store.close()
        await other.sync()
        assert await other.children("/") == ["stays"]
        await other.close()

    run(scenario())


def test_a_session_that_was_silent_for_too_long_expires(ensemble: ZooKeeper) -> None:
    """The ensemble stands still together with the time that it measures, so the client's side has to be cut off."""

    async def scenario() -> None:
        proxy = await Proxy.start(ensemble.connect.split(",")[0])
        chroot = f"/{uuid.uuid4().hex}"
        store = await ZooKeeperStore.open(proxy.address + chroot, SHORT_SESSION_MS)
        other = await ZooKeeperStore.open(ensemble.connect + chroot)
        told: list[bool] = []
        store.on_session(lambda: told.append(True))
        await store.multi([Create("/e", ephemeral=True)])
        await other.sync()
        gone = await other.watch_data("/e")
        assert await other.exists("/e")
        proxy.cut()
        await gone
        assert not store.connected
        assert not told  # it cannot know yet
        proxy.mend()
        await until(lambda: told)
        assert await store.children("/") == []
        await store.close()
        await other.close()
        await proxy.stop()

    run(scenario())


def test_a_session_outlives_its_server(ensemble: ZooKeeper) -> None:
    async def scenario() -> None:
        store = await ZooKeeperStore.open(f"{ensemble.connect}/{uuid.uuid4().hex}")
        told: list[bool] = []
        store.on_session(lambda: told.append(True))
        await store.multi([Create("/count"), Create("/e", ephemeral=True)])
        for node in range(NODES):  # one of them is the one that it is connected to, and one is the leader
            ensemble.kill(node)
            await insist(store, [Set("/count", b"%d" % node)])
            await asyncio.to_thread(ensemble.restart, node)
        assert await store.exists("/e")
        assert not told
        await store.close()

    run(scenario())


def test_a_server_that_says_nothing_is_left_for_another(ensemble: ZooKeeper) -> None:
    async def scenario() -> None:
        store = await ZooKeeperStore.open(f"{ensemble.connect}/{uuid.uuid4().hex}", SHORT_SESSION_MS)
        await store.multi([Create("/a")])
        port = store._session.client._connection._socket.getpeername()[1]
        node = [address.endswith(f":{port}") for address in ensemble.connect.split(",")].index(True)
        ensemble.pause(node)
        await insist(store, [Set("/a", b"elsewhere")])
        assert store._session.client._connection._socket.getpeername()[1] != port
        ensemble.resume(node)
        await store.close()

    run(scenario())


# ── all servers gone ──


def test_without_an_ensemble_one_is_told_at_once_and_all_goes_on_when_it_is_back(ensemble: ZooKeeper) -> None:
    async def scenario() -> None:
        store = await ZooKeeperStore.open(f"{ensemble.connect}/{uuid.uuid4().hex}")
        await store.multi([Create("/a", b"kept")])
        watch = await store.watch_data("/a")
        ensemble.stop()
        await watch  # it may have missed something from here on
        assert not store.connected
        for attempt in (
            store.get("/a"),
            store.children("/"),
            store.subtree("/"),
            store.sync(),
            store.multi([Set("/a", b"lost")]),
            store.watch_data("/a"),
        ):
            with pytest.raises(StoreUnavailable):
                await attempt
        await asyncio.to_thread(ensemble.start)
        await until(lambda: store.connected)
        assert await store.get("/a") == Node(b"kept", 0)
        await store.close()

    run(scenario())


def test_a_watch_that_was_set_again_after_a_reconnect_fires(ensemble: ZooKeeper) -> None:
    async def scenario() -> None:
        chroot = f"/{uuid.uuid4().hex}"
        store, other = [await ZooKeeperStore.open(ensemble.connect + chroot) for _ in range(2)]
        await store.multi([Create("/a")])
        before = [await store.watch_data("/a"), await store.watch_children("/a")]
        ensemble.stop()
        await asyncio.to_thread(ensemble.start)
        await asyncio.gather(*before)
        await until(lambda: store.connected)
        data, children = await store.watch_data("/a"), await store.watch_children("/a")
        await insist(other, [Set("/a", b"1")])
        await data
        assert not children.done()
        await insist(other, [Create("/a/b")])
        await children
        await store.close()
        await other.close()

    run(scenario())


def test_no_server_at_all(zookeeper: ZooKeeper) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(StoreUnavailable, match=f"No connection to ZooKeeper at {address} within 300 ms"):
            asyncio.run(ZooKeeperStore.open(address, connection_timeout_ms=300))


def test_closing_does_not_wait_for_a_server_that_is_gone(ensemble: ZooKeeper) -> None:
    async def scenario() -> None:
        store = await ZooKeeperStore.open(ensemble.connect)
        ensemble.stop()
        await until(lambda: not store.connected)
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.get("/a")

    run(scenario())


def test_a_client_whose_thread_died_is_started_again(connect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Poison:
        type = 1

        def serialize(self) -> bytes:
            raise RuntimeError("an error that kazoo does not expect")

    async def scenario() -> None:
        store = await ZooKeeperStore.open(connect)
        await store.multi([Create("/a")])
        client = store._session.client
        with pytest.raises(StoreUnavailable, match="may or may not"):
            await store._session.ask(lambda: _call(client, Poison()))
        await until(lambda: store.connected)
        assert await store.exists("/a")
        await store.close()

    monkeypatch.setattr("threading.excepthook", lambda _: None)  # the thread's death is meant
    monkeypatch.setattr("moldau.store.zookeeper_session.REVIVE_S", 0.01)
    run(scenario())


def _call(client: Any, request: Any) -> Any:
    result = client.handler.async_result()
    client._call(request, result)
    return result


# ── several sessions ──


def test_of_concurrent_writers_one_wins_each_time(connect: str) -> None:
    async def scenario() -> None:
        stores = [await ZooKeeperStore.open(connect) for _ in range(4)]
        await stores[0].multi([Create("/count", b"0"), Create("/log")])
        conflicts = 0

        async def add(store: ZooKeeperStore) -> None:
            nonlocal conflicts
            made = 0
            while made < 25:
                node = await store.get("/count")
                assert node is not None
                ops = [Create("/log/n-", sequential=True), Set("/count", b"%d" % (int(node.data) + 1), node.version)]
                match await store.multi(ops):
                    case Conflict(reason, index, _):
                        assert (reason, index) == (Reason.BAD_VERSION, 1)
                        conflicts += 1
                    case _:
                        made += 1

        await asyncio.gather(*map(add, stores))
        assert await stores[0].get("/count") == Node(b"100", 100)
        assert conflicts
        assert len(await stores[0].children("/log")) == 100  # those that did not fit left nothing behind
        for store in stores:
            await store.close()

    run(scenario())


def test_every_acknowledged_change_is_there_whatever_is_killed(ensemble: ZooKeeper) -> None:
    async def scenario() -> None:
        chroot = f"/{uuid.uuid4().hex}"
        stores = [await ZooKeeperStore.open(ensemble.connect + chroot) for _ in range(3)]
        await stores[0].multi([Create("/count", b"0")])
        acknowledged = unknown = 0
        over = asyncio.Event()

        async def add(store: ZooKeeperStore) -> None:
            nonlocal acknowledged, unknown
            while not over.is_set():
                try:
                    node = await store.get("/count")
                except StoreUnavailable:
                    await asyncio.sleep(0.01)
                    continue
                assert node is not None
                assert int(node.data) == node.version
                try:
                    outcome = await store.multi([Set("/count", b"%d" % (node.version + 1), node.version)])
                except StoreUnavailable:
                    unknown += 1
                else:
                    acknowledged += not isinstance(outcome, Conflict)

        writers = [asyncio.create_task(add(store)) for store in stores]
        for node in range(NODES):
            ensemble.kill(node)
            await asyncio.to_thread(ensemble.restart, node)
        before = acknowledged
        await until(lambda: acknowledged > before)
        over.set()
        await asyncio.gather(*writers)
        await stores[0].sync()
        found = await stores[0].get("/count")
        assert found is not None
        assert acknowledged <= found.version <= acknowledged + unknown
        for store in stores:
            await store.close()

    run(scenario())


def test_after_sync_a_read_sees_what_another_session_wrote_before(ensemble: ZooKeeper) -> None:
    async def scenario() -> None:
        chroot = f"/{uuid.uuid4().hex}"
        stores = [await ZooKeeperStore.open(address + chroot) for address in ensemble.connect.split(",")]
        await stores[0].multi([Create("/a")])
        for number in range(600):  # ZooKeeper's own sync failed once in some hundred
            writer, reader = stores[number % NODES], stores[(number + 1) % NODES]
            await writer.multi([Set("/a", b"%d" % number)])
            await reader.sync()
            assert await reader.get("/a") == Node(b"%d" % number, number + 1)
        for store in stores:
            await store.close()

    run(scenario())


def test_an_ephemeral_node_of_another_session_can_be_deleted_by_its_version(connect: str) -> None:
    async def scenario() -> None:
        owner, other = await ZooKeeperStore.open(connect), await ZooKeeperStore.open(connect)
        await owner.multi([Create("/e", ephemeral=True), Set("/e", b"x")])
        assert await other.multi([Delete("/e", 0)]) == Conflict(Reason.BAD_VERSION, 0, Delete("/e", 0))
        gone = await owner.watch_data("/e")
        await other.multi([Delete("/e", 1)])
        await gone
        assert not await owner.exists("/e")
        await owner.close()
        await other.close()

    run(scenario())


def test_null_data_of_another_client_is_empty(connect: str) -> None:
    async def scenario() -> None:
        from kazoo.protocol.serialization import Create as KazooCreate
        from kazoo.security import OPEN_ACL_UNSAFE

        store = await ZooKeeperStore.open(connect)
        client = store._session.client
        request = KazooCreate(store._full("/null"), None, OPEN_ACL_UNSAFE, 0)
        await store._session.ask(lambda: _call(client, request))
        assert await store.get("/null") == Node(b"", 0)
        assert (await store.subtree("/null")) == {"/null": Node(b"", 0)}
        await store.close()

    run(scenario())


# ── chroots ──


def test_trees_under_two_chroots_know_nothing_of_each_other(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        base = f"{zookeeper.connect}/{uuid.uuid4().hex}"
        above, one, two = [await ZooKeeperStore.open(base + path) for path in ("", "/a/one", "/a/two/")]
        assert await one.multi([Create("/x"), Create("/x/n-", sequential=True)]) == [
            Done("/x", 0),
            Done("/x/n-0000000000", 0),
        ]
        assert await two.multi([Check("/x")]) == Conflict(Reason.NO_NODE, 0, Check("/x"))
        assert list(await one.subtree("/")) == ["/", "/x", "/x/n-0000000000"]
        await above.sync()
        assert await above.children("/a/one") == ["x"]
        for store in (above, one, two):
            await store.close()

    run(scenario())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h:2181", ("h:2181", "")),
        (" h , 10.0.0.1:1 ", ("h,10.0.0.1:1", "")),
        ("h:1/", ("h:1", "")),
        ("h:1,[::1]:2/a/b/", ("h:1,[::1]:2", "/a/b")),
    ],
)
def test_connect_strings(text: str, expected: tuple[str, str]) -> None:
    assert read_connect(text) == expected


@pytest.mark.parametrize("text", ["", ",", "h:1,", ":2181", "h:p", "h:99999", "h:1:2", "h:1//a", "h:1/a/../b", "a b:1"])
def test_what_is_no_connect_string(text: str) -> None:
    with pytest.raises(ValueError, match="not"):
        read_connect(text)


# ── limits ──


@pytest.mark.parametrize("sizes", [[1], [1] * 400, [0] * 5000], ids=["one", "some", "many"])
@pytest.mark.parametrize("kind", [Create, Set])
def test_what_is_within_the_limit_is_taken_and_what_is_above_is_refused(
    connect: str, kind: Any, sizes: list[int]
) -> None:
    async def scenario() -> None:
        store = await ZooKeeperStore.open(connect)
        ops = [kind("/a" if kind is Set else f"/{number}", b"x" * size) for number, size in enumerate(sizes)]
        room = MAX_REQUEST_BYTES - store._size(ops)
        first = ops[0]
        await store.multi([Create("/a")])
        with pytest.raises(StoreError, match=r"1,048,576 bytes is above the limit"):
            await store.multi([kind(first.path, first.data + b"x" * (room + 1)), *ops[1:]])
        assert store.connected
        result = await store.multi([kind(first.path, first.data + b"x" * room), *ops[1:]])
        assert isinstance(result, list)
        assert store.connected
        await store.close()

    run(scenario())


def test_more_requests_at_once_than_kazoo_takes(connect: str) -> None:
    async def scenario() -> None:
        store = await ZooKeeperStore.open(connect)
        await store.multi([Create(f"/{number}", b"%d" % number) for number in range(10)])
        found = await asyncio.gather(*(store.get(f"/{number % 10}") for number in range(20 * IN_FLIGHT)))
        assert [node.data for node in found if node] == [b"%d" % (number % 10) for number in range(20 * IN_FLIGHT)]
        await store.close()

    run(scenario())


def test_callers_who_stop_waiting_for_a_silent_server_leave_nothing_behind() -> None:
    async def scenario(server: ZooKeeper) -> None:
        store = await ZooKeeperStore.open(server.connect)
        server.pause(0)
        for _ in range(3):
            tasks = [asyncio.create_task(store.multi([Create(f"/{n}")])) for n in range(2 * IN_FLIGHT)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.get("/0"), 0.05)  # the loop goes on
        server.resume(0)
        assert await store.get("/0") == Node(b"", 0)  # what was asked for is done
        await store.close()

    with start_zookeeper() as server:
        run(scenario(server))


def test_kazoo_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "moldau.store.kazoo_client", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "kazoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(StoreError, match=r"kazoo is not installed. Install it: pip install '.\[cluster\]'"):
        asyncio.run(ZooKeeperStore.open("127.0.0.1:1"))


class Proxy:
    """A TCP proxy that can fall silent, as a network does: connections stay, and nothing comes through."""

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self._target = (host, int(port))
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self.address = ""

    @classmethod
    async def start(cls, target: str) -> "Proxy":
        proxy = cls(target)
        proxy._server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        proxy.address = f"127.0.0.1:{proxy._server.sockets[0].getsockname()[1]}"
        return proxy

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        self._writers += [writer, back]
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer), return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._open.wait()
            writer.write(data)
        writer.close()
