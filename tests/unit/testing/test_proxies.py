"""Proxies between the processes of a cluster: what is held up arrives later, in order, and nobody is told meanwhile."""

import contextlib
import gc
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from moldau.testing.proxies import SOCKETS, Network

A_WHILE_S = 0.2


class Echo:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(link)
            threading.Thread(target=self._echo, args=(link,), daemon=True).start()

    def _echo(self, link: socket.socket) -> None:
        while data := link.recv(1000):
            link.sendall(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it was closed before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._open:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


def call(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def silent(link: socket.socket) -> bool:
    link.settimeout(A_WHILE_S)
    try:
        link.recv(1)
        return False
    except TimeoutError:
        return True
    finally:
        link.settimeout(10)


@pytest.mark.parametrize("held", [("a", "b"), ("b", "a")])
def test_what_is_held_up_arrives_when_the_network_heals(network: Network, echo: Echo, held: tuple[str, str]) -> None:
    with call(network.proxy("b", echo.port, source="a").port) as link:
        link.sendall(b"one")
        assert link.recv(10) == b"one"
        network.hold(*held)
        link.sendall(b"two")
        assert silent(link)
        network.heal()
        assert link.recv(10) == b"two"


def test_a_connection_of_the_time_in_between_never_was(network: Network, echo: Echo) -> None:
    proxy = network.proxy("b", echo.port, source="a")
    network.hold("a", "b")
    with call(proxy.port) as link:
        link.sendall(b"lost")
        assert silent(link)
        network.heal()
        with contextlib.suppress(ConnectionResetError):  # also an end
            assert link.recv(10) == b""
    with call(proxy.port) as link:
        link.sendall(b"new")
        assert link.recv(10) == b"new"


def test_nobody_behind_is_nobody_there(network: Network, echo: Echo) -> None:
    proxy = network.proxy("b", echo.port, source="a")
    with call(proxy.port) as link:
        link.sendall(b"x")
        assert link.recv(1) == b"x"
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            call(proxy.port)
        link.sendall(b"y")
        assert link.recv(1) == b"y"
    port = proxy.port
    proxy.listen()
    assert proxy.port == port
    call(port).close()


def test_a_process_that_ended_by_itself_refuses_from_then_on(network: Network, echo: Echo) -> None:
    proxy = network.proxy("b", echo.port, source="a")
    proxy.target_runs = True
    echo.close()
    with pytest.raises(ConnectionResetError):
        call(proxy.port).recv(1)
    with pytest.raises(ConnectionRefusedError):
        call(proxy.port)


def test_whoever_calls_while_the_network_ends_is_told_and_nothing_is_left(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: complaints.append(f"{told.object}: {told.exc_value}"))
    for _ in range(5):
        network, ended = Network(), threading.Event()
        port = network.proxy("b", echo.port, source="a").port
        links: list[socket.socket] = []

        def keep_calling(port: int = port, ended: threading.Event = ended, links: list[socket.socket] = links) -> None:
            while not ended.is_set():
                with contextlib.suppress(ConnectionError):
                    links.append(call(port))
                time.sleep(0.001)

        callers = [threading.Thread(target=keep_calling) for _ in range(2)]
        for caller in callers:
            caller.start()
        while len(links) < 5:
            time.sleep(0.001)
        network.close()
        ended.set()
        for caller in callers:
            caller.join()
        for link in links:
            with link, contextlib.suppress(ConnectionError):
                link.sendall(b"x")  # whom the system was just accepting hears of the end when it says something
                assert link.recv(1) == b""
    gc.collect()
    assert complaints == []


@pytest.mark.skipif(not SOCKETS.exists(), reason="only Linux tells whose socket it is")
def test_callers_are_known_by_their_process(echo: Echo) -> None:
    program = (
        "import socket, sys\n"
        "link = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "sys.stdin.readline()\n"
        "link.sendall(b'x')\n"
        "print(link.recv(1), flush=True)\n"
    )
    pids: dict[object, int] = {}
    network = Network(lambda: pids)
    proxy = network.proxy(2, echo.port)
    network.hold(1, 2)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    other = subprocess.Popen([sys.executable, "-c", program, str(proxy.port)], **pipes)
    try:
        pids[1], pids[3] = os.getpid(), other.pid
        with call(proxy.port) as held:
            held.sendall(b"y")
            assert other.communicate(b"go\n", timeout=30)[0] == b"b'x'\n"
            assert silent(held)
    finally:
        other.kill()
        other.wait()
        network.close()
