"""Requests for the controller: how long a broker looks for it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.session import Session
from moldau.broker.dispatch import Dispatcher, Enveloped
from moldau.broker.table import APIS
from moldau.wire.codec import encode
from moldau.wire.headers import pack_request_header
from moldau.wire.messages.create_topics import CreateTopicsRequest
from support.brokers.calls import a_call


@pytest.mark.parametrize(("asked_ms", "looked_s"), [(-1, 30), (0, 30), (10_000, 10), (600_000, 30)])
def test_a_client_that_waits_for_nothing_is_answered_by_the_controller(asked_ms: int, looked_s: float) -> None:
    """librdkafka's admin client sends a time-out of 0, also to a broker that is no controller any more."""
    waited: list[float] = []

    class Asking:
        async def forward(self, frame: bytes, host: bytes, patience_s: float) -> bytes:
            waited.append(patience_s)
            return b"answer"

    context: Any = SimpleNamespace(controller=SimpleNamespace(leads=False))
    dispatcher = Dispatcher(context, APIS)
    (api,) = [each for each in APIS if each.messages.request is CreateTopicsRequest]
    request = CreateTopicsRequest(topics=(), timeout_ms=asked_ms)
    asking: Any = Asking()
    answer = asyncio.run(dispatcher._by_the_controller(asking, api, request, b"", a_call(7)))
    assert answer == Enveloped(b"answer")
    assert waited == [looked_s]


def test_an_error_of_the_controllers_is_an_answer_and_ends_no_connection() -> None:
    """The broker that forwards would try again, on the connection that carries the requests of all its clients."""

    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    context: Any = SimpleNamespace(controller=SimpleNamespace(leads=True))
    (api,) = [each for each in APIS if each.messages.request is CreateTopicsRequest]
    dispatcher = Dispatcher(context, [api._replace(handler=fail)])
    frame = pack_request_header(api.messages.key, 7, 1, "client") + encode(CreateTopicsRequest(topics=()), 7)
    answer = asyncio.run(dispatcher.serve_forwarded(memoryview(frame), Session("BROKERS", "10.0.0.1:1")))
    assert isinstance(answer, Refusal)
    assert answer.error is WireError.UNKNOWN_SERVER_ERROR
