"""Topics that name subjects: brokers read `_schemas` as registries write it. No registry runs here."""

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from support.brokers.processes import BrokerProcess
from support.clients.raw import RawClient
from support.log.batches import Written, batch

INVALID_RECORD = 87
USER = {"type": "record", "name": "User", "namespace": "shop", "fields": [{"name": "id", "type": "int"}]}
USER_2 = {**USER, "fields": [*USER["fields"], {"name": "name", "type": "string"}]}  # type: ignore[misc]
PROTO = 'syntax = "proto3"; package shop; message A { int32 id = 1; } message B { string name = 1; }'


@pytest.fixture(scope="module")
def broker_with_schemas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("followed"), {}).start()
    yield process
    process.close()


@pytest.fixture(scope="module")
def client(broker_with_schemas: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker_with_schemas.bootstrap) as connection:
        yield connection


class Registry:
    """Writes `_schemas` as Confluent's registry does."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._next_id = 1
        client.create_topic("_schemas", 1, {"cleanup.policy": "compact"})

    def register(self, subject: str, version: int, schema: object, kind: str = "AVRO", **more: Any) -> int:
        number = more.pop("id", self._next_id)
        self._next_id = max(self._next_id, number) + 1
        text = schema if isinstance(schema, str) else json.dumps(schema)
        value = {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False, **more}
        if kind != "AVRO":
            value["schemaType"] = kind
        self.write({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}, value)
        return number

    def delete(self, subject: str, version: int) -> None:
        key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
        self.write(key, {"subject": subject, "version": version})

    def write(self, key: object, value: object) -> None:
        data = batch(Written(json.dumps(value).encode(), json.dumps(key).encode()))
        assert self._client.produce("_schemas", data).error_code == 0


@pytest.fixture(scope="module")
def registry(client: RawClient) -> Registry:
    return Registry(client)


def avro(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def outcome(client: RawClient, topic: str, *values: bytes) -> dict[int, str] | int:
    """The offset, or what is wrong with which records."""
    answer = client.produce(topic, batch(*map(Written, values)))
    if answer.error_code == 0:
        return int(answer.base_offset)
    assert answer.error_code == INVALID_RECORD, (answer.error_code, answer.error_message)
    return {each.batch_index: each.batch_index_error_message for each in answer.record_errors} or {
        -1: answer.error_message
    }


def test_a_topic_may_name_a_subject_before_there_is_one(client: RawClient) -> None:
    client.create_topic("early", 1, {"moldau.value.schema": "early-value"})
    assert outcome(client, "early", b"x") == {-1: "Subject early-value has no schema; register one."}


def test_payloads_with_and_without_ids(client: RawClient, registry: Registry) -> None:
    client.create_topic("users", 1, {"moldau.value.schema": "users-value"})
    first = registry.register("users-value", 1, USER)
    assert outcome(client, "users", avro(USER, {"id": 5}), framed(first, avro(USER, {"id": 5}))) == 0
    wrong = outcome(client, "users", framed(first, b"\x80"), b"\xff" * 9)
    assert isinstance(wrong, dict)
    assert wrong.keys() == {0, 1}
    assert wrong[0].startswith("Value does not conform to subject users-value: ")
    # Known as soon as it is written: nobody waits for the broker to have read it.
    second = registry.register("users-value", 2, USER_2)
    assert outcome(client, "users", framed(second, avro(USER_2, {"id": 5, "name": "x"}))) == 2
    assert outcome(client, "users", framed(first, avro(USER, {"id": 5}))) == 3
    assert outcome(client, "users", avro(USER_2, {"id": 5, "name": "x"})) == 4
    assert isinstance(outcome(client, "users", avro(USER, {"id": 5})), dict)  # without an id the newest counts


def test_one_version_of_a_subject(client: RawClient, registry: Registry) -> None:
    first = registry.register("fixed", 1, {"type": "object", "required": ["a"]}, "JSON")
    client.create_topic("fixed", 1, {"moldau.value.schema": "fixed@1"})
    second = registry.register("fixed", 2, {"type": "object", "required": ["b"]}, "JSON")
    assert outcome(client, "fixed", b'{"a": 1}', framed(first, b'{"a": 1}')) == 0
    assert outcome(client, "fixed", framed(second, b'{"b": 1}')) == {
        0: f"Value has schema id {second}, which is not one of version 1 of subject fixed."
    }
    client.create_topic("future", 1, {"moldau.value.schema": "fixed@9"})
    assert outcome(client, "future", b"{}") == {-1: "Subject fixed has no version 9; register it, or change the topic."}


def test_protobuf_messages_by_their_place(client: RawClient, registry: Registry) -> None:
    number = registry.register("proto", 1, PROTO, "PROTOBUF")
    client.create_topic("proto", 1, {"moldau.value.schema": "proto"})
    as_first, as_second = framed(number, b"\0\x08\x05"), framed(number, b"\x02\x02\x0a\x01x")
    assert outcome(client, "proto", as_first, as_second, b"\x08\x05") == 0
    assert outcome(client, "proto", framed(number, b"\0\x0a\x01x"), as_first).keys() == {0}  # type: ignore[union-attr]
    assert outcome(client, "proto", framed(number, b"")) == {
        0: "Value does not say which message of its Protobuf schema it is."
    }


def test_references_are_resolved(client: RawClient, registry: Registry) -> None:
    registry.register("address", 1, {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "int"}]})
    person = {"type": "record", "name": "Person", "fields": [{"name": "home", "type": "Address"}]}
    told = [{"name": "Address", "subject": "address", "version": 1}]
    number = registry.register("person", 1, person, references=told)
    client.create_topic("people", 1, {"moldau.value.schema": "person"})
    assert outcome(client, "people", framed(number, b"\x02")) == 0
    told = [{"name": "Address", "subject": "address", "version": 7}]
    registry.register("homeless", 1, person, references=told)
    client.create_topic("homeless", 1, {"moldau.value.schema": "homeless"})
    missing = "it refers to version 7 of address, which is unknown"
    assert outcome(client, "homeless", b"\x02") == {-1: f"A schema of subject homeless cannot be used: {missing}."}


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "ids-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.User"),
        ("TopicRecordNameStrategy", "ids-shop.User"),
    ],
)
def test_ids_must_belong_to_the_subject(client: RawClient, registry: Registry, strategy: str, subject: str) -> None:
    topic = "ids" if strategy == "TopicNameStrategy" else f"ids-{strategy[-25:]}"
    subject = subject.replace("ids-", f"{topic}-")
    settings = {"confluent.value.schema.validation": "true", "confluent.value.subject.name.strategy": strategy}
    client.create_topic(topic, 1, settings)
    number = registry.register(subject, 1, USER)
    assert outcome(client, topic, framed(number, b"whatever")) == 0
    wrong = outcome(client, topic, framed(number, b""), framed(999, b""), b"plain")
    assert isinstance(wrong, dict)
    assert wrong[1].startswith("Value has schema id 999, which is not one of ")
    assert wrong[2].startswith("Value has no schema id; use a serializer with a schema of ")
    registry.delete(subject, 1)
    deadline = time.monotonic() + 30
    while isinstance(outcome(client, topic, framed(number, b"whatever")), int):
        assert time.monotonic() < deadline, "a deleted subject still counts"


def test_a_guid_in_a_header_stands_for_an_id(client: RawClient, registry: Registry) -> None:
    guid = "1b9c5e4a-0000-4000-8000-0123456789ab"
    registry.register("guids-value", 1, USER, guid=guid)
    client.create_topic("guids", 1, {"confluent.value.schema.validation": "true"})
    header = ("__value_schema_id", b"\x01" + bytes.fromhex(guid.replace("-", "")))
    assert client.produce("guids", batch(Written(b"x", headers=(header,)))).error_code == 0
    other = ("__value_schema_id", b"\x01" + bytes(16))
    assert client.produce("guids", batch(Written(b"x", headers=(other,)))).error_code == INVALID_RECORD


def test_records_that_nobody_can_read_stop_nobody(client: RawClient, registry: Registry) -> None:
    for key, value in ((b"no JSON", b"{}"), (b'{"keytype": "SCHEMA"}', b"[]"), (b"[]", b"[" * 90_000)):
        assert client.produce("_schemas", batch(Written(value, key))).error_code == 0
    registry.write({"keytype": "NOOP", "magic": 0}, None)
    registry.register("after", 1, {"type": "object"}, "JSON")
    client.create_topic("after", 1, {"moldau.value.schema": "after"})
    assert outcome(client, "after", b"{}") == 0
    assert isinstance(outcome(client, "after", b"[]"), dict)
