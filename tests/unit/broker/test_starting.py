"""A broker of a cluster that starts while ZooKeeper comes and goes: it waits, and ends its waits when told to stop."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from moldau.broker.cluster import broker_lifecycle
from moldau.broker.cluster.broker_registration import BrokerRegistration
from moldau.broker.cluster.controller_election import ControllerElection
from moldau.broker.cluster.startup_retry import StartupRetry, StopRequested
from moldau.store.port import StoreError, StoreUnavailable
from moldau.store.zookeeper_session import ZooKeeperSession
from moldau.testing import ZooKeeper
from support.brokers.nodes import a_node
from support.brokers.zookeeper import end_session
from support.net import loops

ASK = ZooKeeperSession.ask


def closed_port() -> str:
    """An address with a closed port."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


# ── waiting ──


def test_what_the_store_refuses_now_is_tried_again() -> None:
    async def scenario() -> None:
        outcomes = [StoreUnavailable("away"), StoreUnavailable("still away"), "there"]

        async def attempt() -> str:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        assert await StartupRetry(asyncio.Event()).retry(attempt) == "there"

    loops.run("uvloop", scenario())


def test_what_will_not_get_better_is_not_tried_again() -> None:
    async def scenario() -> None:
        async def attempt() -> None:
            raise StoreError("broker id 1 is in use")

        with pytest.raises(StoreError, match="in use"):
            await StartupRetry(asyncio.Event()).retry(attempt)

    loops.run("uvloop", scenario())


def test_a_wait_ends_with_the_wish_to_stop_and_leaves_nothing_running() -> None:
    async def scenario() -> None:
        stop, ended = asyncio.Event(), asyncio.Event()

        async def long() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        waiting = asyncio.ensure_future(StartupRetry(stop).retry(long))
        await loops.turns()
        stop.set()
        with pytest.raises(StopRequested):
            await waiting
        assert ended.is_set()

    loops.run("uvloop", scenario())


# ── the first connection ──


def test_without_a_zookeeper_a_start_fails_in_one_sentence(tmp_path: Path) -> None:
    async def scenario() -> None:
        connect = closed_port()
        node = a_node(tmp_path, connect, asyncio.Event(), zookeeper_connection_timeout_ms=300)
        with pytest.raises(StoreError, match=f"No connection to ZooKeeper at {connect} within 300 ms"):
            await node.start(time.monotonic())

    loops.run("uvloop", scenario())


def test_a_start_that_waits_for_zookeeper_hears_the_wish_to_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        stop = asyncio.Event()
        node = a_node(tmp_path, closed_port(), stop, zookeeper_connection_timeout_ms=600_000)
        asyncio.get_running_loop().call_later(0.1, stop.set)
        with pytest.raises(StopRequested):
            await node.start(time.monotonic())

    loops.run("uvloop", scenario())


# ── connected once ──


class Losing:
    """Loses the response to one request, which is carried out. `expire` ends the session with it."""

    def __init__(self, at: int, expire: Callable[[ZooKeeperSession], Awaitable[None]] | None = None) -> None:
        self.changes: list[int] = []  # which requests were transactions
        self.count = 0
        self.over = False  # from here on nothing is counted, nor lost
        self._at = at
        self._expire = expire

    async def ask(self, session: ZooKeeperSession, request: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.count += not self.over
        if request.__name__ == "commit_async" and not self.over:
            self.changes.append(self.count)
        lost = not self.over and self.count == self._at
        answer = await ASK(session, request, *arguments, **named)
        if not lost:
            return answer
        if self._expire is not None:
            await self._expire(session)
        session._lost()
        raise StoreUnavailable("the connection to ZooKeeper was lost")


def start_and_lead(losing: Losing, directory: Path, connect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole start of the first broker of a new cluster: in the end it is registered, and the controller."""

    async def ask(session: ZooKeeperSession, request: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return await losing.ask(session, request, *arguments, **named)

    async def scenario() -> None:
        node = a_node(directory, f"{connect}/{uuid4().hex}", asyncio.Event())
        await node.start(time.monotonic())
        losing.over = True
        controller, registration = node._controller, node._lifecycle.registration if node._lifecycle else None
        assert registration is not None
        while True:
            here = controller.image.brokers.get(1)
            registered = here is not None and here.epoch == registration.epoch
            if registered and controller.leads and await controller.feed.store.exists("/controller"):
                break
            await asyncio.sleep(0.01)
        await node.stop()

    with monkeypatch.context() as patched:
        patched.setattr(ZooKeeperSession, "ask", ask)
        loops.run("uvloop", scenario())


def test_a_broker_is_ready_when_there_is_a_controller(
    tmp_path: Path, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that was stopped has none until its first broker, which may be slow, is elected."""
    run_for_controller = ControllerElection.run

    async def slowly(election: ControllerElection) -> None:
        await asyncio.sleep(0.3)
        await run_for_controller(election)

    async def scenario() -> None:
        connect = f"{zookeeper.connect}/{uuid4().hex}"
        for _ in range(2):
            node = a_node(tmp_path, connect, asyncio.Event())
            await node.start(time.monotonic())
            assert node._controller.image.controller_id == 1
            await node.stop()

    monkeypatch.setattr(ControllerElection, "run", slowly)
    loops.run("uvloop", scenario())


def test_a_start_survives_the_loss_of_any_one_answer(
    tmp_path: Path, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = Losing(0)
    start_and_lead(undisturbed, tmp_path / "undisturbed", zookeeper.connect, monkeypatch)
    for at in range(1, undisturbed.count + 1):
        start_and_lead(Losing(at), tmp_path / str(at), zookeeper.connect, monkeypatch)


def test_a_start_survives_the_end_of_its_session_after_any_change(
    tmp_path: Path, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = Losing(0)
    start_and_lead(undisturbed, tmp_path / "undisturbed", zookeeper.connect, monkeypatch)
    assert len(undisturbed.changes) >= 3  # founding, election, registration
    for at in undisturbed.changes[:3]:
        start_and_lead(Losing(at, end_session), tmp_path / str(at), zookeeper.connect, monkeypatch)


def test_a_start_that_waits_for_a_silent_broker_of_the_same_id_hears_the_wish_to_stop(
    tmp_path: Path, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> None:
        """The connection is neither refused nor answered."""

    async def scenario() -> None:
        connect = f"{zookeeper.connect}/{uuid4().hex}"
        first = a_node(tmp_path / "first", connect, asyncio.Event())
        await first.start(time.monotonic())
        stop = asyncio.Event()
        second = a_node(tmp_path / "second", connect, stop, zookeeper_session_timeout_ms=60_000)
        asyncio.get_running_loop().call_later(0.3, stop.set)
        with pytest.raises(StopRequested):
            await second.start(time.monotonic())
        await first.stop()

    monkeypatch.setattr(broker_lifecycle, "_is_listening", silent)
    loops.run("uvloop", scenario())


def test_a_start_that_cannot_register_stops_in_order_when_told_to(
    tmp_path: Path, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object, **named: object) -> None:
        stop.set()
        raise StoreUnavailable("away")

    async def scenario() -> None:
        node = a_node(tmp_path, f"{zookeeper.connect}/{uuid4().hex}", stop)
        monkeypatch.setattr(BrokerRegistration, "start", never)
        with pytest.raises(StopRequested):
            await node.start(time.monotonic())
        assert (tmp_path / ".kafka_cleanshutdown").exists()

    stop = asyncio.Event()
    loops.run("uvloop", scenario())
