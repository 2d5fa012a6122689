"""Listening sockets on both loops: limits on connections, idle ones, and a process without free descriptors."""

import asyncio
import os
import resource
import socket

import pytest

from moldau.base.session import SecurityProtocol, Session
from moldau.net.listener import PAUSE_SECONDS, CannotListen, ConnectionLimits, Listeners
from support.net.loops import (
    ManualLoop,
    Peer,
    Script,
    on_both_loops,
    request,
    request_limits,
    run,
    run_by_hand,
    turns,
    until,
)


def limits(**changed: object) -> ConnectionLimits:
    usual = {
        "most": 100,
        "most_per_ip": 100,
        "overrides": {},
        "rate": 1_000_000,
        "idle_ms": 60_000,
        "send_buffer": -1,
        "receive_buffer": -1,
        "backlog": 50,
    }
    return ConnectionLimits(**{**usual, **changed})  # type: ignore[arg-type]


class Serving:
    """Listeners on a free port of 127.0.0.1."""

    def __init__(self, **changed: object) -> None:
        self.listeners = Listeners(request_limits(), limits(**changed))
        self.port = self.listeners.bind("PLAINTEXT", "127.0.0.1", 0)
        self.listeners.start(Script())

    async def connect(self, source: str = "127.0.0.1") -> Peer:
        sock = socket.socket()
        sock.setblocking(False)
        sock.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return Peer(sock)

    async def served(self, source: str = "127.0.0.1") -> Peer | None:
        """A connection that works, or None if it was refused."""
        peer = await self.connect(source)
        try:
            await peer.send(request(1))
            assert await peer.numbers(1) == [1]
        except (AssertionError, ConnectionError):
            peer.close()
            return None
        return peer

    def close(self, *peers: Peer | None) -> None:
        for peer in peers:
            if peer is not None:
                peer.close()
        self.listeners.close()


@on_both_loops
def test_a_client_is_served_and_forgotten_when_it_leaves(loop_kind: str) -> None:
    async def main() -> None:
        serving = Serving()
        peer = await serving.served()
        assert peer is not None
        (connection,) = serving.listeners.connections
        host, port = peer.socket.getsockname()
        assert connection.session == Session("PLAINTEXT", f"{host}:{port}")
        assert connection.session.security_protocol is SecurityProtocol.PLAINTEXT
        assert str(connection.session.principal) == "User:ANONYMOUS"
        peer.close()
        await until(lambda: not serving.listeners.connections)
        serving.close()

    run(loop_kind, main())


def test_max_connections() -> None:
    async def main(loop: ManualLoop) -> None:
        serving = Serving(most=2)
        first, second = await serving.served(), await serving.served()
        assert first is not None
        assert second is not None
        third = await serving.connect()
        await third.send(request(3))
        assert await third.silent()  # waits in the kernel's queue, as with Kafka
        loop.pass_time(PAUSE_SECONDS)
        assert await third.silent()
        first.close()
        await until(lambda: len(serving.listeners.connections) == 1)
        loop.pass_time(PAUSE_SECONDS)
        assert await third.numbers(1) == [3]
        serving.close(second, third)

    run_by_hand(main)


@on_both_loops
def test_max_connections_per_ip_and_its_overrides(loop_kind: str) -> None:
    async def main() -> None:
        serving = Serving(most_per_ip=1, overrides={"127.0.0.2": 2, "127.0.0.3": 0})
        peers = [await serving.served("127.0.0.1")]
        assert await serving.served("127.0.0.1") is None
        peers += [await serving.served("127.0.0.2"), await serving.served("127.0.0.2")]
        assert await serving.served("127.0.0.2") is None
        assert await serving.served("127.0.0.3") is None
        assert None not in peers
        serving.listeners.limits = limits(most_per_ip=2)  # a change takes effect at once
        peers.append(await serving.served("127.0.0.1"))
        assert peers[-1] is not None
        serving.close(*peers)

    run(loop_kind, main())


def test_idle_connections_are_closed_and_busy_ones_stay() -> None:
    async def main(loop: ManualLoop) -> None:
        serving = Serving(idle_ms=50)
        idle, busy = await serving.served(), await serving.served()
        assert idle is not None
        assert busy is not None
        loop.pass_time(0.049)
        serving.listeners.close_idle()
        assert len(serving.listeners.connections) == 2
        await busy.send(request(2))
        assert await busy.numbers(1) == [2]
        loop.pass_time(0.002)
        serving.listeners.close_idle()
        assert await idle.ended()
        await busy.send(request(3))
        assert await busy.numbers(1) == [3]
        serving.listeners.limits = limits(idle_ms=-1)
        loop.pass_time(1_000_000)
        serving.listeners.close_idle()
        assert len(serving.listeners.connections) == 1
        serving.close(idle, busy)

    run_by_hand(main)


def test_without_free_descriptors_accepting_pauses_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: ManualLoop) -> None:
        serving = Serving()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        waiting = socket.socket()
        waiting.setblocking(False)
        highest = os.dup(0)
        os.close(highest)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
            await loop.sock_connect(waiting, ("127.0.0.1", serving.port))
            await until(lambda: "ulimit -n" in caplog.text)
            await turns(200)
            assert caplog.text.count("ulimit -n") == 1  # it pauses rather than spins
            loop.pass_time(PAUSE_SECONDS)
            await until(lambda: caplog.text.count("ulimit -n") == 2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        peer = Peer(waiting)
        await peer.send(request(1))
        loop.pass_time(PAUSE_SECONDS)
        assert await peer.numbers(1) == [1]
        serving.close(peer)

    run_by_hand(main)


@on_both_loops
def test_a_busy_port_is_one_clear_line(loop_kind: str) -> None:
    async def main() -> None:
        serving = Serving()
        other = Listeners(request_limits(), limits())
        with pytest.raises(CannotListen, match="the port is in use"):
            other.bind("PLAINTEXT", "127.0.0.1", serving.port)
        serving.close()

    run(loop_kind, main())


@on_both_loops
def test_of_two_brokers_that_start_on_one_port_the_second_is_told(loop_kind: str) -> None:
    """Both may bind while neither listens; it comes out when the slower one starts."""

    async def main() -> None:
        first, second = Listeners(request_limits(), limits()), Listeners(request_limits(), limits())
        port = first.bind("PLAINTEXT", "127.0.0.1", 0)
        assert second.bind("PLAINTEXT", "127.0.0.1", port) == port
        first.start(Script())
        with pytest.raises(CannotListen, match="the port is in use"):
            second.start(Script())
        first.close()
        second.close()

    run(loop_kind, main())


@on_both_loops
def test_a_host_without_address_is_one_clear_line(loop_kind: str) -> None:
    async def main() -> None:
        listeners = Listeners(request_limits(), limits())
        with pytest.raises(CannotListen, match=r"cannot listen on no\.such\.host\.invalid:0"):
            listeners.bind("PLAINTEXT", "no.such.host.invalid", 0)
        listeners.close()

    run(loop_kind, main())


@on_both_loops
def test_after_the_end_nobody_is_served(loop_kind: str) -> None:
    async def main() -> None:
        serving = Serving()
        peer = await serving.served()
        assert peer is not None
        serving.listeners.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            await serving.connect()
        await peer.send(request(2))
        assert await peer.numbers(1) == [2]  # accepted connections are served until the close
        serving.listeners.close()
        assert await peer.ended()
        assert not serving.listeners.connections
        peer.close()

    run(loop_kind, main())


def test_connections_beyond_the_rate_wait_for_the_next_second() -> None:
    async def main(loop: ManualLoop) -> None:
        serving = Serving(rate=2)
        peers = [await serving.connect() for _ in range(6)]
        for accepted in (2, 4, 6):
            await until(lambda accepted=accepted: len(serving.listeners.connections) == accepted)
            loop.pass_time(PAUSE_SECONDS)  # half a second: looks again, and waits for the next one
            await turns()
            assert len(serving.listeners.connections) == accepted
            loop.pass_time(PAUSE_SECONDS)
        serving.close(*peers)

    run_by_hand(main)
