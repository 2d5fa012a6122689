"""Audit records: what an event becomes, and what is left out where there are too many."""

import json
from typing import Any

import pytest

from moldau.base.errors import WireError
from moldau.base.session import Principal, Session
from moldau.security.acls import Operation, ResourceType
from moldau.security.audit import (
    BATCH_BYTES,
    BUFFERED_BYTES,
    SHOWN_LETTERS,
    SHOWN_RESOURCES,
    AuditBuffer,
    Client,
    Resource,
    action,
    client_of,
    denial,
    failed_login,
    time_of,
)

CLIENT = Client("User:alice", "10.0.0.7", "CLIENTS", "app")
NOW_MS = 1_777_890_030_405


def buffer(per_second: int = 1_000) -> AuditBuffer:
    return AuditBuffer(3, per_second, 17, now_s=0.0)


def records(of: AuditBuffer) -> list[dict[str, Any]]:
    return [json.loads(each) for each in of.batch()]


@pytest.mark.parametrize(("peer", "host"), [("10.0.0.7:9092", "10.0.0.7"), ("[::1]:80", "::1"), ("a pipe", "a pipe")])
def test_a_client_has_its_address_without_the_port(peer: str, host: str) -> None:
    session = Session("CLIENTS", peer, principal=Principal("User", "alice"), client_id="app")
    assert client_of(session) == Client("User:alice", host, "CLIENTS", "app")


def test_a_record_says_who_from_where_what_and_the_outcome() -> None:
    made = buffer()
    made.add(action(CLIENT, "CreateTopics", [Resource("Topic", "orders")]), 0.0, NOW_MS)
    assert records(made) == [
        {
            "time": "2026-05-04T10:20:30.405Z",
            "id": "3-17-1",
            "broker": 3,
            "event": "action",
            "principal": "User:alice",
            "host": "10.0.0.7",
            "listener": "CLIENTS",
            "client_id": "app",
            "api": "CreateTopics",
            "outcome": "ok",
            "resources": [{"type": "Topic", "name": "orders", "outcome": "ok"}],
        }
    ]
    assert time_of(NOW_MS) == "2026-05-04T10:20:30.405Z"


@pytest.mark.parametrize(
    ("error", "errors", "outcome"),
    [
        (0, (), "ok"),
        (0, (0, 0), "ok"),
        (0, (0, 36), "partial"),
        (0, (36, 36), "TOPIC_ALREADY_EXISTS"),
        (WireError.CLUSTER_AUTHORIZATION_FAILED, (), "CLUSTER_AUTHORIZATION_FAILED"),
        (WireError.CLUSTER_AUTHORIZATION_FAILED, (31,), "CLUSTER_AUTHORIZATION_FAILED"),
        (9999, (), "error 9999"),
    ],
)
def test_the_outcome_of_a_request_is_that_of_all_its_resources(
    error: int, errors: tuple[int, ...], outcome: str
) -> None:
    made = action(CLIENT, "CreateTopics", [Resource("Topic", "x", each) for each in errors], error)
    assert made["outcome"] == outcome


def test_many_resources_are_counted_and_those_that_failed_come_first() -> None:
    many = [Resource("Topic", f"t{number}") for number in range(100)]
    made: dict[str, Any] = dict(action(CLIENT, "CreateTopics", [*many, Resource("Topic", "bad", 36)]))
    assert len(made["resources"]) == SHOWN_RESOURCES
    assert made["resources"][0] == {"type": "Topic", "name": "bad", "outcome": "TOPIC_ALREADY_EXISTS"}
    assert made["more"] == 101 - SHOWN_RESOURCES


def test_denials_and_failed_logins() -> None:
    made = buffer()
    made.add(denial(CLIENT, "Fetch", Operation.READ, ResourceType.TOPIC, "orders", 12), 0.0, 0)
    made.add(failed_login(CLIENT._replace(principal=None), "PLAIN", "invalid credentials"), 0.0, 0)
    denied, login = records(made)
    assert denied["resources"] == [{"type": "Topic", "name": "orders"}]
    assert (denied["operation"], denied["outcome"], denied["repeats"]) == ("READ", "denied", 12)
    assert (login["event"], login["principal"], login["mechanism"]) == ("failed-login", None, "PLAIN")
    assert login["outcome"] == "invalid credentials"


def test_names_of_any_length_and_letters_are_bounded() -> None:
    wild = "\ud800\U0001f600\n" * 1000
    made = buffer()
    for _ in range(10):
        made.add(action(Client(wild, "h", "l", wild), "x", [Resource("Topic", wild, 36, wild)] * 100), 0.0, 0)
    assert len(made) == 10
    assert all(len(each) < BATCH_BYTES for each in made.batch())
    assert len(records(made)[0]["principal"]) == SHOWN_LETTERS


def test_what_is_over_the_rate_is_counted_and_told_when_there_is_room() -> None:
    made = buffer(per_second=10)
    record = denial(CLIENT, "Fetch", Operation.READ, ResourceType.TOPIC, "orders", 0)
    for _ in range(1000):
        made.add(record, 0.0, 0)
    kept = len(made)
    assert 10 <= kept <= 11
    assert dict(made.counts) == {"denial": 1000 - kept}
    made.tell_left_out(0.0, 0)
    assert len(made) == kept, "not yet"
    made.add(record, 1.0, 0)
    assert [each["event"] for each in records(made)[kept:]] == ["left-out", "denial"]
    assert records(made)[kept]["count"] == {"denial": 1000 - kept}
    assert not made.counts


def test_a_flood_of_denials_hides_no_action() -> None:
    made = buffer(per_second=10)
    for _ in range(1000):
        made.add(denial(CLIENT, "Fetch", Operation.READ, ResourceType.TOPIC, "orders", 0), 0.0, 0)
    made.add(action(CLIENT, "DeleteTopics", [Resource("Topic", "orders")]), 0.0, 0)
    assert records(made)[-1]["api"] == "DeleteTopics"


def test_a_full_buffer_drops_what_comes_and_tells_it_in_the_next_record() -> None:
    made = buffer(per_second=1_000_000)
    record = action(CLIENT, "CreateTopics", [Resource("Topic", "x" * 200)] * 20)
    count = 0
    while not made.dropped:
        made.add(record, 0.0, 0)
        count += 1
    made.add(record, 0.0, 0)
    assert made.dropped == 2
    assert len(made) == count - 1
    assert len(made) * len(made.batch()[0]) > BUFFERED_BYTES * 0.9
    made.remove(len(made) * 2 // 3)
    before = len(made)
    made.add(record, 1.0, 0)
    made.remove(before)
    told, last = records(made)
    assert told["count"] == {"action": 2}
    assert last["event"] == "action"


def test_records_stay_until_they_are_removed_and_lost_ones_are_counted() -> None:
    made = buffer()
    for number in range(3):
        made.add(action(CLIENT, f"api {number}", []), 0.0, 0)
    assert made.batch() == made.batch()
    made.remove(1)
    made.remove(1, lost=True)
    assert [each["api"] for each in records(made)] == ["api 2"]
    assert dict(made.counts) == {"action": 1}
