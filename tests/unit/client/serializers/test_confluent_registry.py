"""Confluent's serializers for a schema registry fit the port as they are, in both directions, and inside `Encrypted`.

The registry is the one in memory that Confluent's package brings (`mock://`).
"""

import json
from typing import Any

import pytest

from moldau.client.serializers.choose import deserializer_for, serializer_for
from moldau.client.serializers.encryption import Encrypted
from moldau.client.serializers.keys import Keys
from moldau.client.serializers.port import SerializerContext

REASON = "needs Confluent's clients of a registry: pip install 'confluent-kafka[avro,json]'"
registry = pytest.importorskip("confluent_kafka.schema_registry", reason=REASON)
avro = pytest.importorskip("confluent_kafka.schema_registry.avro", reason=REASON)
json_schema = pytest.importorskip("confluent_kafka.schema_registry.json_schema", reason=REASON)

FIELDS = [{"name": "id", "type": "string"}, {"name": "amount", "type": "long"}]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
JSON = json.dumps({"title": "Order", "type": "object", "properties": {"amount": {"type": "integer"}}})
ORDER = {"id": "a", "amount": 5}


def pair(name: str) -> tuple[Any, Any]:
    client = registry.SchemaRegistryClient.new_client({"url": "mock://registry"})
    if name == "avro":
        return avro.AvroSerializer(client, AVRO), avro.AvroDeserializer(client)
    return json_schema.JSONSerializer(JSON, client), json_schema.JSONDeserializer(JSON, schema_registry_client=client)


@pytest.mark.parametrize("name", ["avro", "json"])
def test_what_they_write_they_read(name: str) -> None:
    write, read = pair(name)
    context = SerializerContext("orders", "value", [], b"k")
    raw = serializer_for(write)(ORDER, context)
    assert raw is not None
    assert raw[0] == 0, "Confluent's first byte"
    assert deserializer_for(read)(raw, context) == ORDER
    assert deserializer_for(read)(None, context) is None


def test_they_fit_inside_encryption() -> None:
    write, read = pair("avro")
    keys = Keys({"k1": bytes(32)}, current="k1")
    context = SerializerContext("orders", "value", [], b"k")
    raw = Encrypted(write, keys=keys).serialize(ORDER, context)
    assert raw is not None
    assert Encrypted(read, keys=keys).deserialize(raw, context) == ORDER


def test_what_does_not_fit_the_schema_is_refused() -> None:
    write, _ = pair("avro")
    with pytest.raises(Exception, match="amount"):
        serializer_for(write)({"id": "a", "amount": "much"}, SerializerContext("orders", "value"))
