"""ZooKeeperSession: kazoo's threads on one side, futures on the event loop on the other. Knows no operations.

kazoo has a thread that talks to the server and two for callbacks; nothing blocks per request. Their reports are handed
to the loop, and everything here but `_on_state` and `_on_response` runs on it. kazoo itself finds another server, and
starts a new session after an expiry. This file adds:

- When the connection is lost, pending requests fail at once, even if kazoo keeps them for the next server.
- At most IN_FLIGHT requests are inside kazoo. It wakes its thread through a pipe of a few hundred bytes, one for each
  request, and would block the loop once that is full.
- If kazoo's thread ends after an unexpected error, it is started again.
"""

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from moldau.store.port import StoreError, StoreUnavailable

logger = logging.getLogger("moldau.store")

IN_FLIGHT = 100
CLOSE_S = 3.0  # to tell the server that the session ends; otherwise it expires
REVIVE_S = 1.0
CONNECTED, CLOSED = "CONNECTED", "CLOSED"  # states of kazoo's
# Codes from this on down are responses, but for these: the session expired, or moved to another server.
RESPONSES = -100
NO_RESPONSES = (-112, -118)
UNIMPLEMENTED = -6


class Refused(StoreError):
    """ZooKeeper responded with an error code: nothing was done."""

    def __init__(self, code: int, name: str) -> None:
        super().__init__(f"ZooKeeper responded with {name} ({code})")
        self.code = code


class ZooKeeperSession:
    """`lost` is called when the connection is lost, `renewed` when a new session replaced an expired one."""

    def __init__(
        self,
        hosts: str,
        timeout_ms: int,
        lost: Callable[[], None],
        renewed: Callable[[], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        from moldau.store.kazoo_client import new_client  # a single node runs without kazoo

        self.connected = False
        self._hosts = hosts
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._renewed = renewed
        self.client = new_client(hosts, timeout_ms / 1000, tls)
        self.client.add_listener(self._on_state)
        self._id = 0
        self._waiting: set[asyncio.Future[Any]] = set()
        self._turns = asyncio.Semaphore(IN_FLIGHT)
        self._arrived = asyncio.Event()
        self._closed = False

    async def start(self, timeout_ms: int) -> None:
        """Connect, or close the session and raise StoreUnavailable."""
        logger.info("Connecting to ZooKeeper at %s.", self._hosts)
        self.client.start_async()  # does not block: the client is new
        try:
            await asyncio.wait_for(self._arrived.wait(), timeout_ms / 1000)
        except TimeoutError:
            await self.close()
            raise StoreUnavailable(
                f"No connection to ZooKeeper at {self._hosts} within {timeout_ms} ms. Check zookeeper.connect."
            ) from None
        except BaseException:
            await self.close()
            raise

    async def ask(self, request: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The response to one of kazoo's asynchronous calls, which is carried out even if the caller is cancelled.

        Raises Refused for an error code; StoreUnavailable without a response: it may or may not have been done.
        """
        self._check_connected()
        await self._turns.acquire()
        response: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(response)
        response.add_done_callback(self._finished)
        try:
            self._check_connected()
            request(*arguments, **named).rawlink(partial(self._on_response, response))
        except BaseException:
            response.cancel()
            raise
        return await asyncio.shield(response)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._fail_all("The ZooKeeper session was closed")
        told, self.connected = self.connected, False
        stopped: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._stop_client, args=(stopped,), name="zookeeper-close", daemon=True).start()
        if told:  # without a connection there is no server to tell
            await asyncio.wait([stopped], timeout=CLOSE_S)

    def _check_connected(self) -> None:
        if self._closed:
            raise StoreUnavailable("The ZooKeeper session is closed.")
        if not self.connected:
            raise StoreUnavailable(f"Not connected to ZooKeeper at {self._hosts}.")

    def _finished(self, response: asyncio.Future[Any]) -> None:
        self._waiting.discard(response)
        self._turns.release()
        if not response.cancelled():
            response.exception()  # marks it as seen: the caller may have been cancelled

    def _fail_all(self, why: str) -> None:
        for response in list(self._waiting):
            if not response.done():
                response.set_exception(StoreUnavailable(f"{why}; the request may or may not have been carried out."))

    # In kazoo's threads

    def _on_state(self, state: str) -> None:
        if state == CONNECTED:
            session_id, _ = self.client.client_id
            self.post(self._on_connected, session_id)
            return
        self.post(self._on_lost)
        if self.client.client_state == CLOSED:
            self.post(self._on_ended)

    def _on_response(self, response: asyncio.Future[Any], result: Any) -> None:
        self.post(_settle, response, result)

    def _stop_client(self, stopped: asyncio.Future[None]) -> None:
        from moldau.store.kazoo_client import stop_client

        try:
            stop_client(self.client)
        finally:
            self.post(_done, stopped)

    def post(self, call: Callable[..., object], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():  # closed: the program ended without waiting for `close`
                raise

    # On the loop

    def _on_connected(self, session_id: int) -> None:
        if self._closed:
            return
        renewed = self._id not in (0, session_id)
        self._id = session_id
        self.connected = True
        self._arrived.set()
        logger.info("Connected to ZooKeeper at %s, session %#x.", self._hosts, session_id)
        if renewed:
            logger.warning("The ZooKeeper session had expired. A new one replaces it; the broker registers again.")
            self._renewed()

    def _on_lost(self) -> None:
        if self._closed:
            return
        if self.connected:
            logger.warning("Lost the connection to ZooKeeper at %s. Trying all servers.", self._hosts)
        self.connected = False
        self._fail_all("The connection to ZooKeeper was lost")
        self._lost()

    def _on_ended(self) -> None:
        """kazoo gave up, as it does after unexpected errors."""
        if not self._closed:
            self._loop.call_later(REVIVE_S, self._revive)

    def _revive(self) -> None:
        if not self._closed:
            threading.Thread(target=self.client.start_async, name="zookeeper-start", daemon=True).start()


def _settle(response: asyncio.Future[Any], result: Any) -> None:
    if response.done():
        return
    error = result.exception
    if error is None:
        response.set_result(result.value)
    elif _is_response(code := getattr(error, "code", 0)):
        response.set_exception(Refused(code, type(error).__name__))
    else:
        what = str(error) or type(error).__name__
        unknown = "the request may or may not have been carried out"
        response.set_exception(StoreUnavailable(f"No response from ZooKeeper ({what}); {unknown}."))


def _is_response(code: int) -> bool:
    return code == UNIMPLEMENTED or (code <= RESPONSES and code not in NO_RESPONSES)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
