"""Audit on the broker: one record for a request however it is answered, and a writer that never stops trying."""

import asyncio
import json
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.session import Principal, Session
from moldau.broker.call import Call
from moldau.broker.security import audit_writer
from moldau.broker.security.audit import Audit
from moldau.broker.security.audit_writer import AuditWriter
from moldau.broker.security.denials import Denial
from moldau.net.reply import BadRequest, Parked, Reply
from moldau.security.acls import Operation, ResourceType
from moldau.security.audit import AuditBuffer, Client, Resource, action
from moldau.security.audit_actions import groups_deleted
from moldau.security.sasl import Failed
from moldau.wire.codec import encode
from moldau.wire.frames import LENGTH
from moldau.wire.headers import pack_response_header
from moldau.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.wire.messages.registry import BY_KEY
from support.net.loops import until

DELETE_GROUPS, VERSION = 42, 2
NOT_LEADER = Refusal(WireError.NOT_LEADER_OR_FOLLOWER, "another broker leads")
CLIENT = Client("User:alice", "10.0.0.7", "CLIENTS", "app")


class Log:
    """A topic that takes batches, or refuses them."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.refusal: Refusal | None = None
        self.tried = 0

    async def append(self, records: Sequence[bytes]) -> Refusal | None:
        self.tried += 1
        if self.refusal is None:
            self.batches.append(list(records))
        return self.refusal

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(record) for batch in self.batches for record in batch]


class World:
    def __init__(self, per_second: int = 1_000_000) -> None:
        self.log = Log()
        self.buffer = AuditBuffer(1, per_second, 0, 0.0)
        self.writer = AuditWriter(self.buffer, self.log.append, lambda: 1_000)
        self.audit = Audit(self.buffer, self.writer, ["DeleteGroups"], lambda: 1_000)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.buffer.batch()]

    def observe(self, handled: Any) -> Any:
        session = Session("CLIENTS", "10.0.0.7:5000", principal=Principal("User", "alice"), client_id="app")
        request = DeleteGroupsRequest(groups_names=("readers",))
        call = Call(session, VERSION, 7)
        return self.audit.observe(BY_KEY[DELETE_GROUPS], groups_deleted, request, call, handled)

    async def until_tried(self, times: int) -> None:
        await until(lambda: self.log.tried >= times)


def response(error: int = 0) -> bytes:
    rows = (DeletableGroupResult(group_id="readers", error_code=error),)
    body = pack_response_header(DELETE_GROUPS, VERSION, 7) + encode(DeleteGroupsResponse(results=rows), VERSION)
    return LENGTH.pack(len(body)) + body


def add(world: World, api: str) -> None:
    world.buffer.add(action(CLIENT, api, [Resource("Topic", "x")]), 0.0, 0)
    world.writer.wake()


# ── requests ──


def test_a_response_that_is_there_at_once() -> None:
    world = World()
    assert world.observe(response(68)) == response(68)
    (record,) = world.records
    assert record["principal"] == "User:alice"
    assert (record["host"], record["listener"], record["client_id"]) == ("10.0.0.7", "CLIENTS", "app")
    assert record["resources"] == [{"type": "Group", "name": "readers", "outcome": "NON_EMPTY_GROUP"}]


def test_a_parked_response_is_recorded_once_even_if_the_client_has_gone() -> None:
    world = World()
    inner = Parked()
    outer = world.observe(inner)
    assert world.records == []
    outer.abandon()
    inner.resolve(response())
    assert outer.reply == response()
    assert [each["outcome"] for each in world.records] == ["ok"]


def test_a_coroutine_that_answers_or_fails() -> None:
    async def answer() -> Reply:
        return response()

    async def fail() -> Reply:
        raise BadRequest("an internal error")

    def run(work: Coroutine[Any, Any, Reply]) -> Reply:
        async def main() -> Reply:
            return await world.observe(work)  # type: ignore[no-any-return]

        return asyncio.run(main())

    world = World()
    assert run(answer()) == response()
    with pytest.raises(BadRequest):
        run(fail())
    assert [each["outcome"] for each in world.records] == ["ok", "UNKNOWN_SERVER_ERROR"]


def test_a_response_that_cannot_be_read_fails_no_request(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    assert world.observe(b"nonsense") == b"nonsense"
    assert world.records == []
    assert "An audit record could not be made" in caplog.text


def test_a_denial_of_an_action_is_the_outcome_of_the_action() -> None:
    world = World()
    for api in ("DeleteGroups", "Fetch"):
        world.audit.denied(Denial(*CLIENT[:3], "app", api, Operation.READ, ResourceType.TOPIC, "orders", 0))  # type: ignore[arg-type]
    assert [each["api"] for each in world.records] == ["Fetch"]


def test_a_failed_login_names_users_that_there_are() -> None:
    world = World()
    session = Session("CLIENTS", "10.0.0.7:5000")
    world.audit.login_failed(session, "PLAIN", Failed("invalid credentials", user="alice"))
    world.audit.login_failed(session, "PLAIN", Failed("invalid credentials"))
    assert [each["principal"] for each in world.records] == ["User:alice", None]


# ── the writer ──


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_writer, "RETRY_S", 0.01)
    monkeypatch.setattr(audit_writer, "LAST_APPEND_S", 0.5)


def test_records_are_written_in_order() -> None:
    async def main() -> None:
        world = World()
        world.writer.start()
        for number in range(5):
            add(world, f"api {number}")
        await world.writer.stop()
        assert [each["api"] for each in world.log.records] == [f"api {number}" for number in range(5)]

    asyncio.run(main())


def test_records_wait_for_a_topic_that_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        world = World()
        world.log.refusal = NOT_LEADER
        world.writer.start()
        add(world, "first")
        await world.until_tried(3)
        add(world, "second")
        world.log.refusal = None
        await world.writer.stop()
        assert [each["api"] for each in world.log.records] == ["first", "second"]

    asyncio.run(main())
    lines = [line.getMessage() for line in caplog.records]
    assert lines == [
        "Audit records cannot be written to __audit, and wait until they can: another broker leads",
        "Audit records are written to __audit again; 0 were dropped",
    ]


def test_dropped_records_are_told_in_the_log_and_in_a_record(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(audit_writer, "TELL_S", 0.0)

    async def main() -> None:
        world = World()
        world.log.refusal = NOT_LEADER
        world.writer.start()
        long = [Resource("Topic", "x" * 250, 0, "y" * 250)] * 20
        while not world.buffer.dropped:
            world.buffer.add(action(CLIENT, "CreateTopics", long), 0.0, 0)
        world.writer.wake()
        await world.until_tried(3)
        world.log.refusal = None
        await world.writer.stop()
        assert world.log.records[-1]["event"] == "left-out"
        assert world.log.records[-1]["count"] == {"action": 1}

    asyncio.run(main())
    lines = [line.getMessage() for line in caplog.records]
    assert "1 audit records were dropped since __audit cannot be written: another broker leads" in lines
    assert lines[-1] == "Audit records are written to __audit again; 1 were dropped"


def test_records_that_can_never_be_written_do_not_stop_others() -> None:
    async def main() -> None:
        world = World()
        world.log.refusal = Refusal.of(WireError.MESSAGE_TOO_LARGE)
        world.writer.start()
        add(world, "lost")
        await world.until_tried(1)
        world.log.refusal = None
        add(world, "kept")
        await world.writer.stop()
        assert [each.get("api", each["event"]) for each in world.log.records] == ["left-out", "kept"]

    asyncio.run(main())


def test_an_error_in_the_program_does_not_end_the_writer(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = World()
        append = world.log.append

        async def broken(records: Sequence[bytes]) -> Refusal | None:
            if world.log.tried == 0:
                world.log.tried += 1
                raise ValueError("a bug")
            return await append(records)

        world.writer = AuditWriter(world.buffer, broken, lambda: 1_000)
        world.writer.start()
        add(world, "first")
        await world.until_tried(2)
        await world.writer.stop()
        assert [each["api"] for each in world.log.records] == ["first"]

    asyncio.run(main())
    assert "Writing audit records failed" in caplog.text


def test_the_stop_of_a_broker_does_not_wait_for_a_topic_without_a_leader(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = World()
        world.log.refusal = NOT_LEADER
        world.writer.start()
        add(world, "first")
        await world.writer.stop()

    asyncio.run(main())
    assert "1 audit records were not written to __audit before the stop, and are lost" in caplog.text


def test_what_was_left_out_is_told_although_nothing_else_happens() -> None:
    async def main() -> None:
        world = World(per_second=1)
        world.writer.start()
        for number in range(10):
            add(world, f"api {number}")
        await until(lambda: not world.buffer.counts)
        await world.writer.stop()
        assert world.log.records[-1]["event"] == "left-out"

    asyncio.run(main())
