"""Asks the controller, whoever it is: brokers' own questions, and clients' requests in envelopes (KIP-590).

A controller that is lost, or is none any more, is no reason to fail: its successor is asked, until time is up. Where
this broker is the controller itself, it serves the question. What was carried out twice, because an answer was lost,
is answered as the second time is: a topic exists then. That is what clients are used to.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from moldau.base.errors import Refusal, WireError
from moldau.broker.controller import Controller
from moldau.broker.peers import Peers
from moldau.metadata.image import NO_BROKER
from moldau.net.peer import PeerLost
from moldau.store.port import StoreError
from moldau.wire.codec import encode
from moldau.wire.declare import layout_of
from moldau.wire.headers import pack_request_header
from moldau.wire.messages.envelope import EnvelopeRequest

PATIENCE_S = 30.0
LOOK_UP_S = 0.2  # how often who waits for an answer looks whether the controller is still the same
PAUSE_S = 0.05  # before the next attempt
FORWARDING = "forwarding"  # has a connection of its own: requests of clients may take long

Serve = Callable[[Any, int], Awaitable[Any]]


class Asking:
    """`serve(message, version)` is how this broker answers itself."""

    def __init__(self, controller: Controller, peers: Peers, node_id: int, serve: Serve) -> None:
        self._controller = controller
        self._peers = peers
        self._node_id = node_id
        self._serve = serve

    async def ask(self, message: Any, version: int, patience_s: float = PATIENCE_S) -> Any | Refusal:
        """The controller's response, or why there is none. Its own errors are in the response."""
        return await self._until_answered(lambda left: self.ask_once(message, version, left), patience_s)

    async def have_done(self, message: Any, version: int, patience_s: float = PATIENCE_S) -> None:
        """Has the controller carry out a client's kind of request; what came of it is seen in the image."""
        header = pack_request_header(layout_of(type(message)).key, version, 0, f"broker-{self._node_id}")
        answer = await self.forward(header + encode(message, version), b"", patience_s)
        if answer is None:
            await self._serve(message, version)

    async def forward(self, frame: bytes, host: bytes, patience_s: float = PATIENCE_S) -> bytes | Refusal | None:
        """The answer to a client's request, header included. None: this broker has become the controller."""
        envelope = EnvelopeRequest(request_data=frame, client_host_address=host)

        async def attempt(left: float) -> Any | None:
            if self._controller.leads:
                return self
            return await self._send(envelope, 0, left, FORWARDING)

        response = await self._until_answered(attempt, patience_s)
        if response is self:
            return None
        if isinstance(response, Refusal):
            return response
        await self.catch_up()
        data: bytes | None = response.response_data
        if response.error_code or data is None:
            return Refusal(WireError(response.error_code), "The controller did not take the request.")
        return data

    async def catch_up(self) -> None:
        """What the controller has answered is in the image, if the store can be reached; else it will be."""
        try:
            await self._controller.feed.catch_up(sync=True)
        except StoreError:
            return

    async def ask_once(self, message: Any, version: int, left: float) -> Any | None:
        """One attempt. None: no answer came, or nobody is there to ask."""
        if self._controller.leads:
            return await self._serve(message, version)
        return await self._send(message, version, left)

    async def _send(self, message: Any, version: int, left: float, purpose: str = "control") -> Any | None:
        target = self._controller.image.controller_id
        if target in (NO_BROKER, self._node_id):
            return None
        asked = self._peers.to(target, purpose).ask(message, version, max(int(left * 1000), 1))
        answer = asyncio.ensure_future(asked)
        try:
            while not answer.done() and self._controller.image.controller_id == target:
                await asyncio.wait([answer], timeout=LOOK_UP_S)  # a controller that stands still may be replaced
            return await answer if answer.done() else None
        except PeerLost:
            return None
        finally:
            answer.cancel()

    async def _until_answered(self, attempt: Callable[[float], Awaitable[Any | None]], patience_s: float) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while (left := deadline - loop.time()) > 0:
            response = await attempt(left)
            if response is not None and getattr(response, "error_code", 0) != WireError.NOT_CONTROLLER:
                return response
            await asyncio.sleep(min(PAUSE_S, left))
        return Refusal(WireError.REQUEST_TIMED_OUT, "No controller answered in time.")
