"""Client of the controller: a broker's own requests, and clients' requests forwarded in envelopes (KIP-590).

A controller that is lost or deposed is no failure: the request goes to its successor until the time is up. Where this
broker is the controller, it serves the request itself. A request that was carried out, and whose response was lost, is
sent again and answered as the second time is: a topic exists then. Clients are used to that.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from moldau.base.errors import Refusal, WireError
from moldau.base.session import BROKER, Principal
from moldau.broker.controller import Controller
from moldau.broker.peers import Peers
from moldau.metadata.image import NO_BROKER
from moldau.net.peer import PeerLost
from moldau.store.port import StoreError
from moldau.wire.codec import encode
from moldau.wire.declare import layout_of
from moldau.wire.headers import pack_request_header
from moldau.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.wire.messages.principal import pack_principal

TIMEOUT_S = 30.0
CONTROLLER_CHECK_S = 0.2  # how often a request that waits for its response checks that the controller is still the same
RETRY_BACKOFF_S = 0.05
FORWARDING = "forwarding"  # has a connection of its own: requests of clients may take long

R = TypeVar("R")
Serve = Callable[[object, int], Awaitable[object]]


class ControllerClient:
    """`serve(request, version)` answers a request on this broker."""

    def __init__(self, controller: Controller, peers: Peers, node_id: int, serve: Serve) -> None:
        self._controller = controller
        self._peers = peers
        self._node_id = node_id
        self._serve = serve

    async def ask(self, request: object, version: int, response: type[R], timeout_s: float = TIMEOUT_S) -> R | Refusal:
        """The controller's response, or why there is none. The controller's own errors are in the response."""
        return await self._until_answered(lambda left: self.ask_once(request, version, response, left), timeout_s)

    async def carry_out(self, request: object, version: int, timeout_s: float = TIMEOUT_S) -> None:
        """Send a request that clients make as well, such as CreateTopics; its effect is seen in the image."""
        header = pack_request_header(layout_of(type(request)).key, version, 0, f"broker-{self._node_id}")
        answer = await self.forward(header + encode(request, version), "", BROKER, timeout_s)
        if answer is None:
            await self._serve(request, version)

    async def forward(
        self, frame: bytes, peer: str, principal: Principal, timeout_s: float = TIMEOUT_S
    ) -> bytes | Refusal | None:
        """The response to a client's request, header included. None: this broker has become the controller."""
        envelope = EnvelopeRequest(
            request_data=frame, request_principal=pack_principal(principal), client_host_address=peer.encode()
        )
        elected = object()

        async def attempt(left: float) -> object | None:
            return elected if self._controller.leads else await self._send(envelope, 0, left, FORWARDING)

        response = await self._until_answered(attempt, timeout_s)
        if response is elected:
            return None
        if isinstance(response, Refusal):
            return response
        assert isinstance(response, EnvelopeResponse)
        await self.catch_up()
        if response.error_code or response.response_data is None:
            return Refusal(WireError(response.error_code), "The controller did not accept the forwarded request.")
        return response.response_data

    async def catch_up(self) -> None:
        """Read the changes that the controller has answered for; without a metadata store they come later."""
        try:
            await self._controller.feed.catch_up(sync=True)
        except StoreError:
            return

    async def ask_once(self, request: object, version: int, response: type[R], timeout_s: float) -> R | None:
        """One attempt. None: no response came, or no controller is known."""
        if self._controller.leads:
            answer: object | None = await self._serve(request, version)
        else:
            answer = await self._send(request, version, timeout_s)
        assert answer is None or isinstance(answer, response)
        return answer

    async def _send(self, request: object, version: int, timeout_s: float, purpose: str = "control") -> object | None:
        target = self._controller.image.controller_id
        if target in (NO_BROKER, self._node_id):
            return None
        asked = self._peers.to(target, purpose).ask(request, version, max(int(timeout_s * 1000), 1))
        answer: asyncio.Future[object] = asyncio.ensure_future(asked)
        try:
            while not answer.done() and self._controller.image.controller_id == target:
                await asyncio.wait([answer], timeout=CONTROLLER_CHECK_S)  # one that hangs may be replaced
            return await answer if answer.done() else None
        except PeerLost:
            return None
        finally:
            answer.cancel()

    async def _until_answered(self, attempt: Callable[[float], Awaitable[R | None]], timeout_s: float) -> R | Refusal:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while (left := deadline - loop.time()) > 0:
            response = await attempt(left)
            if response is not None and getattr(response, "error_code", 0) != WireError.NOT_CONTROLLER:
                return response
            await asyncio.sleep(min(RETRY_BACKOFF_S, left))
        return Refusal(WireError.REQUEST_TIMED_OUT, "No controller responded in time.")
