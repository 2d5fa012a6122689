"""The serializer of a key or value follows from a type, a Serde, a function, or from each value."""

import dataclasses
import json
import uuid
from typing import Any

import pytest
from confluent_kafka.serialization import IntegerSerializer, StringDeserializer, StringSerializer

from moldau.client.errors import InvalidUse
from moldau.client.serializers import choose
from moldau.client.serializers.choose import deserializer_for, serializer_for
from moldau.client.serializers.models import JSON
from moldau.client.serializers.plain import INTEGER
from moldau.client.serializers.port import SerializerContext

CONTEXT = SerializerContext("orders", "value")
NAME = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")


@dataclasses.dataclass
class Order:
    id: str
    amount: int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (b"raw", b"raw"),
        (bytearray(b"raw"), b"raw"),
        (memoryview(b"raw"), b"raw"),
        ("Käse", "Käse".encode()),
        (5, b"\0\0\0\0\0\0\0\5"),
        (1.0, b"\x3f\xf0\0\0\0\0\0\0"),
        (True, b"true"),
        (NAME, str(NAME).encode()),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode()),
        ([1, 2], b"[1,2]"),
        (Order("a", 5), b'{"id":"a","amount":5}'),
        ({"order": Order("a", 5), "at": NAME}, b'{"order":{"id":"a","amount":5},"at":"%s"}' % str(NAME).encode()),
    ],
)
def test_without_a_kind_the_type_of_the_value_decides(value: Any, expected: bytes | None) -> None:
    assert serializer_for(None)(value, CONTEXT) == expected


def test_a_value_without_a_form_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"object has no form in JSON.*give the producer a serializer"):
        serializer_for(None)(object(), CONTEXT)


def test_types_of_values_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "_remembered", {})
    monkeypatch.setattr(choose, "MOST_TYPES", 3)
    for number in range(5):
        made = dataclasses.make_dataclass(f"Made{number}", [("x", int)])
        assert serializer_for(None)(made(number), CONTEXT) == b'{"x":%d}' % number
    assert len(choose._remembered) == 3


@pytest.mark.parametrize("kind", [None, bytes])
def test_bytes_are_read_as_they_are(kind: Any) -> None:
    assert deserializer_for(kind)(b"raw", CONTEXT) == b"raw"
    assert deserializer_for(kind)(None, CONTEXT) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, "Käse"),
        (int, -5),
        (float, 1.5),
        (uuid.UUID, NAME),
        (dict, {"a": [1, None, 1.5]}),
        (list, [1, "a"]),
        (list[Order], [Order("a", 1)]),
        (Order | int, Order("a", 1)),
        (Order, Order("a", 1)),
        (JSON, {"a": 1}),
        (INTEGER, 7),
        (Any, ["x"]),
    ],
)
def test_a_kind_works_both_ways(kind: Any, value: Any) -> None:
    raw = serializer_for(kind)(value, CONTEXT)
    assert isinstance(raw, bytes)
    assert deserializer_for(kind)(raw, CONTEXT) == value
    assert serializer_for(kind)(None, CONTEXT) is None
    assert deserializer_for(kind)(None, CONTEXT) is None


def test_functions_are_taken_as_they_are() -> None:
    def read(value: bytes | None, ctx: SerializerContext) -> Any:
        return json.loads(value or b"null"), ctx.topic

    assert deserializer_for(read)(b"[1]", CONTEXT) == ([1], "orders")


def test_confluents_serializers_fit_as_they_are() -> None:
    assert serializer_for(StringSerializer("utf_16_le"))("a", CONTEXT) == b"a\0"
    assert serializer_for(IntegerSerializer())(5, CONTEXT) == b"\0\0\0\5"
    assert deserializer_for(StringDeserializer())(b"a", CONTEXT) == "a"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (StringSerializer, r"is the class of a serializer: pass an object of it, StringSerializer\(…\)"),
        (type(JSON), "Model is the class of a serializer"),
        (lambda value: value, r"must take two arguments: \(value, context\)"),
        (7, "7 is no serializer: pass a type, a Serde, or a function"),
        ("json", "'json' is no serializer"),
        (complex, "complex has no form in JSON.*or pass a serializer"),
        (list[complex], "complex has no form in JSON"),
    ],
)
def test_what_is_no_serializer_is_refused_at_once(kind: Any, reason: str) -> None:
    with pytest.raises(InvalidUse, match=reason):
        serializer_for(kind)
