"""Kafka's own command line tools on groups and transactions, and its formatters on the internal topics. Needs java."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support.brokers.disk import partition_directory, segments
from support.brokers.processes import AnyBroker, BrokerProcess, CreateTopic, StartBroker
from support.clients.confluent import read_values
from support.clients.raw import RawClient
from support.eventually import eventually
from support.kafka import jvm
from support.kafka.tools import groups, rows, tool

pytestmark = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")

SECONDS = 30


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{topic}"


def write(broker: AnyBroker, topic: str, name: str, commit: bool, *values: str) -> None:
    """One transaction."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{name}"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush(SECONDS)
    producer.commit_transaction(SECONDS) if commit else producer.abort_transaction(SECONDS)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_console_consumer_in_a_group(broker: AnyBroker, create_topic: CreateTopic, group: str, protocol: str) -> None:
    """It goes on where it was, and shows aborted records only to those who ask for them."""
    name = create_topic()
    write(broker, name, "a", True, "committed 0", "committed 1")
    write(broker, name, "b", False, "aborted")
    write(broker, name, "c", True, "committed 2")
    eventually(lambda: len(read_values(broker.bootstrap, name)) == 3, "all is committed")

    def consume(isolation: str, who: str, count: int) -> list[str]:
        wanted = ["--topic", name, "--group", who, "--from-beginning", "--max-messages", str(count)]
        settings = ["--command-property", f"group.protocol={protocol}", "--isolation-level", isolation]
        told = tool(broker, "consumer.ConsoleConsumer", *wanted, *settings, "--timeout-ms", "30000")
        return [line for line in told.splitlines() if re.match("committed|aborted", line)]

    assert consume("read_committed", group, 2) == ["committed 0", "committed 1"]
    assert consume("read_committed", group, 1) == ["committed 2"]
    assert consume("read_uncommitted", f"{group}-2", 4) == ["committed 0", "committed 1", "aborted", "committed 2"]


@pytest.fixture
def member(broker: AnyBroker, create_topic: CreateTopic, group: str) -> Iterator[Consumer]:
    """A live member that has read and committed 10 of 15 records in each of two partitions."""
    name = create_topic(partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(30):
        producer.produce(name, str(number), partition=number % 2)
    producer.flush(SECONDS)
    settings = {"group.id": group, "client.id": "the-client", "enable.auto.commit": False}
    quick = {"session.timeout.ms": 30_000, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings, **quick})
    consumer.subscribe([name])
    eventually(lambda: consumer.poll(0.1) and len(consumer.assignment()) == 2, "it has both partitions")
    consumer.commit(offsets=[TopicPartition(name, part, 10) for part in range(2)], asynchronous=False)
    yield consumer
    consumer.close()


def test_groups_are_looked_at(broker: AnyBroker, member: Consumer, group: str) -> None:
    offsets = rows(groups(broker, "--describe", "--group", group), "GROUP")
    assert {(row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in offsets} == {
        ("0", "10", "15", "5"),
        ("1", "10", "15", "5"),
    }
    assert {row["CLIENT-ID"] for row in offsets} == {"the-client"}
    (only,) = rows(groups(broker, "--describe", "--group", group, "--members", "--verbose"), "GROUP")
    assert (only["CLIENT-ID"], only["HOST"].strip("/"), only["#PARTITIONS"]) == ("the-client", "127.0.0.1", "2")
    state = groups(broker, "--describe", "--group", group, "--state")
    assert re.search(rf"{group}\s.*range\s+Stable\s+.*1", state), state
    assert re.search(rf"^{group}\s+Stable", groups(broker, "--list", "--state"), re.MULTILINE)
    assert re.search(rf"^{group}\s+Classic", groups(broker, "--list", "--type"), re.MULTILINE)


def test_offsets_are_reset_and_deleted(broker: AnyBroker, member: Consumer, group: str) -> None:
    name = member.assignment()[0].topic
    reset = ["--reset-offsets", "--group", group, "--topic", name]
    assert "current state is Stable" in groups(broker, *reset, "--to-earliest", "--execute", code=0)
    assert "could not be deleted" in groups(broker, "--delete", "--group", group)
    member.close()
    planned = rows(groups(broker, *reset, "--shift-by", "-3", "--dry-run"), "GROUP")
    assert {row["NEW-OFFSET"] for row in planned} == {"7"}
    assert {row["CURRENT-OFFSET"] for row in rows(groups(broker, "--describe", "--group", group), "GROUP")} == {"10"}
    groups(broker, *reset, "--to-earliest", "--execute")
    assert {row["CURRENT-OFFSET"] for row in rows(groups(broker, "--describe", "--group", group), "GROUP")} == {"0"}
    told = groups(broker, "--delete-offsets", "--group", group, "--topic", f"{name}:1")
    assert "Successful" in told
    (left,) = rows(groups(broker, "--describe", "--group", group), "GROUP")
    assert left["PARTITION"] == "0"
    assert "was successful" in groups(broker, "--delete", "--group", group)
    assert group not in groups(broker, "--list")


def test_transactions_are_looked_at_and_ended(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(name, "open", partition=0)
    producer.flush(SECONDS)
    listed = {
        row["TransactionalId"]: row for row in rows(tool(broker, "TransactionsCommand", "list"), "TransactionalId")
    }
    assert listed[name]["TransactionState"] == "Ongoing"
    described = tool(broker, "TransactionsCommand", "describe", "--transactional-id", name)
    assert "Ongoing" in described
    assert f"{name}-0" in described
    where = ["--topic", name, "--partition", "0"]
    (active,) = rows(tool(broker, "TransactionsCommand", "describe-producers", *where), "ProducerId")
    assert active["ProducerId"] == listed[name]["ProducerId"]
    assert active["CurrentTransactionStartOffset"] == "0"
    tool(broker, "TransactionsCommand", "forceTerminateTransaction", "--transactionalId", name)
    described = tool(broker, "TransactionsCommand", "describe", "--transactional-id", name)
    assert "Ongoing" not in described, described
    assert read_values(broker.bootstrap, name) == []


# -- formatters


def formatted(broker: AnyBroker, topic: str, formatter: str) -> list[Any]:
    """The records of an internal topic of one partition as Kafka prints them: JSON values without anything between."""
    with RawClient(broker.bootstrap) as client:
        count = client.list_offset(topic, -1).offset
    wanted = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(count)]
    told = tool(
        broker, "consumer.ConsoleConsumer", *wanted, "--formatter", f"org.apache.kafka.tools.consumer.{formatter}"
    )
    found, at, decoder = [], told.find("{"), json.JSONDecoder()
    while at >= 0:
        value, end = decoder.raw_decode(told, at)
        found.append(value)
        at = told.find("{", end)
    return found


def dumped(broker: BrokerProcess, topic: str, decoder: str) -> list[tuple[Any, Any]]:
    """Keys and values in the log of an internal topic, as Kafka's dump tool decodes them; also those not formatted."""
    (segment,) = segments(partition_directory(broker, topic))
    done = jvm.run("org.apache.kafka.tools.DumpLogSegments", decoder, "--files", str(segment))
    assert done.returncode == 0, done.stderr
    lines = re.findall(r" key: (.*) payload: (.*)$", done.stdout, re.MULTILINE)
    return [(json.loads(key), None if value.startswith("<") else json.loads(value)) for key, value in lines]


@pytest.fixture
def small(start_broker: StartBroker) -> BrokerProcess:
    """A broker whose internal topics have one partition each."""
    one = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}
    own = start_broker(**one, group_initial_rebalance_delay_ms=0)
    with RawClient(own.bootstrap) as client:
        client.create_topic("data")
    return own


def test_what_groups_write_is_readable(small: BrokerProcess) -> None:
    consumer = Consumer({"bootstrap.servers": small.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    consumer.subscribe(["data"])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "it has the partition")
    consumer.commit(offsets=[TopicPartition("data", 0, 5, "a note", 0)], asynchronous=False)
    offsets = formatted(small, "__consumer_offsets", "OffsetsMessageFormatter")
    assert [record["key"]["data"] for record in offsets] == [{"group": "readers", "topic": "data", "partition": 0}]
    value = offsets[0]["value"]
    assert value["version"] >= 3
    note = value["data"]["metadata"].strip("\0")  # librdkafka's last byte
    assert (value["data"]["offset"], note, value["data"]["leaderEpoch"]) == (5, "a note", 0)
    consumer.close()
    metadata = formatted(small, "__consumer_offsets", "GroupMetadataMessageFormatter")
    assert {record["key"]["data"]["group"] for record in metadata} == {"readers"}
    full = next(record["value"]["data"] for record in metadata if record["value"]["data"]["members"])
    assert (full["protocolType"], full["protocol"], full["members"][0]["clientHost"]) == (
        "consumer",
        "range",
        "/127.0.0.1",
    )
    assert full["leader"] == full["members"][0]["memberId"]
    last = metadata[-1]["value"]["data"]
    assert (last["members"], last["leader"], last["generation"]) == ([], None, full["generation"] + 1)


def test_what_groups_of_the_consumer_protocol_write_is_readable(small: BrokerProcess) -> None:
    settings = {"group.id": "modern", "group.protocol": "consumer", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": small.bootstrap, **settings})
    consumer.subscribe(["data"])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "it has the partition")
    written = dumped(small, "__consumer_offsets", "--offsets-decoder")
    kinds = {int(key["type"]) for key, _ in written}
    assert {3, 5, 6, 7, 8} <= kinds, "group, member, target metadata, target and current assignment"
    last = {int(key["type"]): value["data"] for key, value in written if value is not None}
    assert (last[5]["subscribedTopicNames"], last[5]["serverAssignor"]) == (["data"], None)
    assert [each["partitions"] for each in last[7]["topicPartitions"]] == [[0]]
    assert [each["partitions"] for each in last[8]["assignedPartitions"]] == [[0]]
    assert last[3]["epoch"] == last[6]["assignmentEpoch"] == last[8]["memberEpoch"]
    consumer.close()


def test_what_transactions_write_is_readable(small: BrokerProcess) -> None:
    write(small, "data", "t", True, "a")
    states = [(record["key"], record["value"]["data"]) for record in transaction_log(small)]
    assert {key["data"]["transactionalId"] for key, _ in states} == {"data-t"}
    names = {0: "empty", 1: "ongoing", 2: "prepare commit", 4: "complete commit"}
    assert [names[value["transactionStatus"]] for _, value in states] == list(names.values())
    assert len({value["producerId"] for _, value in states}) == 1
    ongoing = states[1][1]
    assert ongoing["transactionPartitions"] == [{"topic": "data", "partitionIds": [0]}]
    assert ongoing["transactionTimeoutMs"] == 60_000


def transaction_log(broker: BrokerProcess) -> list[Any]:
    def complete() -> list[Any] | None:
        found = formatted(broker, "__transaction_state", "TransactionLogMessageFormatter")
        return found if found[-1]["value"]["data"]["transactionStatus"] == 4 else None

    return eventually(complete, "the transaction is complete")
