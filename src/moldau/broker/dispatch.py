"""Dispatcher: from a request's frame to its handler, and from the response to a frame. Knows an API by its row only.

Produce and Fetch are hot: their handlers read and write bytes themselves. The handlers of all other APIs get one
message class, whatever the version on the wire.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later
from moldau.base.session import BROKER, Session
from moldau.broker.call import Call
from moldau.broker.cluster.controller_client import ControllerClient
from moldau.broker.context import Contexts, ControlContext, CoordinatorContext, DataContext
from moldau.broker.controller import NotController
from moldau.broker.needs import Need
from moldau.broker.organisations.directory import Directory
from moldau.broker.organisations.edge import serve_member
from moldau.broker.quotas import ClientQuotas, Meter, Timed, unlimited_meter
from moldau.broker.security.audit import Audit
from moldau.broker.security.gate import Gate, Serve
from moldau.broker.throttle_time import read_throttle_time, with_throttle_time
from moldau.broker.waiting import awaited
from moldau.net.connection import Connection, Handled
from moldau.net.reply import BadRequest, Parked, Reply
from moldau.security.audit_actions import Describe
from moldau.wire.codec import decode, encode
from moldau.wire.declare import layout_of
from moldau.wire.frames import LENGTH
from moldau.wire.headers import (
    API_VERSIONS,
    PREFIX_AND_LENGTH,
    PREFIX_AND_LENGTH_SIZE,
    PRODUCE,
    pack_response_header,
    read_request_header,
    read_request_prefix,
    skip_tag_section,
)
from moldau.wire.messages.registry import ApiMessages
from moldau.wire.primitives import MalformedMessage

logger: Final = logging.getLogger("moldau.broker")

COLD_REQUEST_AT_MOST: Final = 4 * 1024 * 1024  # bytes, but for Produce and Fetch: decoded, it takes many times that
FORWARDED_MS: Final = 30_000  # how long to look for a controller, unless the request has a shorter timeout
BY_BROKERS_SINCE: Final = {24: 4, 27: 0}  # versions of AddPartitionsToTxn and WriteTxnMarkers that only brokers send
FALLBACK_VERSION: Final = 0  # of the response to an ApiVersions request of an unknown version (KIP-511)


OWN_SESSION: Final = Session("", "", principal=BROKER)  # of requests that a broker makes to itself

C = TypeVar("C", contravariant=True)
Response: TypeAlias = object  # a message, its encoded body, or NotController
Served: TypeAlias = Response | Later[Any] | Awaitable[Response]


class Handler(Protocol[C]):
    """Serves an API with one message class, whatever the version on the wire."""

    __module__: str

    def __call__(self, ctx: C, request: Any, call: Call, /) -> Served: ...


class HotHandler(Protocol):
    """Serves an API from the bytes of its frame; `at` is where the request begins behind its header."""

    __module__: str

    def __call__(self, ctx: DataContext, frame: memoryview, at: int, call: Call, /) -> Reply: ...


class Refuses(Protocol):
    """Looks at what the controller cannot see, before a request is forwarded to it. None: nothing is wrong."""

    def __call__(self, ctx: ControlContext, request: Any, call: Call, /) -> Response | None: ...


class Part(Enum):
    """The context that a handler takes."""

    DATA = "data"
    CONTROL = "control"
    COORDINATOR = "coordinator"


class Api(NamedTuple):
    """One row of the table: an API, the function that serves it, and what a principal needs to call it."""

    messages: ApiMessages
    needs: tuple[Need, ...]  # () for an API that needs no authorization
    part: Part
    handler: Handler[Any] | None = None
    hot: HotHandler | None = None
    forwarded: bool = False  # it changes metadata: only the controller can serve it
    only_for: "Callable[[Session], WireError | None] | None" = None  # why a session may not call it, before forwarding
    audited: Describe | None = None  # it is an administrative action: the resources of a request and its response
    refuses: "Refuses | None" = None  # why this broker does not forward a request: a response, or None


def hot(messages: ApiMessages, handler: HotHandler, needs: tuple[Need, ...]) -> Api:
    return Api(messages, needs, Part.DATA, hot=handler)


def data(
    messages: ApiMessages, handler: Handler[DataContext], needs: tuple[Need, ...], *, audited: Describe | None = None
) -> Api:
    return Api(messages, needs, Part.DATA, handler, audited=audited)


def control(
    messages: ApiMessages,
    handler: Handler[ControlContext],
    needs: tuple[Need, ...],
    *,
    forwarded: bool = False,
    only_for: Callable[[Session], WireError | None] | None = None,
    audited: Describe | None = None,
    refuses: Refuses | None = None,
) -> Api:
    return Api(
        messages,
        needs,
        Part.CONTROL,
        handler,
        forwarded=forwarded,
        only_for=only_for,
        audited=audited,
        refuses=refuses,
    )


def coordinator(
    messages: ApiMessages,
    handler: Handler[CoordinatorContext],
    needs: tuple[Need, ...],
    *,
    audited: Describe | None = None,
) -> Api:
    return Api(messages, needs, Part.COORDINATOR, handler, audited=audited)


class Hot:
    """What a request's frame is dispatched by, of an API that is hot."""

    __slots__ = ("counts_request", "flexible", "highest", "lowest", "serve")

    def __init__(self, api: Api) -> None:
        assert api.hot is not None
        messages = api.messages
        self.serve: Callable[[DataContext, memoryview, int, Call], Reply] = api.hot
        self.counts_request = messages.key == PRODUCE  # against the quota for bytes; Fetch counts the response
        self.lowest = messages.lowest
        self.highest = messages.highest
        self.flexible = messages.highest + 1 if messages.flexible is None else messages.flexible


class Dispatcher:
    """Without a gate every client may do everything."""

    def __init__(self, contexts: Contexts, apis: Iterable[Api], gate: Gate | None = None) -> None:
        self._gate = gate
        self._contexts = contexts
        self._data = contexts.data
        self._control = contexts.control
        self._apis = {api.messages.key: api for api in apis}
        self._hot = {key: Hot(api) for key, api in self._apis.items() if api.hot is not None}
        self.quotas: ClientQuotas | None = None  # None: no client has any
        self.audit: Audit | None = None  # None: it is turned off
        self.organisations: Directory | None = None  # None: there are none

    def __call__(self, connection: Connection, frame: memoryview) -> Handled:
        """Handle one request."""
        return self._handle_frame(connection, frame, login=False)

    def log_in(self, connection: Connection, frame: memoryview) -> Handled:
        """Handle one request of a login: nobody's rights, quotas and organisation are known yet."""
        return self._handle_frame(connection, frame, login=True)

    def _handle_frame(self, connection: Connection, frame: memoryview, *, login: bool) -> Handled:
        """An unexpected error is logged here, and closes the connection."""
        try:
            return self._dispatch_login(connection, frame) if login else self._dispatch(connection, frame)
        except MalformedMessage as problem:
            raise BadRequest(f"malformed request ({_describe(frame)}): {problem}") from None
        except BadRequest:
            raise
        except Exception:
            logger.exception(
                "Request failed (%s) from %s; closing the connection", _describe(frame), connection.session.peer
            )
            raise BadRequest("an internal error") from None

    def _dispatch_login(self, connection: Connection, frame: memoryview) -> Handled:
        api, request, call = self._read_cold(connection.session, frame)
        assert api.handler is not None
        return self._reply(api, api.handler(self._context_of(api), request, call), call)

    def _dispatch(self, connection: Connection, frame: memoryview) -> Handled:
        if len(frame) < PREFIX_AND_LENGTH_SIZE:
            raise MalformedMessage("the frame is shorter than a request header")
        prefix: tuple[int, int, int, int] = PREFIX_AND_LENGTH.unpack_from(frame)
        key, version, correlation_id, client_id_size = prefix
        hot = self._hot.get(key)
        if hot is not None and hot.lowest <= version <= hot.highest:
            at = PREFIX_AND_LENGTH_SIZE + (client_id_size if client_id_size > 0 else 0)
            if at >= len(frame):
                raise MalformedMessage("the frame is shorter than its request header")
            session = connection.session
            if session.client_id is None and client_id_size >= 0:
                session.client_id = read_request_header(frame)[0].client_id
            if version >= hot.flexible:
                at = at + 1 if frame[at] == 0 else skip_tag_section(frame, at)
            call = Call(session, version, correlation_id)
            if self.quotas is None and self.organisations is None:
                return hot.serve(self._data, frame, at, call)
            return self._serve_metered(hot, frame, at, call, connection)
        return self._dispatch_cold(connection, frame)

    def _serve_metered(self, hot: Hot, frame: memoryview, at: int, call: Call, connection: Connection) -> Handled:
        """Serve a client that may have quotas, or be a member of an organisation."""
        self._identify(call, read_request_header(frame)[0].client_id)
        self._meter(call, connection)
        if call.meter is not None and hot.counts_request:
            call.meter.produced(len(frame))
        reply = hot.serve(self._data, frame, at, call)
        if call.meter is not None:
            call.meter.end()
        return reply

    def _dispatch_cold(self, connection: Connection, frame: memoryview) -> Handled:
        api, request, call = self._read_cold(connection.session, frame)
        if request is None:
            return self._answer(api, None, call)
        self._identify(call, call.session.client_id)
        handled = self._serve_cold(connection, api, request, frame, call)
        if self.audit is None or api.audited is None:
            return handled
        return self.audit.observe(api.messages, api.audited, request, call, handled)

    def _read_cold(self, session: Session, frame: memoryview) -> tuple[Api, object, Call]:
        """The request of a frame, with its API and call. None: ApiVersions of an unknown version (KIP-511)."""
        key, version, correlation_id = read_request_prefix(frame)
        api = self._apis.get(key)
        if api is None:
            raise BadRequest(f"API key {key} is not supported")
        messages = api.messages
        if not messages.lowest <= version <= messages.highest:
            if key != API_VERSIONS:
                raise BadRequest(f"{messages.name} version {version} is not supported")
            return api, None, Call(session, FALLBACK_VERSION, correlation_id)
        header, at = read_request_header(frame)
        if len(frame) > COLD_REQUEST_AT_MOST:
            raise BadRequest(
                f"{messages.name} request of {len(frame)} bytes is over the limit of {COLD_REQUEST_AT_MOST}"
            )
        session.client_id = header.client_id
        return api, decode(messages.request, version, frame, at, exact=False), Call(session, version, correlation_id)

    def _serve_cold(self, connection: Connection, api: Api, request: object, frame: memoryview, call: Call) -> Handled:
        session, messages = call.session, api.messages
        if messages.between_brokers and not self._for_brokers(session.listener):
            return self._answer_later(api, self._by_a_new_broker(api, request, call), call)
        if api.only_for is not None and (error := api.only_for(session)) is not None:
            return _frame(api, call, messages.response(error_code=error))
        if not by_brokers(messages, call.version):
            self._meter(call, connection)
        client = self._contexts.controller_client
        if api.forwarded and client is not None:
            if api.refuses is not None and (refused := api.refuses(self._control, request, call)) is not None:
                return _frame(api, call, refused)
            work = self._by_the_controller(client, api, request, bytes(frame), call)
            return self._answer_later(api, work, call)
        handled = self._answer(api, request, call)
        if call.meter is not None:
            call.meter.end()
        return handled

    def _identify(self, call: Call, client_id: str | None) -> None:
        """Note the client id, and the member of an organisation that calls."""
        call.session.client_id = client_id
        if self.organisations is not None:
            call.member = self.organisations.member(call.session)

    def _meter(self, call: Call, connection: Connection | None) -> None:
        """Count the request if there is a limit for its client. None where another broker has the connection."""
        if self.quotas is not None:
            client_id = call.session.client_id or ""
            if call.member is not None:
                client_id = call.member.client_id(client_id)
            call.meter = self.quotas.meter(call.session, client_id, connection)
        if call.meter is None and call.member is not None and call.member.limited:
            call.meter = unlimited_meter(connection)

    def _answer(self, api: Api, request: object, call: Call) -> Handled:
        return self._reply(api, self._handle(api, request, call), call)

    def _reply(self, api: Api, response: Served, call: Call) -> Handled:
        if inspect.iscoroutine(response):
            return self._answer_later(api, response, call)
        if isinstance(response, Later):
            return _park(api, call, response)
        return _frame(api, call, response)

    async def _answer_later(self, api: Api, work: Coroutine[Any, Any, object], call: Call) -> Reply:
        try:
            return _frame(api, call, await (work if call.meter is None else Timed(work, call.meter)))
        except Exception:
            logger.exception(
                "Request failed (%s %d) from %s; closing the connection",
                api.messages.name,
                call.version,
                call.session.peer,
            )
            raise BadRequest("an internal error") from None

    # ── between brokers ──

    def _for_brokers(self, listener: str) -> bool:
        """Whether brokers may connect here: on the inter-broker listener, or if it is the only listener.

        While a rolling restart changes inter.broker.listener.name, some brokers still connect to the old listener.
        """
        control = self._control
        if self._contexts.controller_client is None:
            return False
        if listener == control.peers.listener_name or len(control.config.listeners) == 1:
            return True
        return any(each.inter_broker_listener == listener for each in control.image.brokers.values())

    async def _by_a_new_broker(self, api: Api, request: object, call: Call) -> object:
        """Serve a broker that has registered with another inter-broker listener a moment ago; refuse all others."""
        client = self._contexts.controller_client
        if client is not None:
            await client.catch_up()
        if not self._for_brokers(call.session.listener):
            return api.messages.response(error_code=WireError.CLUSTER_AUTHORIZATION_FAILED)
        return await self._serve(api, request, call)

    async def _by_the_controller(
        self, client: ControllerClient, api: Api, request: object, frame: bytes, call: Call
    ) -> object:
        """The controller's response, or its frame without a length; of the next one if the controller is replaced."""
        if self._control.controller.leads:
            response = await self._serve(api, request, call)
            if not isinstance(response, NotController):
                return response
        asked_ms: int = getattr(request, "timeout_ms", FORWARDED_MS)
        if asked_ms <= 0:  # librdkafka's default: do not wait until all brokers know of the change
            asked_ms = FORWARDED_MS
        timeout_s = min(asked_ms, FORWARDED_MS) / 1000
        answer = await client.forward(frame, call.session.peer, call.session.principal, timeout_s)
        if isinstance(answer, bytes):
            return Packed(answer)
        return await self._serve(api, request, call)  # as the new controller, or to refuse each row

    async def serve_forwarded(self, frame: memoryview, session: Session) -> bytes | Refusal:
        """The response to a client's request that another broker forwarded, header included.

        The session is the client's, as the forwarding broker describes it.
        """
        key, version, correlation_id = read_request_prefix(frame)
        api = self._apis.get(key)
        if api is None or not api.forwarded:
            return Refusal(WireError.INVALID_REQUEST, f"API key {key} is not forwarded.")
        if not api.messages.lowest <= version <= api.messages.highest:
            return Refusal(WireError.UNSUPPORTED_VERSION, f"{api.messages.name} version {version} is not supported.")
        header, at = read_request_header(frame)
        request: object = decode(api.messages.request, version, frame, at, exact=False)
        if self._control.controller.leads:
            call = Call(session, version, correlation_id)
            self._identify(call, header.client_id)
            self._meter(call, None)
            try:
                response = await self._serve(api, request, call)
            except Exception:  # a closed connection would make the broker resend it, with other clients' requests
                logger.exception("Forwarded request failed (%s %d) from %s", api.messages.name, version, session.peer)
                return Refusal(WireError.UNKNOWN_SERVER_ERROR, "The controller failed to carry out the request.")
            if not isinstance(response, NotController):
                return _frame(api, call, response)[LENGTH.size :]
        return Refusal(WireError.NOT_CONTROLLER, "This broker is not the controller.")

    async def serve(self, request: object, version: int) -> object:
        """The response to a request that this broker makes to itself."""
        return await self._serve(self._apis[layout_of(type(request)).key], request, Call(OWN_SESSION, version, 0))

    def _handle(self, api: Api, request: object, call: Call) -> Served:
        assert api.handler is not None
        serve: Serve = partial(api.handler, self._context_of(api))
        if self._gate is not None:
            serve = partial(self._gate.serve, api.messages, serve)
        return serve(request, call) if call.member is None else serve_member(api.messages, serve, request, call)

    def _context_of(self, api: Api) -> DataContext | ControlContext | CoordinatorContext:
        if api.part is Part.DATA:
            return self._contexts.data
        return self._contexts.control if api.part is Part.CONTROL else self._contexts.coordinator

    async def _serve(self, api: Api, request: object, call: Call) -> object:
        response = self._handle(api, request, call)
        return await response if inspect.isawaitable(response) else await awaited(response)


class Packed(NamedTuple):
    """A response that the controller has packed, header included."""

    frame: bytes


def _park(api: Api, call: Call, pending: Later[object]) -> Handled:
    """No task runs while the response is pending, so the request does not count as one in progress."""
    if pending.done:
        return _frame(api, call, pending.result)
    parked = Parked()

    def answer(response: object) -> None:
        try:
            parked.resolve(_frame(api, call, response))
        except Exception:
            logger.exception(
                "Response of a parked request failed (%s %d); closing its connection", api.messages.name, call.version
            )
            parked.resolve(BadRequest("an internal error"))

    pending.then(answer)
    return parked


def _frame(api: Api, call: Call, response: object) -> bytes:
    """The response as a frame; a handler may return the encoded body instead of a message."""
    if isinstance(response, NotController):
        response = response.response
    if call.meter is not None:
        response = _throttled(api, call, call.meter, response)
    if isinstance(response, Packed):
        return LENGTH.pack(len(response.frame)) + response.frame
    body = response if isinstance(response, bytes) else encode(response, call.version)
    header = pack_response_header(api.messages.key, call.version, call.correlation_id)
    return LENGTH.pack(len(header) + len(body)) + header + body


def by_brokers(messages: ApiMessages, version: int) -> bool:
    """Whether only brokers send such a request: they have no quotas."""
    return messages.between_brokers or version >= BY_BROKERS_SINCE.get(messages.key, version + 1)


def _throttled(api: Api, call: Call, meter: Meter, response: object) -> object:
    """The response with its throttle time, for which the connection is muted."""
    throttle_ms = meter.throttle_ms()
    if isinstance(response, Packed):  # by the controller, which has its own count
        meter.forwarded(read_throttle_time(api.messages, call.version, response.frame))
        return response
    return with_throttle_time(api.messages, call.version, response, throttle_ms) if throttle_ms else response


def _describe(frame: memoryview) -> str:
    key, version, correlation = read_request_prefix(frame)
    return f"API key {key}, version {version}, correlation id {correlation}, {len(frame)} bytes"
