"""Schemas in a cluster: read from wherever `_schemas` is, enforced by every leader, dead letters through changes."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import NewTopic

from moldau.testing import Cluster
from support.clients import confluent

TOPIC, DEAD, SCHEMAS = "orders", "orders.dead", "_schemas"
GOOD, BAD = '{"id": %d}', '{"bad": %d}'
COUNT = 400


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as made:
        yield made


def create(cluster: Cluster, topic: str, partitions: int, **configs: str) -> None:
    admin = confluent.admin(cluster.bootstrap_servers)
    dotted = {name.replace("_", "."): value for name, value in configs.items()}
    for future in admin.create_topics([NewTopic(topic, partitions, 3, config=dotted)]).values():
        future.result(60)


def register(cluster: Cluster, subject: str, version: int, schema: object) -> None:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": version, "schema": json.dumps(schema), "deleted": False}
    record = {"key": json.dumps(key), "value": json.dumps(value | {"schemaType": "JSON"})}
    confluent.write(cluster.bootstrap_servers, SCHEMAS, [record], acks="all")


def test_every_leader_knows_the_schemas_and_keeps_them_without_theirs(cluster: Cluster) -> None:
    create(cluster, SCHEMAS, 1, cleanup_policy="compact")
    create(cluster, "subjects", 3, moldau_value_schema="orders-value")
    register(cluster, "orders-value", 1, {"type": "object", "required": ["id"]})
    failures = send(cluster, "subjects", ['{"id": 1}', "{}"] * 3, partitions=3)
    assert failures == ["INVALID_RECORD"] * 3
    # What the leader of _schemas was, and what it is now, makes no difference.
    leader = cluster.leader_of(SCHEMAS)
    cluster.kill(leader)
    try:
        register(cluster, "orders-value", 2, {"type": "object", "required": ["total"]})
        assert send(cluster, "subjects", ['{"total": 2}'] * 6, partitions=3) == []  # not refused for being new
        assert send(cluster, "subjects", ['{"id": 1}'] * 6, partitions=3) == ["INVALID_RECORD"] * 6
    finally:
        cluster.start(leader)


def send(cluster: Cluster, topic: str, values: list[str], partitions: int) -> list[str]:
    """Sends each value alone, pairs of them to one partition; the errors."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    failed: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error.name())

    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number // 2 % partitions, on_delivery=delivered)
        assert producer.flush(60) == 0
    return failed


def test_dead_letters_and_the_rest_survive_a_lost_leader(cluster: Cluster) -> None:
    """An idempotent producer: every good record once, in order; every bad one set aside, none of them accepted."""
    schema = json.dumps({"type": "object", "required": ["id"]})
    create(
        cluster, TOPIC, 1, moldau_value_schema=schema, moldau_value_schema_mode="dead-letter", min_insync_replicas="2"
    )
    settings = {"enable.idempotence": True, "linger.ms": 5, "batch.num.messages": 10, "message.timeout.ms": 120_000}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    offsets: dict[int, int] = {}

    def delivered(number: int, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offsets[number] = message.offset() or 0

    for number in range(COUNT):
        value = (BAD if number % 7 == 0 else GOOD) % number
        producer.produce(TOPIC, value, on_delivery=lambda e, m, number=number: delivered(number, e, m))
        producer.poll(0.005)
        if number == COUNT // 2:
            victim = cluster.leader_of(TOPIC)
            cluster.kill(victim)
    assert producer.flush(120) == 0
    cluster.start(victim)
    accepted = confluent.read(cluster.bootstrap_servers, TOPIC)
    good = [number for number in range(COUNT) if number % 7]
    assert [json.loads(each.value or b"")["id"] for each in accepted] == good
    assert [each.offset for each in accepted] == [offsets[number] for number in good]
    letters = confluent.read(cluster.bootstrap_servers, DEAD)
    bad = {json.loads(letter.value or b"")["bad"] for letter in letters}
    assert bad == {number for number in range(COUNT) if not number % 7}
    copies = {dict(letter.headers)["moldau.producer"] for letter in letters}
    assert len(copies) == len(bad), "the header tells copies of one record"
    described = confluent.admin(cluster.bootstrap_servers).list_topics(DEAD, timeout=30).topics[DEAD]
    assert len(described.partitions[0].replicas) == 3
