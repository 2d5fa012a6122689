"""Subscriptions by regular expression: what matches, when it is looked at again, and what a hostile one can cost."""

from dataclasses import replace

import pytest

from moldau.base.errors import WireError
from moldau.groups.consumer import regex as consumer_regex
from support.groups.consumer_group import GROUP, Client, OneGroup, settle, topics

LONG_NAMES = {f"{'a' * 200}{number}": 1 for number in range(400)}


def subscribed(client: Client, regex: str) -> None:
    response = client.join(subscribed_topic_names=None, subscribed_topic_regex=regex)
    assert response.error_code == 0, response.error_message


def test_the_whole_name_has_to_match() -> None:
    world = OneGroup(topics(ab=1, b=2, abc=1, _internal=1))
    client = Client(world, "a")
    subscribed(client, "a?b")
    assert client.owned == {"ab": {0}, "b": {0, 1}}


def test_internal_topics_match_as_in_kafka() -> None:
    world = OneGroup(topics(__consumer_offsets=2))
    client = Client(world, "a")
    subscribed(client, ".*")
    assert client.owned == {"__consumer_offsets": {0, 1}}


def test_names_and_an_expression_may_be_subscribed_together() -> None:
    world = OneGroup(topics(a=1, b=1, c=1))
    client = Client(world, "a")
    client.join("c", subscribed_topic_regex="a|b")
    assert client.owned == {"a": {0}, "b": {0}, "c": {0}}
    client.beat(subscribed_topic_regex="b")
    settle([client])
    assert client.owned == {"b": {0}, "c": {0}}
    client.beat(subscribed_topic_regex="")
    settle([client])
    assert client.owned == {"c": {0}}
    assert world.group is not None
    assert world.group.regexes == {}


@pytest.mark.parametrize(
    ("regex", "fault"),
    [
        ("(a", "missing )"),
        ("(?=a)b", "invalid perl operator"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        ("a" * (consumer_regex.MAX_PATTERN_BYTES + 1), "longer than"),
        (r"\pL" * (consumer_regex.MAX_UNICODE_CLASSES + 1), "Unicode classes"),
        (r"(\pL{30}){30}", "pattern too large"),
    ],
)
def test_an_expression_that_cannot_be_used(regex: str, fault: str) -> None:
    world = OneGroup()
    response = world.join("a", subscribed_topic_names=None, subscribed_topic_regex=regex)
    assert response.error_code == WireError.INVALID_REGULAR_EXPRESSION
    assert fault in (response.error_message or "")
    assert world.group is None


def test_new_topics_are_seen_soon_but_not_each_by_itself() -> None:
    world = OneGroup(topics(a1=1))
    client = Client(world, "a")
    subscribed(client, "a.")
    world.become(a1=1, a2=1)
    world.wait(9999)
    client.acknowledge()
    assert client.owned == {"a1": {0}}
    world.become(a1=1, a2=1, a3=1)
    world.wait(1)
    client.acknowledge()
    assert client.owned == {"a1": {0}, "a2": {0}, "a3": {0}}


def test_a_topic_that_goes_is_taken_away() -> None:
    world = OneGroup(topics(a1=1, a2=1))
    client = Client(world, "a")
    subscribed(client, "a.")
    world.become(a2=1)
    world.wait(10_000)
    settle([client])
    assert client.owned == {"a2": {0}}
    assert world.group is not None
    assert world.group.regexes["a."].topics == {"a2"}


def test_expressions_are_looked_at_again_after_a_while() -> None:
    world = OneGroup(topics(a1=1))
    subscribed(Client(world, "a"), "a.")
    assert world.timers["regex", GROUP] == world.now + 600_000
    world.timers = {key: at for key, at in world.timers.items() if key[0] == "regex"}
    world.wait(600_000)
    assert world.group is not None
    assert world.group.regexes["a."].at == world.now


def test_members_with_the_same_expression_share_its_topics() -> None:
    world = OneGroup(topics(a1=2, a2=2))
    clients = [Client(world, name) for name in "xyz"]
    for client in clients:
        subscribed(client, "a.")
    settle(clients)
    assert sorted(sum(map(len, client.owned.values())) for client in clients) == [1, 1, 2]
    for client in clients[1:]:
        world.beat(client.id, -1)
    assert world.group is not None
    assert "a." in world.group.regexes
    world.beat(clients[0].id, -1)
    assert world.group.regexes == {}


def test_an_expensive_expression_takes_many_turns_and_finishes() -> None:
    world = OneGroup(topics(**LONG_NAMES))
    client = Client(world, "a")
    subscribed(client, "(a?){200}a{200}[0-9]+")  # 600 steps for each of 200 letters
    assert world.group is not None
    assert world.group.regex_progress is not None  # some of the topics, and no more for now
    assert 0 < world.group.regex_progress.topics_checked < 400
    assert world.group.regexes == {}
    turns = 0
    while world.group.regex_progress is not None:
        world.wait(0)
        turns += 1
        assert turns < 100
    settle([client])
    assert len(client.owned) == 400


def test_a_restart_or_another_topic_begins_a_scan_anew() -> None:
    world = OneGroup(topics(**LONG_NAMES))
    client = Client(world, "a")
    subscribed(client, "(a?){200}a{200}[0-9]+")
    world.restart()
    assert world.group is not None
    assert world.group.regex_progress is None
    world.wait(0)
    assert len(world.group.regexes) == 1
    client = Client(world, "b")
    subscribed(client, "(a?){200}a{200}[0-8]+")
    world.topics = replace(world.topics, version=world.topics.version + 1)
    world.wait(0)
    assert world.group.regexes["(a?){200}a{200}[0-8]+"].version == world.topics.version


def test_new_topics_are_matched_with_a_clock_behind_the_last_coordinators() -> None:
    world = OneGroup(topics(a=1))
    client = Client(world, "a")
    subscribed(client, "a|b")
    world.now -= 3_600_000
    world.restart()
    world.become(a=1, b=1)
    world.wait(consumer_regex.REFRESH_MS)
    settle([client])
    assert client.owned == {"a": {0}, "b": {0}}
