"""Kafka's own command line tools where they change things: every way to reset a group's offsets, groups of the consumer
protocol, and transactions that hang. Looking at groups and transactions is in test_java_groups. Needs java."""

import csv
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients.confluent import read_values
from support.clients.raw import RawClient
from support.eventually import eventually
from support.kafka import jvm
from support.kafka.tools import groups, rows, tool
from support.log import batches

pytestmark = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")

SECONDS = 30
HOUR_MS = 3_600_000
RECORDS = 10  # in each of two partitions, one an hour: the last is an hour old


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{topic}"


@pytest.fixture
def now() -> int:
    return int(time.time() * 1000)


@pytest.fixture
def hourly(broker: AnyBroker, create_topic: CreateTopic, group: str, now: int) -> str:
    """A topic with a record of each of the last hours, of which an empty group has committed half."""
    name = create_topic(partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        for part in range(2):
            producer.produce(name, str(number), partition=part, timestamp=now - (RECORDS - number) * HOUR_MS)
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(name, part, 5) for part in range(2)], asynchronous=False)
    consumer.close()
    return name


def planned(printed: str) -> dict[int, int]:
    """The new offset of each partition, from the lines that the tool exports."""
    return {int(line[-2]): int(line[-1]) for line in csv.reader(printed.splitlines()) if len(line) >= 3}


WAYS: dict[str, tuple[Callable[[int], list[str]], int]] = {
    "to an offset": (lambda _: ["--to-offset", "7"], 7),
    "to an offset beyond the end": (lambda _: ["--to-offset", "99"], 10),
    "to the earliest": (lambda _: ["--to-earliest"], 0),
    "to the latest": (lambda _: ["--to-latest"], 10),
    "to the current": (lambda _: ["--to-current"], 5),
    "back": (lambda _: ["--shift-by", "-2"], 3),
    "forward": (lambda _: ["--shift-by", "3"], 8),
    "to a time": (lambda now: ["--to-datetime", moment(now - 3 * HOUR_MS - HOUR_MS // 2)], 7),
    "to a time after all": (lambda now: ["--to-datetime", moment(now)], 10),
    "by a duration": (lambda _: ["--by-duration", "PT4H30M"], 6),
}


def moment(timestamp: int) -> str:
    return datetime.fromtimestamp(timestamp / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000+00:00")


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_reset(broker: AnyBroker, hourly: str, group: str, now: int, way: str) -> None:
    wanted, offset = WAYS[way]
    line = ["--reset-offsets", "--group", group, "--topic", hourly, *wanted(now), "--execute", "--export"]
    assert planned(groups(broker, *line)) == {0: offset, 1: offset}
    assert committed(broker, group, hourly) == [offset, offset]


def committed(broker: AnyBroker, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, part) for part in range(2)], SECONDS)
    consumer.close()
    return [each.offset for each in found]


def test_a_plan_goes_through_a_file(broker: AnyBroker, hourly: str, group: str, tmp_path: Path) -> None:
    reset = ["--reset-offsets", "--group", group]
    plan = tmp_path / "plan.csv"
    plan.write_text(groups(broker, *reset, "--all-topics", "--shift-by", "-1", "--dry-run", "--export"))
    assert committed(broker, group, hourly) == [5, 5]
    plan.write_text(f"{hourly},0,{planned(plan.read_text())[0]}\n{hourly},1,9\n")
    groups(broker, *reset, "--from-file", str(plan), "--execute")
    assert committed(broker, group, hourly) == [4, 9]
    groups(broker, *reset, "--topic", f"{hourly}:1", "--to-earliest", "--execute")
    assert committed(broker, group, hourly) == [4, 0]


def test_a_group_of_the_consumer_protocol(broker: AnyBroker, hourly: str, group: str) -> None:
    """The tool shows epochs and assignor, and changes nothing while a member is active."""
    settings = {"group.id": group, "group.protocol": "consumer", "client.id": "modern", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.subscribe([hourly])
    eventually(lambda: consumer.poll(0.1) and len(consumer.assignment()) == 2, "it has both partitions")
    described = ["--describe", "--group", group]
    (state,) = rows(groups(broker, *described, "--state", "--verbose"), "GROUP")
    assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == ("uniform", "Stable", "1")
    assert state["GROUP-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"]
    (member,) = rows(groups(broker, *described, "--members", "--verbose"), "GROUP")
    assert (member["CLIENT-ID"], member["#PARTITIONS"]) == ("modern", "2")
    assert member["CURRENT-EPOCH"] == member["TARGET-EPOCH"] == state["GROUP-EPOCH"]
    assert {row["LAG"] for row in rows(groups(broker, *described, "--offsets"), "GROUP")} == {"5"}
    listed = groups(broker, "--list", "--type", "consumer", "--state", "stable")
    assert group in listed.split()
    told = groups(broker, "--reset-offsets", "--group", group, "--topic", hourly, "--to-earliest", "--execute")
    assert "current state is Stable" in told
    refused = groups(broker, "--delete-offsets", "--group", group, "--topic", hourly)
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in refused or "actively subscribed" in refused, refused
    consumer.close()
    assert "was successful" in groups(broker, "--delete", "--group", group)
    assert group not in groups(broker, "--list").split()


def test_a_hanging_transaction_is_found_and_aborted(start_broker: StartBroker, now: int) -> None:
    """A producer of old wrote to a partition that it had not told its coordinator of."""
    broker = start_broker(transaction_partition_verification_enable="false")
    transactional_id = "lost"
    with RawClient(broker.bootstrap) as raw:
        raw.create_topic("orders")
        Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id}).init_transactions(30)
        (known,) = rows(tool(broker, "TransactionsCommand", "list"), "TransactionalId")
        pending = batches.batch(
            producer=batches.Producer(int(known["ProducerId"]), 0),
            sequence=0,
            attributes=batches.TRANSACTIONAL,
            timestamp=now - HOUR_MS,
        )
        request = raw.produce_request("orders", pending)
        request.transactional_id = transactional_id
        assert raw.ask(request, 11).responses[0].partition_responses[0].error_code == 0
        raw.produce("orders", batches.batch())
    assert read_values(broker.bootstrap, "orders") == []
    find = ["find-hanging", "--topic", "orders"]
    assert rows(tool(broker, "TransactionsCommand", *find, "--max-transaction-timeout", "120"), "Topic") == []
    (found,) = rows(tool(broker, "TransactionsCommand", *find), "Topic")
    assert (found["Partition"], found["ProducerId"], found["StartOffset"]) == ("0", known["ProducerId"], "0")
    tool(broker, "TransactionsCommand", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "0")
    assert rows(tool(broker, "TransactionsCommand", *find), "Topic") == []
    assert read_values(broker.bootstrap, "orders") == ["value"]
