"""Produce requests that wait for a coordinator elsewhere: nobody overtakes, and nobody waits for a stranger."""

from typing import Any

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later
from moldau.broker import verification_queue as module
from moldau.broker.verification_queue import VerificationQueue
from moldau.net.reply import BadRequest, Parked

REFUSED = Refusal.of(WireError.NOT_ENOUGH_REPLICAS)


class Desk:
    """Asks and appends as a produce handler does; the test answers the questions."""

    def __init__(self) -> None:
        self.queue = VerificationQueue()
        self.questions: dict[bytes, Later[Any]] = {}
        self.known: set[bytes] = set()
        self.done: list[tuple[bytes, Any]] = []
        self.parks: dict[bytes, Parked] = {}
        self.breaks: dict[bytes, Exception] = {}

    def send(self, producer_id: int, request: bytes) -> Any:
        return self.queue.serve(producer_id, memoryview(request), self._verify, self._append)

    def _verify(self, frame: memoryview) -> Any:
        request = bytes(frame)
        if request in self.known:
            return {}
        return self.questions.setdefault(request, Later())

    def _append(self, frame: memoryview, verifications: Any) -> Any:
        request = bytes(frame)
        if request in self.breaks:
            raise self.breaks[request]
        self.done.append((request, verifications))
        return self.parks.get(request, b"done " + request)


def replies(*parked: Any) -> list[Any]:
    assert all(isinstance(each, Parked) for each in parked)
    return [each.reply if each.done else None for each in parked]


def test_what_is_known_waits_for_nobody() -> None:
    desk = Desk()
    desk.known = {b"a"}
    assert desk.send(1, b"a") == b"done a"


def test_requests_of_a_producer_keep_their_order() -> None:
    desk = Desk()
    desk.known = {b"b", b"c"}
    held = [desk.send(1, request) for request in (b"a", b"b", b"c")]
    assert not desk.done
    desk.questions[b"a"].resolve({})
    assert [request for request, _ in desk.done] == [b"a", b"b", b"c"]
    assert replies(*held) == [b"done a", b"done b", b"done c"]
    assert desk.send(1, b"b") == b"done b", "and afterwards nothing is in the way"


def test_one_that_has_to_ask_holds_up_those_behind_it() -> None:
    desk = Desk()
    desk.known = {b"c"}
    held = [desk.send(1, request) for request in (b"a", b"b", b"c")]
    desk.questions[b"a"].resolve({})
    assert replies(*held) == [b"done a", None, None]
    desk.questions[b"b"].resolve(REFUSED)
    assert desk.done == [(b"a", {}), (b"b", REFUSED), (b"c", {})]


def test_other_producers_append() -> None:
    desk = Desk()
    desk.known = {b"b"}
    held = desk.send(1, b"a")
    assert desk.send(2, b"b") == b"done b"
    assert replies(held) == [None]


def test_a_frame_is_borrowed() -> None:
    desk = Desk()
    buffer = bytearray(b"a")
    held = desk.queue.serve(1, memoryview(buffer), desk._verify, desk._append)
    buffer[:] = b"x"
    desk.questions[b"a"].resolve({})
    assert replies(held) == [b"done a"]


def test_an_append_that_waits_does_not_hold_up_the_next() -> None:
    desk = Desk()
    desk.known = {b"b"}
    desk.parks[b"a"] = Parked()
    held = [desk.send(1, b"a"), desk.send(1, b"b")]
    desk.questions[b"a"].resolve({})
    assert replies(*held) == [None, b"done b"]
    desk.parks[b"a"].resolve(b"at last")
    assert replies(*held) == [b"at last", b"done b"]


@pytest.mark.parametrize("problem", [BadRequest("closed"), ValueError("a bug")])
def test_a_request_that_fails_closes_its_connection_alone(problem: Exception) -> None:
    desk = Desk()
    desk.known = {b"b"}
    desk.breaks[b"a"] = problem
    held = [desk.send(1, b"a"), desk.send(1, b"b")]
    desk.questions[b"a"].resolve({})
    failed, done = replies(*held)
    assert isinstance(failed, BadRequest)
    assert done == b"done b"


def test_there_is_an_end_to_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUED_BYTES_AT_MOST", 4)
    desk = Desk()
    held = desk.send(1, b"aaa")
    assert desk.send(1, b"bb") == b"done bb"
    assert desk.done == [(b"bb", module.FULL)], "it is told to come again, after what is before it"
    desk.questions[b"aaa"].resolve({})
    assert replies(held) == [b"done aaa"]
    assert isinstance(desk.send(1, b"cccc"), Parked), "and there is room again"
