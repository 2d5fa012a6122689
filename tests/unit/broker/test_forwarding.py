"""Requests for the controller: how long a broker looks for it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.session import BROKER, Principal, Session
from moldau.broker.apis.envelope import envelope
from moldau.broker.cluster.controller_client import ControllerClient
from moldau.broker.context import Contexts
from moldau.broker.controller import CONTENDED, NOT_CONTROLLER, NotController, unless_deposed
from moldau.broker.dispatch import Dispatcher, Packed
from moldau.broker.security.authorizer import Authorizer
from moldau.broker.security.denials import Denials
from moldau.broker.security.gate import Gate
from moldau.broker.security.guards.table import GUARDS
from moldau.broker.table import APIS
from moldau.metadata.image import ClusterImage
from moldau.wire.codec import decode, encode
from moldau.wire.headers import pack_request_header
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from support.brokers.calls import a_call


def contexts(*, leads: bool) -> Contexts:
    control: Any = SimpleNamespace(controller=SimpleNamespace(leads=leads))
    unused: Any = None
    return Contexts(unused, control, unused, None)


@pytest.mark.parametrize(("asked_ms", "looked_s"), [(-1, 30), (0, 30), (10_000, 10), (600_000, 30)])
def test_a_client_that_waits_for_nothing_is_answered_by_the_controller(asked_ms: int, looked_s: float) -> None:
    """librdkafka's admin client sends a time-out of 0, also to a broker that is no controller any more."""
    waited: list[float] = []

    class Client:
        async def forward(self, frame: bytes, peer: str, principal: Principal, timeout_s: float) -> bytes:
            waited.append(timeout_s)
            return b"answer"

    dispatcher = Dispatcher(contexts(leads=False), APIS)
    (api,) = [each for each in APIS if each.messages.request is CreateTopicsRequest]
    request = CreateTopicsRequest(topics=(), timeout_ms=asked_ms)
    client: Any = Client()
    answer = asyncio.run(dispatcher._by_the_controller(client, api, request, b"", a_call(7)))
    assert answer == Packed(b"answer")
    assert waited == [looked_s]


@pytest.mark.parametrize(
    ("principal", "errors"),
    [
        (Principal("User", "alice"), [WireError.TOPIC_AUTHORIZATION_FAILED]),
        (Principal("User", "admin"), []),
        (BROKER, []),
    ],
    ids=str,
)
def test_a_forwarded_request_is_authorized_by_its_principal(principal: Principal, errors: list[WireError]) -> None:
    """A broker's own requests are marked as such, and need no rights."""
    (api,) = [each for each in APIS if each.messages.request is CreateTopicsRequest]

    async def create(_: object, request: CreateTopicsRequest, __: object) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=())

    config: Any = None
    authorizer = Authorizer(["User:admin"], ClusterImage, Denials())
    gate = Gate(authorizer, GUARDS, ClusterImage, lambda: config)
    dispatcher = Dispatcher(contexts(leads=True), [api._replace(handler=create)], gate)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=(), configs=())
    frame = pack_request_header(19, 7, 1, "client") + encode(CreateTopicsRequest(topics=(topic,)), 7)
    session = Session("BROKERS", "10.0.0.1:1", principal=principal)
    answer = asyncio.run(dispatcher.serve_forwarded(memoryview(frame), session))
    assert isinstance(answer, bytes)
    response = decode(CreateTopicsResponse, 7, answer, 5)
    assert [topic.error_code for topic in response.topics] == errors
    assert authorizer.denials.count == len(errors)


def test_an_error_of_the_controllers_is_an_answer_and_ends_no_connection() -> None:
    """The broker that forwards would try again, on the connection that carries the requests of all its clients."""

    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    (api,) = [each for each in APIS if each.messages.request is CreateTopicsRequest]
    dispatcher = Dispatcher(contexts(leads=True), [api._replace(handler=fail)])
    frame = pack_request_header(api.messages.key, 7, 1, "client") + encode(CreateTopicsRequest(topics=()), 7)
    answer = asyncio.run(dispatcher.serve_forwarded(memoryview(frame), Session("BROKERS", "10.0.0.1:1")))
    assert isinstance(answer, Refusal)
    assert answer.error is WireError.UNKNOWN_SERVER_ERROR


def test_a_forwarded_request_keeps_its_principal() -> None:
    """The broker packs it into the envelope; the controller makes a session of it."""
    alice = Principal("User", "alice")
    forwarded: list[EnvelopeRequest] = []
    sessions: list[Session] = []

    class Link:
        async def ask(self, envelope: EnvelopeRequest, version: int, timeout_ms: int) -> EnvelopeResponse:
            forwarded.append(envelope)
            return EnvelopeResponse(error_code=WireError.NONE, response_data=b"answer")

    async def catch_up(sync: bool) -> None: ...

    image = SimpleNamespace(controller_id=2)
    controller: Any = SimpleNamespace(leads=False, image=image, feed=SimpleNamespace(catch_up=catch_up))
    peers: Any = SimpleNamespace(to=lambda *_: Link())
    serve: Any = None
    client = ControllerClient(controller, peers, 1, serve)
    assert asyncio.run(client.forward(b"frame", "10.0.0.1:5000", alice)) == b"answer"

    async def serve_forwarded(frame: memoryview, session: Session) -> bytes:
        sessions.append(session)
        return bytes(frame)

    context: Any = SimpleNamespace(serve_forwarded=serve_forwarded)
    assert asyncio.run(envelope(context, forwarded[0], a_call(0))).response_data == b"frame"
    assert (sessions[0].principal, sessions[0].peer) == (alice, "10.0.0.1:5000")


def test_a_principal_that_cannot_be_read_is_refused() -> None:
    context: Any = SimpleNamespace(serve_forwarded=lambda *_: None)
    request = EnvelopeRequest(request_data=b"", request_principal=b"\0\7", client_host_address=b"")
    answer = asyncio.run(envelope(context, request, a_call(0)))
    assert answer.error_code is WireError.PRINCIPAL_DESERIALIZATION_FAILURE


class Successor:
    """Another controller."""

    async def forward(self, *_: object) -> bytes:
        return b"of the successor"


def test_a_request_that_the_controller_was_deposed_from_goes_to_its_successor() -> None:
    """Whatever its response has carried out by then: the successor answers for all of it."""

    async def deposed(*_: object) -> NotController[str]:
        return NotController("refused in each row")

    (api,) = [each for each in APIS if each.messages.request is CreateTopicsRequest]
    dispatcher = Dispatcher(contexts(leads=True), [api._replace(handler=deposed)])
    client: Any = Successor()
    request = CreateTopicsRequest(topics=())
    answer = asyncio.run(dispatcher._by_the_controller(client, api._replace(handler=deposed), request, b"", a_call(7)))
    assert answer == Packed(b"of the successor")
    frame = pack_request_header(api.messages.key, 7, 1, "client") + encode(request, 7)
    refused = asyncio.run(dispatcher.serve_forwarded(memoryview(frame), Session("BROKERS", "10.0.0.1:1")))
    assert isinstance(refused, Refusal)
    assert refused.error is WireError.NOT_CONTROLLER, "the broker that forwarded it looks for the successor"


def test_only_a_lost_controllership_makes_a_request_go_elsewhere() -> None:
    other = Refusal.of(WireError.INVALID_REQUEST)
    assert unless_deposed("response", [other, CONTENDED]) == "response"
    assert unless_deposed("response", [other, NOT_CONTROLLER]) == NotController("response")
