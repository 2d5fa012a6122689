"""Records of `_schemas` in Confluent's format."""

import json

import pytest

from moldau.schemas import Reference
from moldau.services.registry.core.records import (
    ClearSubjectKey,
    ConfigKey,
    Content,
    ContextKey,
    DeleteSubjectKey,
    Key,
    ModeKey,
    NoopKey,
    SchemaKey,
    StoredSchema,
    UnknownRecord,
    read_key,
    read_record,
    write_key,
    write_value,
)

KEYS: list[tuple[Key, dict[str, object]]] = [
    (SchemaKey("s", 3), {"keytype": "SCHEMA", "subject": "s", "version": 3, "magic": 1}),
    (ConfigKey("s"), {"keytype": "CONFIG", "subject": "s", "magic": 0}),
    (ConfigKey(None), {"keytype": "CONFIG", "magic": 0}),
    (ModeKey("s"), {"keytype": "MODE", "subject": "s", "magic": 0}),
    (DeleteSubjectKey("s"), {"keytype": "DELETE_SUBJECT", "subject": "s", "magic": 0}),
    (ClearSubjectKey("s"), {"keytype": "CLEAR_SUBJECT", "subject": "s", "magic": 0}),
    (ContextKey(".c"), {"keytype": "CONTEXT", "tenant": "default", "context": ".c", "magic": 0}),
    (NoopKey(), {"keytype": "NOOP", "magic": 0}),
]


@pytest.mark.parametrize(("key", "expected"), KEYS)
def test_keys(key: Key, expected: dict[str, object]) -> None:
    data = write_key(key)
    assert json.loads(data) == expected
    assert list(json.loads(data)) == list(expected), "compaction compares bytes: the order of fields is Confluent's"
    assert read_key(data) == key


def test_a_null_subject_is_the_top_level() -> None:
    assert read_key(b'{"keytype":"CONFIG","subject":null,"magic":0}') == ConfigKey(None)


def test_values_leave_out_what_is_default() -> None:
    content = Content("AVRO", '"string"')
    stored = StoredSchema("s", 1, 7, content, content.digest())
    value = json.loads(write_value(stored) or b"")
    assert set(value) == {"subject", "version", "id", "md5", "schema", "deleted"}
    assert read_record(write_key(stored.key), write_value(stored)).value == stored


def test_values_with_everything() -> None:
    content = Content(
        "JSON",
        "{}",
        (Reference("a", "b", 1),),
        {"properties": {"owner": "me"}},
        {"domainRules": [{"name": "r", "type": "CEL", "mode": "WRITE"}]},
    )
    stored = StoredSchema("s", 1, 7, content, content.digest(), deleted=True)
    value = json.loads(write_value(stored) or b"")
    assert value["schemaType"] == "JSON"
    assert value["references"] == [{"name": "a", "subject": "b", "version": 1}]
    assert read_record(write_key(stored.key), write_value(stored)).value == stored


def test_a_value_without_md5_is_of_an_older_registry() -> None:
    key = write_key(SchemaKey("s", 1))
    stored = read_record(key, b'{"subject":"s","version":1,"id":1,"schema":"\\"string\\"","deleted":false}').value
    assert isinstance(stored, StoredSchema)
    assert stored.md5 == Content("AVRO", '"string"').digest()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"{", b"{}"),
        (b"[]", b"{}"),
        (b'{"keytype":"ASSOC"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":7,"version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":true}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b"\xff"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"id":1}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"id":99999999999,"schema":""}'),
        (b"[" * 100_000, b"{}"),
    ],
)
def test_records_of_other_kinds_are_left_out(key: bytes, value: bytes) -> None:
    with pytest.raises(UnknownRecord):
        read_record(key, value)
