"""Bytes of records to values, and back, as Spark's source and sink do it.

JSON must match its schema exactly: no number from a text, no text from a number; names that are not in the schema are
ignored, and missing ones are null unless they are NOT NULL.
"""

import binascii
import json
import math
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal as Exact
from decimal import InvalidOperation
from typing import Any, TypeAlias

from moldau.streams.sql.errors import EvaluationFailed
from moldau.streams.sql.evaluate import read_date, read_timestamp
from moldau.streams.sql.types import (
    BINARY,
    BITS,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    Struct,
    Type,
)
from moldau.streams.topology.formats import Format

Decode: TypeAlias = Callable[[bytes | None], Any]
Encode: TypeAlias = Callable[[Any], bytes | None]
Read: TypeAlias = Callable[[Any], Any]


class Undecodable(Exception):
    """Bytes that do not match their format; the text is the reason."""


def decoder(given: Format) -> Decode:
    if given.name == "raw":
        return lambda data: data
    if given.name == "string":
        return _text
    read = _reader(given.type)
    return lambda data: None if data is None else read(_document(data))


def encoder(given: Format) -> Encode:
    if given.name == "raw":
        return lambda value: value
    if given.name == "string":
        return lambda value: None if value is None else str(value).encode()
    return lambda value: None if value is None else _written(value).encode()


def _written(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Exact):
        return str(value)
    raise TypeError(f"{value!r} has no JSON form")


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        raise Undecodable(f"not UTF-8 at byte {wrong.start}") from wrong


def _document(data: bytes) -> Any:
    try:
        return json.loads(data.decode(), object_pairs_hook=_Pairs, parse_constant=_refuse_constant)
    except UnicodeDecodeError as wrong:
        raise Undecodable(f"not UTF-8 at byte {wrong.start}") from wrong
    except (ValueError, RecursionError) as wrong:
        raise Undecodable(f"not JSON: {wrong}") from wrong


class _Pairs(list[tuple[str, Any]]):
    """An object, with names that may be there twice."""


def _refuse_constant(name: str) -> Any:
    raise Undecodable(f"{name} is not JSON")


def _reader(kind: Type) -> Read:
    match kind:
        case Struct(fields):
            inner = {each.name: (_reader(each.type), each.nullable) for each in fields}
            return lambda given: _struct(given, inner)
        case Array(element):
            read = _reader(element)
            return lambda given: [None if each is None else read(each) for each in _need(given, list, "array")]
        case Map(_, value):
            return _map(_reader(value))
        case Decimal(precision, scale):
            return lambda given: _decimal(given, precision, scale)
        case _:
            return _SCALARS[kind] if kind not in BITS else _whole(BITS[kind])


def _struct(given: Any, fields: dict[str, tuple[Read, bool]]) -> dict[str, Any]:
    if not isinstance(given, _Pairs):
        raise Undecodable(f"{_shown(given)} is not an object")
    counted = Counter(name for name, _ in given if name in fields)
    twice = next((name for name, count in counted.items() if count > 1), None)
    if twice is not None:
        raise Undecodable(f"{twice} is there twice")
    values = dict(given)
    read: dict[str, Any] = {}
    for name, (reader, nullable) in fields.items():
        value = values.get(name)
        if value is None:
            if not nullable:
                raise Undecodable(f"{name}: no value, and it must have one")
            read[name] = None
            continue
        try:
            read[name] = reader(value)
        except Undecodable as wrong:
            raise Undecodable(f"{name}: {wrong}") from wrong
    return read


def _map(reader: Read) -> Read:
    def read(given: Any) -> dict[str, Any]:
        if not isinstance(given, _Pairs) or len(dict(given)) < len(given):
            raise Undecodable(f"{_shown(given)} is not an object with distinct names")
        return {name: None if value is None else reader(value) for name, value in given}

    return read


def _need(given: Any, kind: type, what: str) -> Any:
    if not isinstance(given, kind) or isinstance(given, _Pairs):
        raise Undecodable(f"{_shown(given)} is not an {what}")
    return given


def _whole(bits: int) -> Read:
    def read(given: Any) -> int:
        if not isinstance(given, int) or isinstance(given, bool) or not -(1 << bits - 1) <= given < 1 << bits - 1:
            raise Undecodable(f"{_shown(given)} is not a whole number of {bits} bits")
        return given

    return read


def _double(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise Undecodable(f"{_shown(given)} is not a number")
    return float(given)


def _decimal(given: Any, precision: int, scale: int) -> Exact:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise Undecodable(f"{_shown(given)} is not a number")
    try:
        exact = Exact(str(given)).quantize(Exact(1).scaleb(-scale))
        if exact == Exact(str(given)) and len(exact.as_tuple().digits) <= precision:
            return exact
    except InvalidOperation as wrong:
        raise Undecodable(f"{_shown(given)} is not exact in decimal({precision},{scale})") from wrong
    raise Undecodable(f"{_shown(given)} is not exact in decimal({precision},{scale})")


def _string(given: Any) -> str:
    if not isinstance(given, str):
        raise Undecodable(f"{_shown(given)} is not a string")
    return given


def _boolean(given: Any) -> bool:
    if not isinstance(given, bool):
        raise Undecodable(f"{_shown(given)} is not true or false")
    return given


def _binary(given: Any) -> bytes:
    try:
        return b64decode(_string(given), validate=True)
    except binascii.Error as wrong:
        raise Undecodable(f"{_shown(given)} is not Base64") from wrong


def _time(read: Callable[[Any], Any]) -> Read:
    def parse(given: Any) -> Any:
        try:
            return read(_string(given))
        except EvaluationFailed as wrong:
            raise Undecodable(str(wrong)) from wrong

    return parse


def _shown(given: Any) -> str:
    text = "an object" if isinstance(given, _Pairs) else json.dumps(given, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


_SCALARS: dict[Type, Read] = {
    STRING: _string,
    BINARY: _binary,
    BOOLEAN: _boolean,
    FLOAT: _double,
    DOUBLE: _double,
    DATE: _time(read_date),
    TIMESTAMP: _time(read_timestamp),
}
