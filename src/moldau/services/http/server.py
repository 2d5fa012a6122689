"""HTTP servers: services that listen on their own ports in one process and one event loop, until they are told to stop.

A `Product` has its own work beside its application: it is started before its port answers, and stopped after.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import uvicorn
from starlette.types import ASGIApp

from moldau.services.http.settings import Address, HttpSettings, ServerTls

logger = logging.getLogger("moldau.services")

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
BACKLOG: Final = 1024
GRACE_S: Final = 3  # for requests that are under way when the server stops
KEEP_ALIVE_S: Final = 60


class CannotListen(Exception):
    """The port cannot be had, or the TLS files cannot; the text is a line for the operator."""


class Product(Protocol):
    """One service: its name, where it listens, and its application."""

    name: str
    title: str  # as messages call it
    settings: HttpSettings

    @property
    def app(self) -> ASGIApp: ...

    async def start(self, url: str) -> None:
        """Begin its work; must not wait for brokers. `url` is its address for clients on this machine."""

    async def stop(self) -> None:
        """End its work, within seconds even if no broker answers."""


Announce = Callable[[str, str], None]  # the name and the address of a service that listens
Complain = Callable[[str], None]  # a line about a service that cannot listen


class _Server(uvicorn.Server):
    """A server that leaves signals to its process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(products: Sequence[Product], announce: Announce, complain: Complain, stop: asyncio.Event) -> int:
    """Serve until `stop` is set; returns how many services could listen. One that cannot does not stop the others."""
    servers: list[tuple[Product, _Server, asyncio.Task[None]]] = []
    try:
        for product in products:
            try:
                listening = listen(product.settings.address)
                config = _configure(product)
            except CannotListen as problem:
                complain(f"The {product.title} does not start: {problem}")
                continue
            url = url_of(product.settings, listening)
            await product.start(url)
            server = _Server(config)
            task = asyncio.create_task(server.serve(sockets=[listening]), name=f"http-{product.name}")
            servers.append((product, server, task))
            announce(product.name, url)
        if servers:
            await _until_stopped(stop, [task for _, _, task in servers])
    finally:
        for _, server, _ in servers:
            server.should_exit = True
        for product, _, task in servers:
            await asyncio.gather(task, return_exceptions=True)
            await product.stop()
    return len(servers)


async def _until_stopped(stop: asyncio.Event, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait; a server that ends by itself ends the process, whose parent starts it again."""
    waiting = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in done - {waiting}:
        task.result()


def listen(address: Address) -> socket.socket:
    """A listening socket."""
    try:
        found = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as problem:
        raise CannotListen(f"cannot find the host of {address}: {problem.strerror}") from problem
    # IPv4 first: `localhost` is 127.0.0.1 to most clients.
    family, kind, protocol, _, place = min(found, key=lambda row: row[0] != socket.AF_INET)
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
    except OSError as problem:
        listening.close()
        raise CannotListen(f"cannot listen on {address}: {(problem.strerror or str(problem)).lower()}") from problem
    listening.setblocking(False)
    return listening


def url_of(settings: HttpSettings, listening: socket.socket) -> str:
    """The address as a client on this machine uses it."""
    port = listening.getsockname()[1]
    return f"{settings.scheme}://{Address(settings.address.host or 'localhost', port)}"


def _configure(product: Product) -> uvicorn.Config:
    settings = product.settings
    tls = None if settings.tls is None else _tls_context(settings.tls)
    return uvicorn.Config(
        product.app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )


def _tls_context(tls: ServerTls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.client_ca)
    try:
        context.load_cert_chain(tls.certificate, tls.key, tls.key_password)
    except (OSError, ssl.SSLError) as problem:
        raise CannotListen(f"cannot use the certificate {tls.certificate}: {problem.strerror or problem}") from problem
    if tls.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def run(products: Sequence[Product], announce: Announce, complain: Complain) -> int:
    """Run the services in this process until Ctrl-C, SIGTERM; returns how many listened."""

    async def main() -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, stop.set)
        return await serve(products, announce, complain, stop)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        listened = runner.run(main())
        for number in STOPPING:  # a second Ctrl-C must not make the exit a failure
            signal.signal(number, signal.SIG_IGN)
        return listened


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def set_up_logging() -> None:
    """Log lines of services go to stderr, in the broker's format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    root = logging.getLogger("moldau")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.getLogger("moldau.client").setLevel(logging.WARNING)  # librdkafka's lines: services say what they wait for
