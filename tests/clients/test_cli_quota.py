"""`moldau quota` as a user meets it: the real command against a real broker."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from support.clients.cli import Run, fail, succeed


@pytest.fixture
def user(moldau: Run) -> Iterator[str]:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    yield name
    moldau("quota", "delete", "--user", name, "--yes")
    moldau("quota", "delete", "--user", name, "--client-default", "--yes")


def told(moldau: Run, *arguments: str) -> Any:
    return json.loads(succeed(moldau("quota", *arguments, "-o", "json")))


def test_set_list_describe_delete(moldau: Run, user: str) -> None:
    succeed(moldau("quota", "set", "--user", user, "producer_byte_rate=10MB/s", "request_percentage=12.5%"))
    told(moldau, "set", "--user", user, "--client-default", "producer_byte_rate=1MiB")
    (mine,) = [row for row in told(moldau, "list") if row["entity"] == {"user": user}]
    assert mine["quotas"] == {"producer_byte_rate": 10_000_000.0, "request_percentage": 12.5}
    printed = succeed(moldau("quota", "list"))
    assert f"user {user}, default client-id" in printed
    assert "10,000,000" in printed
    found = told(moldau, "describe", "--user", user, "--client-id", "app")
    assert found["producer_byte_rate"] == {"value": 1_048_576.0, "set_for": {"user": user, "client-id": None}}
    assert found["request_percentage"]["set_for"] == {"user": user}
    assert told(moldau, "delete", "--user", user, "--dry-run")["outcome"] == "would delete"
    assert "Deleted request_percentage" in succeed(
        moldau("quota", "delete", "--user", user, "request_percentage", "--yes")
    )
    assert told(moldau, "describe", "--user", user) == {
        "producer_byte_rate": {"value": 10_000_000.0, "set_for": {"user": user}}
    }
    assert told(moldau, "delete", "--user", user, "--yes")["quotas"] == ["producer_byte_rate"]
    assert told(moldau, "describe", "--user", user) == {}
    assert "has no quotas" in moldau("quota", "delete", "--user", user, "--yes").stderr


def test_a_dry_run_sets_nothing(moldau: Run, user: str) -> None:
    assert told(moldau, "set", "--user", user, "consumer_byte_rate=5", "--dry-run")["outcome"] == "valid"
    assert told(moldau, "describe", "--user", user) == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set", "producer_byte_rate=1"], "no entity was given"),
        (["set", "--user", "a", "speed=1"], "there is no quota 'speed'"),
        (["set", "--user", "a", "producer_byte_rate=fast"], "is not a number"),
        (["set", "--user", "a", "producer_byte_rate"], "not of the form key=value"),
        (["set", "--user", "a", "--user-default", "producer_byte_rate=1"], "choose one"),
        (["set", "--user", "a", "--ip", "1.2.3.4", "producer_byte_rate=1"], "cannot be combined"),
        (["set", "--user", "a", "connection_creation_rate=1"], "is a quota of addresses, not of user a. Give --ip"),
        (["set", "--ip-default", "producer_byte_rate=1"], "is a quota of users and client ids, not of default ip"),
        (["set", "--user", "", "producer_byte_rate=1"], "--user is empty"),
        (["describe"], "name a user"),
        (["describe", "--ip", "1.2.3.4", "--user", "a"], "name a user"),
        (["delete", "--user", "nobody", "producer_byte_rate", "--yes"], "has no quota producer_byte_rate. It has none"),
    ],
)
def test_bad_arguments(moldau: Run, arguments: list[str], words: str) -> None:
    fail(moldau("quota", *arguments), 2, words)


def test_what_the_broker_refuses_is_told(moldau: Run) -> None:
    fail(moldau("quota", "set", "--ip", "1.2.3.999", "connection_creation_rate=1"), 1, "not a valid IP")
    fail(moldau("quota", "set", "--user", "a", "request_percentage=-1"), 1, "must be greater than 0")


def test_deleting_needs_a_yes(moldau: Run, user: str) -> None:
    succeed(moldau("quota", "set", "--user", user, "consumer_byte_rate=5"))
    fail(moldau("quota", "delete", "--user", user), 2, "--yes")
    assert told(moldau, "describe", "--user", user)
