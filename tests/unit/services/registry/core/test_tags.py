"""Where tags go in Avro and JSON Schema."""

import json

import pytest

from moldau.services.registry.core.errors import RegistryError
from moldau.services.registry.core.tags import TAGS, avro_entities, json_entities, with_tags

NESTED = {
    "type": "record",
    "name": "a.Outer",
    "fields": [
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}},
        {
            "name": "many",
            "type": {"type": "array", "items": ["null", {"type": "record", "name": "b.Item", "fields": []}]},
        },
    ],
}


def test_entities_of_avro() -> None:
    found = [path for path, _ in avro_entities(NESTED)]  # type: ignore[arg-type]
    assert found == ["a.Outer", "a.Outer.inner", "a.Inner", "a.Inner.x", "a.Outer.many", "b.Item"]


def test_entities_of_json_schema() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"properties": {"c": {}}}}}
    found = {path for path, _ in json_entities(schema, "object")}  # type: ignore[arg-type]
    assert found == {"object", "object.a", "object.b", "object.b.object", "object.b.object.c"}


def test_tags_are_kept_once_and_in_order() -> None:
    text = json.dumps({"type": "record", "name": "R", "fields": [], TAGS: ["A"]})
    added = with_tags("AVRO", text, [{"schemaEntity": {"entityPath": "R"}, "tags": ["B", "A"]}], None)
    assert json.loads(added)[TAGS] == ["B", "A"]
    removed = with_tags("AVRO", added, None, [{"schemaEntity": {"entityPath": "R"}, "tags": ["A", "B"]}])
    assert TAGS not in json.loads(removed)


def test_protobuf_is_refused() -> None:
    with pytest.raises(RegistryError, match="not supported"):
        with_tags("PROTOBUF", "", [{"schemaEntity": {"entityPath": "R"}, "tags": []}], None)
