"""Plain serdes: the bytes of Java's serializers, both ways, and errors that say what was expected."""

import struct
import uuid
from typing import Any

import pytest
from confluent_kafka.serialization import DoubleSerializer, IntegerSerializer, StringSerializer
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.serializers.plain import BYTES, DOUBLE, INTEGER, LONG, STRING, UUID, Plain
from moldau.client.serializers.port import SerializerContext

CONTEXT = SerializerContext("orders", "value")
ALL = (BYTES, STRING, LONG, INTEGER, DOUBLE, UUID)


def written(serde: Plain[Any], value: Any) -> bytes | None:
    return serde.serialize(value, CONTEXT)


@given(st.integers(-(2**63), 2**63 - 1))
def test_long_is_eight_bytes_big_endian(number: int) -> None:
    assert written(LONG, number) == struct.pack(">q", number)
    assert LONG.deserialize(struct.pack(">q", number), CONTEXT) == number


@given(st.integers(-(2**31), 2**31 - 1), st.floats(allow_nan=False), st.text())
def test_bytes_are_those_of_confluents_serializers(number: int, fraction: float, text: str) -> None:
    assert written(INTEGER, number) == IntegerSerializer()(number)
    assert written(DOUBLE, fraction) == DoubleSerializer()(fraction)
    assert written(STRING, text) == StringSerializer()(text)
    assert INTEGER.deserialize(written(INTEGER, number), CONTEXT) == number
    assert DOUBLE.deserialize(written(DOUBLE, fraction), CONTEXT) == fraction
    assert STRING.deserialize(written(STRING, text), CONTEXT) == text


def test_a_uuid_is_text_as_in_java() -> None:
    name = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
    assert written(UUID, name) == b"0f8fad5b-d9cb-469f-a165-70867728950e"
    assert UUID.deserialize(written(UUID, name), CONTEXT) == name


def test_bytes_of_any_kind_become_bytes() -> None:
    assert written(BYTES, bytearray(b"ab")) == written(BYTES, memoryview(b"ab")) == written(BYTES, b"ab") == b"ab"


@pytest.mark.parametrize("serde", ALL, ids=repr)
def test_none_is_null_and_null_is_none(serde: Plain[Any]) -> None:
    assert written(serde, None) is None
    assert serde.deserialize(None, CONTEXT) is None


@pytest.mark.parametrize(
    ("serde", "value", "reason"),
    [
        (BYTES, "text", "expected bytes, not str"),
        (STRING, 5, "expected str, not int"),
        (LONG, "5", "expected int, not str"),
        (LONG, True, "expected int, not bool"),
        (LONG, 1.5, "expected int, not float"),
        (LONG, 2**63, "does not fit into the 8 bytes of Java's Long"),
        (INTEGER, 2**31, "does not fit into the 4 bytes of Java's Integer"),
        (DOUBLE, "1", "expected float, not str"),
        (UUID, "0f8fad5b-d9cb-469f-a165-70867728950e", "expected UUID, not str"),
    ],
)
def test_a_value_of_another_type_is_refused(serde: Plain[Any], value: Any, reason: str) -> None:
    with pytest.raises((TypeError, ValueError), match=reason):
        written(serde, value)


@pytest.mark.parametrize("serde", [LONG, INTEGER, DOUBLE], ids=repr)
def test_numbers_of_another_length_are_refused(serde: Plain[Any]) -> None:
    with pytest.raises(ValueError, match=r"has [48] bytes; these are 5"):
        serde.deserialize(b"12345", CONTEXT)
