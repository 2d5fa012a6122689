"""franz-go in groups and with transactions, by way of the program in go/. Needs `go`."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.confluent import read_values, values_by_partition
from support.clients.go import WITHOUT_GO, client
from support.eventually import eventually
from support.groups.members import Group, Kind, join_and_leave, replace_dead_member

pytestmark = WITHOUT_GO
PROTOCOLS = {"classic": "cooperative-sticky", "consumer": "uniform"}


@pytest.fixture(params=PROTOCOLS)
def kind(request: pytest.FixtureRequest, go_program: Path, broker: AnyBroker) -> Kind:
    built = (str(go_program), "member", broker.bootstrap)
    return Kind("franz-go", request.param, PROTOCOLS[request.param], built)


def test_members_join_and_leave(new_group, feed, kind: Kind) -> None:
    """What one has committed, the next does not read again, and no partition has two owners."""
    join_and_leave(new_group(6), feed, kind, members=2)


def test_a_member_that_dies_is_replaced(new_group, feed, kind: Kind) -> None:
    replace_dead_member(new_group(4), feed, kind)


def test_kadm_looks_at_a_group_and_forgets_it(go_program: Path, broker: AnyBroker, new_group, feed, kind: Kind) -> None:
    group: Group = new_group(2)
    feed(group, 10)
    only = group.join(kind)
    group.settled(only)

    def told() -> dict[str, object]:
        return client(go_program, "look", broker, group.name, kind.protocol)

    expected = {"state": "Stable", "protocol type": "consumer", "assignor": kind.assignor}
    members = {only.name: 2}
    if kind.protocol == "classic":
        expected["lag"] = 0
    eventually(lambda: told() == {**expected, "members": members, "committed": [10, 10]}, "all is committed", told)
    only.leave()
    (topic,) = group.topics
    assert client(go_program, "forget", broker, group.name, topic) == {
        "left": {"0": 1},
        "first": "<nil>",
        "second": "GROUP_ID_NOT_FOUND",
    }


def test_transactions_end_in_both_ways(go_program: Path, broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic()
    assert client(go_program, "transact", broker, name) == {
        "listed": "Ongoing",
        "described": "Ongoing",
        "partitions": {"0": {}},
        "same producer": True,
        "begins at": 5,  # after three records and two markers
    }
    committed = [f"committed {number}" for number in range(3)]
    assert read_values(broker.bootstrap, name) == committed
    assert read_values(broker.bootstrap, name, "read_uncommitted") == [*committed[:2], "aborted", committed[2]]


def test_two_members_copy_every_record_once(
    go_program: Path, broker: AnyBroker, create_topic: CreateTopic, topic: str, short_waits: dict[str, int]
) -> None:
    source, target = create_topic(partitions=4), create_topic(partitions=4)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(2000):
        producer.produce(source, str(number), partition=number % 4)
    assert producer.flush(30) == 0
    told = client(go_program, "copy", broker, source, target, f"copy-{topic}", 2000)
    assert sum(told["copied"]) == 2000
    assert all(told["copied"]), "both took part"
    assert told["aborted"] > 0
    assert values_by_partition(broker.bootstrap, target, 4) == [
        [str(number) for number in range(part, 2000, 4)] for part in range(4)
    ]
