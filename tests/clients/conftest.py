"""Fixtures for tests of groups and transactions with real clients."""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients import confluent
from support.clients.cli import Run, runner
from support.clients.go import build
from support.groups.members import Feed, Group

NewGroup = Callable[..., Group]
SMALL_DISK_BYTES = 12 << 20


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """confluent-kafka's client for administration, on the shared broker."""
    return confluent.admin(bootstrap)


@pytest.fixture
def moldau(bootstrap: str) -> Run:
    """The command line, on the shared broker: `moldau("topic", "list")`."""
    return runner(bootstrap)


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
    fed = Counter[str]()

    def more(group: Group, each: int) -> list[str]:
        values = []
        first = fed[group.name]
        for name, partitions in group.topics.items():
            for part in range(partitions):
                added = [f"{name}/{part}/{number}" for number in range(first, first + each)]
                confluent.write(group.bootstrap, name, [{"value": value, "partition": part} for value in added])
                values += added
        fed[group.name] += each
        return values

    return more


@pytest.fixture(scope="session")
def go_program() -> Path:
    """The franz-go client."""
    return build()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system, for tests of full disks."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs", str(path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root: sudo make test")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)
