"""Checkers of payloads: what fits, what does not and why, and hostile bytes that must end in a reason."""

import io
import json
import struct

import fastavro
import pytest

from moldau.schemas import InvalidSchema, PayloadChecker, SchemaType, checker, parse
from moldau.schemas.avro.checking import MAX_EMPTY_ITEMS, MAX_PAYLOAD_DEPTH
from moldau.schemas.schema import MAX_REASON

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "email", "type": ["null", "string"]},
        {"name": "amount", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "next", "type": ["null", "Order"]},
    ],
}
VALUE = {
    "id": 123456,
    "customer": "Božena",
    "email": "b@example.com",
    "amount": 12.5,
    "paid": True,
    "tags": ["a", "b"],
    "counts": {"x": 1, "y": -70000},
    "state": "DONE",
    "hash": b"abcd",
    "next": None,
}


def avro(schema: object) -> PayloadChecker:
    return checker(parse(SchemaType.AVRO, json.dumps(schema)))


def written(schema: object, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_avro_as_fastavro_writes_it() -> None:
    values = [written(ORDER, VALUE), written(ORDER, {**VALUE, "next": VALUE, "email": None})]
    assert avro(ORDER).check(values) == {}


def test_only_the_bad_values_are_named_by_their_index() -> None:
    good = written(ORDER, VALUE)
    found = avro(ORDER).check([good[:-1], good, good + b"\0", good, b""])
    assert found == {
        0: "next: the value ends too early",
        2: "1 bytes follow the value",
        4: "id: the value ends too early",
    }


def test_every_cut_of_a_value_is_found() -> None:
    good = written(ORDER, {**VALUE, "next": VALUE})
    assert len(avro(ORDER).check([good[:end] for end in range(len(good))])) == len(good)


RECORDS = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}]}


@pytest.mark.parametrize(
    ("schema", "value", "fault"),
    [
        ("boolean", b"\x02", "a boolean is 0 or 1, not 2"),
        ("int", b"\x80\x80\x80\x80\x10", "an int of more than 32 bits"),
        ("int", b"\x80\x80\x80\x80\x80\x01", "an integer of more than 5 bytes"),
        ("long", b"\x80" * 9 + b"\x02", "a long of more than 64 bits"),
        ("long", b"\x80" * 11, "an integer of more than 10 bytes"),
        ("string", b"\x01", "a length of -1"),
        ("string", b"\x04a", "the value ends too early"),
        ("string", b"\x04\xff\xfe", "not UTF-8: invalid start byte at 0"),
        ("float", b"\0\0\0", "the value ends too early"),
        ("double", b"\0" * 7, "the value ends too early"),
        (["null", "int"], b"\x04", "the union has no branch 2: null, int"),
        (["null", "int"], b"\x01", "the union has no branch -1: null, int"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "the enum has no symbol 1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "the enum has no symbol -1"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "the value ends too early"),
        ({"type": "array", "items": "int"}, b"\x0a\0", "a block claims 5 items, more than there can be"),
        ({"type": "array", "items": "int"}, b"\x02\0", "the value ends too early"),
        ({"type": "array", "items": "int"}, b"\x01\x03\0\0", "a block has a negative size"),
        ({"type": "map", "values": "null"}, b"\x0a\0", "a block claims 5 values, more than there can be"),
        (RECORDS, b"\x02\x80", "a: the value ends too early"),
        ([], b"\0", "the union has no branch 0"),
    ],
)
def test_avro_that_does_not_fit(schema: object, value: bytes, fault: str) -> None:
    (reason,) = avro(schema).check([value]).values()
    assert reason.startswith(fault)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", b""),
        ("bytes", b"anything, as Confluent's serializers write plain bytes"),
        ("int", b"\xff\xff\xff\xff\x0f"),
        ("long", b"\xff" * 9 + b"\x01"),
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\0"),  # a block with its size in bytes
        ({"type": "array", "items": "int"}, b"\x02\x02\x02\x04\0"),  # two blocks
        ({"type": "fixed", "name": "F", "size": 0}, b""),
        ({"type": "record", "name": "R", "fields": []}, b""),
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f"),
    ],
)
def test_avro_that_fits(schema: object, value: bytes) -> None:
    assert avro(schema).check([value]) == {}


def test_items_without_bytes_are_bounded() -> None:
    schema = {"type": "array", "items": {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}}
    few = written("long", MAX_EMPTY_ITEMS) + b"\0"
    many = written("long", 2**60) + b"\0"
    assert list(avro(schema).check([few, many])) == [1]


def test_recursion_is_bounded() -> None:
    """fastavro crashes the process at a few thousand."""
    schema = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    found = avro(schema).check([b"\x02" * depth + b"\0" for depth in (MAX_PAYLOAD_DEPTH, MAX_PAYLOAD_DEPTH + 1, 10**6)])
    assert list(found) == [1, 2]
    assert "nested deeper" in found[2]
    assert len(found[2]) <= MAX_REASON
    trees = {"type": "record", "name": "T", "fields": [{"name": "kids", "type": {"type": "array", "items": "T"}}]}
    assert list(avro(trees).check([b"\x02" * 10**6])) == [0]


def test_json() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    check = checker(parse(SchemaType.JSON, json.dumps(schema))).check
    assert check([b'{"n":1}', b' \n{"n": 1}\t', '{"n":1,"ž":"ž"}'.encode()]) == {}
    faults = check(
        [
            b"",
            b"{",
            b'{"n":1}x',
            b'{"n":"x"}',
            b"{}",
            b"NaN",
            b'{"n":\xff}',
            b'{"n":"\\ud800"}',
            b"[" * 100_000,
            b'{"n":' + b"9" * 5_000 + b"}",
            b"\xef\xbb\xbf{}",
        ]
    )
    assert list(faults) == list(range(11))
    assert faults[2] == "not JSON: text after the value at character 8"
    assert faults[3] == '#/n: "x" is not of type "integer"'
    assert faults[4] == '#: "n" is a required property'
    assert faults[5] == "not JSON: NaN is no JSON number"
    assert faults[6].startswith("not JSON: invalid start byte")
    assert faults[8] == "not JSON that can be checked: nested too deeply"


def test_reasons_are_short() -> None:
    check = checker(parse(SchemaType.JSON, '{"type":"integer"}')).check
    (fault,) = check([json.dumps("x" * 10_000).encode()]).values()
    assert len(fault) == MAX_REASON


def test_a_pattern_that_would_backtrack_for_ever_is_refused() -> None:
    check = checker(parse(SchemaType.JSON, json.dumps({"pattern": "^(?=(a+)+$)(a|aa)+b$"}))).check
    assert list(check([json.dumps("a" * 3_000).encode()])) == [0]


PROTO = (
    'syntax = "proto3"; package shop; message Order { int64 id = 1; string name = 2; Item item = 3; '
    "repeated Order orders = 4; message Item { double price = 1; } } message Other { int32 x = 9; }"
)


def proto(text: str = PROTO, message: str | None = None) -> PayloadChecker:
    return checker(parse(SchemaType.PROTOBUF, text), message)


def test_protobuf() -> None:
    item = b"\x1a\x09\x09" + struct.pack("<d", 2.5)
    good = b"\x08\x7b\x12\x03abc" + item
    assert proto().check([b"", good, b"\x22" + bytes([len(good)]) + good]) == {}
    faults = proto().check([good[:-1], b"\x12\x02\xff\xff", b"\x48\x01", b"\x1a\x02\x10\x01", b'{"id":1}'])
    assert list(faults) == [0, 1, 2, 3, 4]
    assert "UTF-8" in faults[1]
    for index in (2, 3):
        assert faults[index] == "no message shop.Order: has a field that the schema does not have"


def test_protobuf_messages_by_name() -> None:
    assert proto(message="shop.Other").check([b"\x48\x01"]) == {}
    assert list(proto(message="shop.Order.Item").check([b"\x08\x01"])) == [0]
    with pytest.raises(InvalidSchema, match=r"the schema has no message shop\.Nothing"):
        proto(message="shop.Nothing")
    with pytest.raises(InvalidSchema, match="the schema has no message"):
        proto('syntax = "proto3"; enum E { Z = 0; }')


def test_protobuf_requires_what_is_required() -> None:
    text = 'syntax = "proto2"; message A { optional B b = 1; } message B { required int32 x = 1; }'
    assert list(proto(text).check([b"", b"\x0a\0", b"\x0a\x02\x08\x01"])) == [1]


def test_protobuf_recursion_is_bounded() -> None:
    value = b""
    for _ in range(150):
        length = len(value)
        value = b"\x22" + (bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])) + value
    assert list(proto().check([value])) == [0]


def test_protobuf_with_imports() -> None:
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "b.proto"; ' \
        "message A { google.protobuf.Timestamp t = 1; b.B b = 2; }"  # fmt: skip
    parsed = parse(SchemaType.PROTOBUF, text, {"b.proto": 'syntax = "proto3"; package b; message B { int32 x = 1; }'})
    assert list(checker(parsed).check([b"\x0a\x02\x08\x01\x12\x02\x08\x01", b"\x12\x02\x10\x01"])) == [1]
