"""A session with ZooKeeper on the event loop: kazoo's threads on one side, futures on the other. Knows no operations.

kazoo has a thread that talks to the server and two that call back; nothing blocks per request. What they report is
handed to the loop, and everything here but `_heard` and `_answered` runs on it. kazoo finds another server, and starts
a new session when the old one has expired, by itself; what this file adds:

- When the connection is lost, whoever waits is told so at once, even if kazoo keeps the request for the next server.
- No more than IN_FLIGHT requests are inside kazoo. It wakes its thread through a pipe which holds a few hundred bytes,
  one for each request, and would hold up the loop once that is full.
- If kazoo's thread ends for a reason of its own, it is started again.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from moldau.store.port import StoreError, StoreUnavailable

log = logging.getLogger("moldau.store")

IN_FLIGHT = 100
CLOSE_S = 3.0  # for the server to hear that the session ends; it would find out by itself
REVIVE_S = 1.0
CONNECTED, CLOSED = "CONNECTED", "CLOSED"  # states of kazoo's
# Codes below this are ZooKeeper's answers, but for these: the session ended, or moved to another server.
ANSWERS = -100
NO_ANSWERS = (-112, -118)
UNIMPLEMENTED = -6


class Refused(StoreError):
    """ZooKeeper's answer is an error code: the request was heard, and not carried out."""

    def __init__(self, code: int, name: str) -> None:
        super().__init__(f"ZooKeeper answered {name} ({code})")
        self.code = code


class Session:
    """`lost` is called when the connection is gone, `renewed` when a new session took the place of an expired one."""

    def __init__(self, hosts: str, timeout_ms: int, lost: Callable[[], None], renewed: Callable[[], None]) -> None:
        from moldau.store.kazoo_client import new_client  # a single node runs without kazoo

        self.connected = False
        self._hosts = hosts
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._renewed = renewed
        self.client = new_client(hosts, timeout_ms / 1000)
        self.client.add_listener(self._heard)
        self._id = 0
        self._waiting: set[asyncio.Future[Any]] = set()
        self._turns = asyncio.Semaphore(IN_FLIGHT)
        self._arrived = asyncio.Event()
        self._closed = False

    async def start(self, timeout_ms: int) -> None:
        """Connects, or raises StoreUnavailable; then the session is closed."""
        log.info("connecting to ZooKeeper at %s", self._hosts)
        self.client.start_async()  # waits for nothing: the client is new
        try:
            await asyncio.wait_for(self._arrived.wait(), timeout_ms / 1000)
        except TimeoutError:
            await self.close()
            raise StoreUnavailable(f"no ZooKeeper at {self._hosts} within {timeout_ms} ms") from None
        except BaseException:
            await self.close()
            raise

    async def ask(self, request: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The answer to one of kazoo's asynchronous calls. What was asked for is done even if the caller is cancelled.

        Raises Refused for an error code, StoreUnavailable if there is no answer: it may or may not have been done.
        """
        self._check_connected()
        await self._turns.acquire()
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(answer)
        answer.add_done_callback(self._finished)
        try:
            self._check_connected()
            request(*arguments, **named).rawlink(partial(self._answered, answer))
        except BaseException:
            answer.cancel()
            raise
        return await asyncio.shield(answer)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._fail_all("the session is closed")
        told, self.connected = self.connected, False
        stopped: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._stop_client, args=(stopped,), name="zookeeper-close", daemon=True).start()
        if told:  # without a connection there is nobody to wait for
            await asyncio.wait([stopped], timeout=CLOSE_S)

    def _check_connected(self) -> None:
        if self._closed:
            raise StoreUnavailable("the session with ZooKeeper is closed")
        if not self.connected:
            raise StoreUnavailable(f"ZooKeeper at {self._hosts} is out of reach")

    def _finished(self, answer: asyncio.Future[Any]) -> None:
        self._waiting.discard(answer)
        self._turns.release()
        if not answer.cancelled():
            answer.exception()  # whoever asked may have been cancelled: then nobody looks at it

    def _fail_all(self, why: str) -> None:
        for answer in list(self._waiting):
            if not answer.done():
                answer.set_exception(StoreUnavailable(f"{why}: what was asked for may or may not have been done"))

    # In kazoo's threads

    def _heard(self, state: str) -> None:
        if state == CONNECTED:
            session_id, _ = self.client.client_id
            self.post(self._on_connected, session_id)
            return
        self.post(self._on_lost)
        if self.client.client_state == CLOSED:
            self.post(self._on_ended)

    def _answered(self, answer: asyncio.Future[Any], result: Any) -> None:
        self.post(_settle, answer, result)

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
            if not self._loop.is_closed():  # the program ended without waiting for `close`
                raise

    # On the loop

    def _on_connected(self, session_id: int) -> None:
        if self._closed:
            return
        renewed = self._id not in (0, session_id)
        self._id = session_id
        self.connected = True
        self._arrived.set()
        log.info("connected to ZooKeeper at %s, session %#x", self._hosts, session_id)
        if renewed:
            log.warning("the session with ZooKeeper had expired, and a new one took its place")
            self._renewed()

    def _on_lost(self) -> None:
        if self._closed:
            return
        if self.connected:
            log.warning("lost the connection to ZooKeeper at %s; looking for another server", self._hosts)
        self.connected = False
        self._fail_all("the connection to ZooKeeper was lost")
        self._lost()

    def _on_ended(self) -> None:
        """kazoo gave up, which it does after errors that it does not know."""
        if not self._closed:
            self._loop.call_later(REVIVE_S, self._revive)

    def _revive(self) -> None:
        if not self._closed:
            threading.Thread(target=self.client.start_async, name="zookeeper-start", daemon=True).start()


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    error = result.exception
    if error is None:
        answer.set_result(result.value)
    elif _is_answer(code := getattr(error, "code", 0)):
        answer.set_exception(Refused(code, type(error).__name__))
    else:
        what = str(error) or type(error).__name__
        answer.set_exception(StoreUnavailable(f"no answer from ZooKeeper ({what}): it may or may not have been done"))


def _is_answer(code: int) -> bool:
    return code == UNIMPLEMENTED or (code <= ANSWERS and code not in NO_ANSWERS)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
