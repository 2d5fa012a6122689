"""Proxies between the processes of a cluster: what is held up arrives later, in order, and nobody is told meanwhile."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from moldau.testing.proxies import Network

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
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._open:
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
    with call(proxy.port) as link, pytest.raises(ConnectionResetError):
        link.recv(1)
    with pytest.raises(ConnectionRefusedError):
        call(proxy.port)
    echo._listener = socket.create_server(("127.0.0.1", 0))  # for the fixture to close


def test_callers_say_who_they_are(network: Network, echo: Echo) -> None:
    proxy = network.proxy(2, echo.port)
    network.hold(1, 2)

    def first_request(name: bytes) -> bytes:
        return struct.pack(">ihhih", 10 + len(name), 1, 1, 1, len(name)) + name

    with call(proxy.port) as held, call(proxy.port) as free:
        held.sendall(first_request(b"broker-1-fetch"))
        free.sendall(first_request(b"broker-3-fetch"))
        assert free.recv(100) == first_request(b"broker-3-fetch")
        assert silent(held)
