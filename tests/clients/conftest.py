"""Fixtures for tests of groups and transactions with real clients."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.go import build
from support.groups.members import Group

NewGroup = Callable[..., Group]
Feed = Callable[..., list[str]]


@pytest.fixture
def new_group(
    broker: AnyBroker, create_topic: CreateTopic, topic: str, short_waits: dict[str, int]
) -> Iterator[NewGroup]:
    """`new_group(6, 3)`: a group on two new topics, of six and of three partitions; its members end with the test."""
    made: list[Group] = []

    def make(*partitions: int) -> Group:
        topics = {create_topic(partitions=count): count for count in partitions or (6,)}
        made.append(Group(broker.bootstrap, f"group-{topic}-{len(made)}", topics))
        return made[-1]

    yield make
    for group in made:
        group.close()


@pytest.fixture
def feed(broker: AnyBroker) -> Feed:
    """`feed(group, 100)`: so many more records to each partition of the group's topics; their values."""
    fed = 0

    def more(group: Group, each: int) -> list[str]:
        nonlocal fed
        producer = Producer({"bootstrap.servers": group.bootstrap, "linger.ms": 5})
        failed: list[object] = []
        values = []
        for name, part in sorted(group.places):
            for number in range(fed, fed + each):
                values.append(f"{name}/{part}/{number}")
                producer.produce(
                    name, values[-1], partition=part, on_delivery=lambda error, _: error and failed.append(error)
                )
        assert producer.flush(60) == 0
        assert not failed, failed[:3]
        fed += each
        return values

    return more


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The franz-go client."""
    return build(tmp_path_factory.mktemp("go"))
