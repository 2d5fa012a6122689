"""The topic __audit as an operator meets it: librdkafka's clients with users and ACLs, and what it says of them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from moldau.security.sasl_client import Sasl
from moldau.testing import Broker
from support.clients.raw import RawClient
from support.clients.sasl import PLAIN_USERS, SECONDS, as_admin, client_settings, log_in, sasl_broker, set_password
from support.eventually import eventually

Record = dict[str, Any]
AUDIT = "__audit"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("audit")
    settings: dict[str, object] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "moldau.audit.enable": "true",
        "connection.failed.authentication.delay.ms": "0",
    }
    with sasl_broker(folder / "data", **settings) as started:
        yield started


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return as_admin(broker.bootstrap_servers, **{"client.id": "the-admin"})


def settings_of(broker: Broker, user: str) -> dict[str, Any]:
    return client_settings(broker.bootstrap_servers, "PLAIN", user, PLAIN_USERS[user])


@pytest.fixture
def reader(broker: Broker, admin: AdminClient) -> Iterator[Callable[[], list[Record]]]:
    """Everything that the topic has, read as an administrator."""
    consumer = Consumer({**settings_of(broker, "admin"), "group.id": "auditors", "enable.auto.commit": False})
    found: list[Record] = []

    def read() -> list[Record]:
        if AUDIT not in admin.list_topics(timeout=SECONDS).topics:
            return found
        consumer.assign([TopicPartition(AUDIT, 0, len(found))])
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(AUDIT, 0), timeout=SECONDS)
        except KafkaException as missing:  # just created, and its leader does not know it yet
            if missing.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return found
        while len(found) < end:
            message = consumer.poll(SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(json.loads(message.value()))
        return found

    yield read
    consumer.close()


def one(read: Callable[[], list[Record]], **wanted: object) -> Record:
    """The only record with these fields."""

    def matching() -> list[Record]:
        return [each for each in read() if wanted.items() <= each.items()]

    found = eventually(matching, f"a record with {wanted}", told=read)
    assert len(found) == 1, found
    return found[0]


def test_an_action_has_one_record(broker: Broker, admin: AdminClient, reader: Callable[[], list[Record]]) -> None:
    admin.create_topics([NewTopic("made", 1, 1)])["made"].result(SECONDS)
    record = one(reader, api="CreateTopics", principal="User:admin")
    assert record["event"] == "action"
    assert record["outcome"] == "ok"
    assert record["resources"] == [{"type": "Topic", "name": "made", "outcome": "ok"}]
    assert (record["host"], record["listener"], record["client_id"]) == ("127.0.0.1", "SASL_PLAINTEXT", "the-admin")
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("made", 1, 1)])["made"].result(SECONDS)
    one(reader, api="CreateTopics", outcome="TOPIC_ALREADY_EXISTS")


def test_a_denied_action_is_one_record_with_the_error(broker: Broker, reader: Callable[[], list[Record]]) -> None:
    alice = AdminClient(settings_of(broker, "alice"))
    with pytest.raises(KafkaException):
        alice.create_topics([NewTopic("not-hers", 1, 1)])["not-hers"].result(SECONDS)
    record = one(reader, api="CreateTopics", principal="User:alice")
    assert (record["event"], record["outcome"]) == ("action", "TOPIC_AUTHORIZATION_FAILED")
    assert record["resources"][0]["name"] == "not-hers"


def test_users_settings_and_acls_are_named_without_secrets(
    admin: AdminClient, reader: Callable[[], list[Record]]
) -> None:
    set_password(admin, "carol", "the password of carol")
    record = one(reader, api="AlterUserScramCredentials")
    assert record["resources"] == [
        {"type": "User", "name": "carol", "outcome": "ok", "detail": "set SCRAM-SHA-256"},
    ]
    admin.create_topics([NewTopic("configured", 1, 1)])["configured"].result(SECONDS)
    entry = ConfigEntry("retention.ms", "123456789", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "configured", incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(SECONDS)
    assert one(reader, api="IncrementalAlterConfigs")["resources"] == [
        {"type": "Topic", "name": "configured", "outcome": "ok", "detail": "retention.ms"}
    ]
    rule = AclBinding(
        ResourceType.TOPIC,
        "configured",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    (made,) = admin.create_acls([rule]).values()
    made.result(SECONDS)
    detail = one(reader, api="CreateAcls")["resources"][0]["detail"]
    assert detail == "Literal, Allow User:alice Read from *"
    text = json.dumps(reader())
    assert "password of carol" not in text
    assert "123456789" not in text


def test_a_denial_is_recorded_as_often_as_it_is_logged(
    broker: Broker, admin: AdminClient, reader: Callable[[], list[Record]]
) -> None:
    admin.create_topics([NewTopic("secret", 1, 1)])["secret"].result(SECONDS)
    alice = AdminClient({**settings_of(broker, "alice"), "client.id": "writer"})
    for _ in range(5):
        error = alice.list_topics("secret", timeout=SECONDS).topics["secret"].error
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    record = one(reader, event="denial", api="Metadata", client_id="writer")
    assert (record["principal"], record["operation"], record["outcome"]) == ("User:alice", "DESCRIBE", "denied")
    assert record["resources"] == [{"type": "Topic", "name": "secret"}]


def test_failed_logins(broker: Broker, reader: Callable[[], list[Record]]) -> None:
    for user in ("alice", "a password typed as a name"):
        with RawClient(broker.bootstrap_servers) as client:
            assert log_in(client, Sasl("PLAIN", user, "wrong")).error
    known = one(reader, event="failed-login", principal="User:alice")
    assert (known["mechanism"], known["outcome"], known["host"]) == ("PLAIN", "invalid credentials", "127.0.0.1")
    one(reader, event="failed-login", principal=None)
    assert "typed as a name" not in json.dumps(reader())


def test_clients_cannot_write_to_it_and_need_read_to_read_it(
    broker: Broker, admin: AdminClient, reader: Callable[[], list[Record]]
) -> None:
    eventually(reader, "that the topic is there")
    errors: list[KafkaError | None] = []
    producer = Producer({**settings_of(broker, "admin"), "message.timeout.ms": 4000})
    producer.produce(AUDIT, b"a lie", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(SECONDS)
    (error,) = errors
    assert error is not None
    assert error.code() == KafkaError.TOPIC_EXCEPTION
    described = admin.list_topics(AUDIT, timeout=SECONDS).topics[AUDIT]
    assert list(described.partitions) == [0]
    alice = AdminClient(settings_of(broker, "alice"))
    hidden = alice.list_topics(AUDIT, timeout=SECONDS).topics[AUDIT].error
    assert hidden is not None
    assert hidden.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_it_is_off_by_default(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as plain:
        client = AdminClient({"bootstrap.servers": plain.bootstrap_servers, "log_level": 0})
        client.create_topics([NewTopic("made", 1, 1)])["made"].result(SECONDS)
        assert AUDIT not in client.list_topics(timeout=SECONDS).topics


def test_what_was_done_last_is_written_at_the_stop_and_found_after_the_next_start(tmp_path: Path) -> None:
    settings = {"moldau.audit.enable": "true"}
    with Broker(tmp_path / "data", **settings) as first:
        client = AdminClient({"bootstrap.servers": first.bootstrap_servers, "log_level": 0})
        names = [f"topic-{number}" for number in range(20)]
        for done in client.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            done.result(SECONDS)
        client.delete_topics(names)["topic-0"].result(SECONDS)
    with Broker(tmp_path / "data", **settings) as second:
        consumer = Consumer(
            {"bootstrap.servers": second.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([AUDIT])
        found = [json.loads(message.value())["api"] for message in consumer.consume(2, timeout=SECONDS)]
        consumer.close()
    assert found == ["CreateTopics", "DeleteTopics"]
