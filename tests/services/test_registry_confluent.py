"""The registry with confluent-kafka's client and serializers."""

import json

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.serde import RuleContext, RuleExecutor
from confluent_kafka.serialization import MessageField, SerializationContext
from google.rpc.status_pb2 import Status

from support.services.registry import RegistryProcess, record


@pytest.fixture
def client(registry: RegistryProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def avro(name: str, /, **fields: str) -> Schema:
    return Schema(json.dumps(record(name, **fields)), "AVRO")


def test_register_and_look_up(client: SchemaRegistryClient, subject: str) -> None:
    schema = avro("Order", id="long")
    schema_id = client.register_schema(subject, schema)
    assert client.register_schema(subject, schema) == schema_id
    found = client.lookup_schema(subject, schema)
    assert (found.schema_id, found.version, found.subject) == (schema_id, 1, subject)
    assert json.loads(client.get_schema(schema_id).schema_str) == record("Order", id="long")
    assert client.get_schema_by_guid(found.guid).schema_str == client.get_schema(schema_id).schema_str
    assert client.get_latest_version(subject).schema_id == schema_id
    assert client.get_versions(subject) == [1]
    assert subject in client.get_subjects()


def test_compatibility_and_config(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, avro("Order", id="long"))
    assert not client.test_compatibility(subject, avro("Order", id="string"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, avro("Order", id="string"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 40901)
    client.set_compatibility(subject, ConfigCompatibilityLevel.NONE)
    assert client.get_compatibility(subject) == "NONE"
    assert client.register_schema(subject, avro("Order", id="string"))
    assert client.get_versions(subject) == [1, 2]
    client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.FULL, compatibility_group="major"))
    found = client.get_config(subject)
    assert (found.compatibility_level, found.compatibility_group) == ("FULL", "major")


def test_deleting(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, avro("Order", id="long"))
    assert client.delete_subject(subject) == [1]
    with pytest.raises(SchemaRegistryError) as gone:
        client.get_latest_version(subject)
    assert gone.value.error_code == 40401
    assert subject in client.get_subjects(deleted=True)
    assert client.delete_subject(subject, permanent=True) == [1]
    assert subject not in client.get_subjects(deleted=True)


def test_avro_values_with_a_reference(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(f"{subject}-address", avro("Address", city="string"))
    text = {
        "type": "record",
        "name": "Customer",
        "fields": [{"name": "home", "type": "Address"}, {"name": "name", "type": "string"}],
    }
    schema = Schema(json.dumps(text), "AVRO", [SchemaReference("Address", f"{subject}-address", 1)])
    context = SerializationContext(subject.removesuffix("-value"), MessageField.VALUE)
    value = {"home": {"city": "Praha"}, "name": "Bedřich"}
    data = AvroSerializer(client, schema)(value, context)
    assert AvroDeserializer(client)(data, context) == value
    (referrer,) = client.get_latest_version(subject).schema.references
    assert referrer.subject == f"{subject}-address"


def test_json_values(client: SchemaRegistryClient, subject: str) -> None:
    text = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})
    context = SerializationContext(subject.removesuffix("-value"), MessageField.VALUE)
    data = JSONSerializer(text, client)({"id": 7}, context)
    assert JSONDeserializer(text, schema_registry_client=client)(data, context) == {"id": 7}
    assert client.get_latest_version(subject).schema.schema_type == "JSON"


def test_protobuf_values_with_a_reference(client: SchemaRegistryClient, subject: str) -> None:
    context = SerializationContext(subject.removesuffix("-value"), MessageField.VALUE)
    options = {"use.deprecated.format": False, "skip.known.types": False}
    data = ProtobufSerializer(Status, client, options)(Status(code=7, message="denied"), context)
    found = ProtobufDeserializer(Status, {"use.deprecated.format": False}, client)(data, context)
    assert (found.code, found.message) == (7, "denied")
    schema = client.get_latest_version(subject).schema
    assert schema.schema_type == "PROTOBUF"
    assert [each.name for each in schema.references] == ["google/protobuf/any.proto"]


def test_the_rules_of_a_schema_run_in_the_serializer(client: SchemaRegistryClient, subject: str) -> None:
    rule = Rule("upper", "", RuleKind.TRANSFORM, RuleMode.WRITE, "UPPER", None, None, None, None, None, False)
    text = json.dumps(record("Order", name="string"))
    client.register_schema(subject, Schema(text, "AVRO", rule_set=RuleSet(None, [rule])))
    context = SerializationContext(subject.removesuffix("-value"), MessageField.VALUE)
    options = {"auto.register.schemas": False, "use.latest.version": True}
    rules = RuleRegistry()
    rules.register_executor(Upper())
    serializer = AvroSerializer(client, conf=options, rule_registry=rules)
    assert AvroDeserializer(client)(serializer({"name": "vltava"}, context), context) == {"name": "VLTAVA"}


class Upper(RuleExecutor):
    def type(self) -> str:
        return "UPPER"

    def transform(self, ctx: RuleContext, message: dict[str, str]) -> dict[str, str]:
        return {name: value.upper() for name, value in message.items()}


def test_metadata_and_rules_are_stored(client: SchemaRegistryClient, subject: str) -> None:
    rule = Rule(
        "positive", "", RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None, "message.id > 0", None, None, False
    )
    schema = Schema(
        json.dumps(record("Order", id="long")),
        "AVRO",
        metadata=Metadata(None, MetadataProperties({"owner": "orders"}), None),
        rule_set=RuleSet(None, [rule]),
    )
    client.register_schema(subject, schema)
    found = client.get_latest_with_metadata(subject, {"owner": "orders"})
    assert found.schema.metadata.properties.properties == {"owner": "orders"}
    assert [each.expr for each in found.schema.rule_set.domain_rules] == ["message.id > 0"]
