"""Definition of a JSON document that matches a schema, one document at a time. `decode` is faster and agrees with it.

A document is UTF-8 and one JSON object (RFC 8259: no NaN, no comments). Names match exactly; names that are not in the
schema are ignored, and missing names are null. A column that is not nullable rejects null and absence. A name of the
schema may occur only once in an object.

| column | accepted JSON |
|---|---|
| byte, short, int, bigint | a number without fraction and exponent, in range |
| float, double | a number that is finite in the type; rounded to it |
| decimal | a number, or a string with one, that is exact in the type |
| boolean, string | true and false; a string |
| binary | a string of Base64, as Spark writes binary columns |
| date | a string as 2026-11-16 |
| timestamp | a string as 2026-11-16T10:00[:00[.123456789]] with Z, +02, +0200 or +02:00, or without for UTC; |
| | a space may replace T; digits after the microseconds are cut off, as in Spark |
| timestamp_ntz | the same without a zone |
| array, struct, map | an array; an object; an object with distinct names |

No type is converted to another: no number from a string, no string from a number, no timestamp from a number.
"""

import binascii
import json
import math
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from moldau.base.settings import shortened

Reader = Callable[[Any], Any]  # from JSON to Arrow; raises SchemaMismatch

TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:(Z)|([+-])(\d\d):?(\d\d)?)?", re.ASCII
)
DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
MAX_DIGITS: Final = 40  # of an integer; no column has more
NO_VALUE: Final = "no value"  # of a tombstone
MAX_FLOAT: Final = 3.4028235677973366e38  # a double from here on is infinite as a float


class SchemaMismatch(Exception):
    """A document does not match. `path` leads to the column, from the outside in."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def within(self, name: str) -> "SchemaMismatch":
        self.path.insert(0, name)
        return self

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.reason}" if self.path else self.reason


class UnsupportedColumn(ValueError):
    """A column type without a JSON form."""


class _Number(str):
    """A number as text: the column decides its type."""

    __slots__ = ()


class _Ambiguous(dict[str, Any]):
    """An object with duplicate names."""

    twice: frozenset[str]


def document_reader(schema: pa.Schema) -> Callable[[bytes | None], dict[str, Any]]:
    """A function from a record's value to a row; raises SchemaMismatch. Raises UnsupportedColumn for the schema."""
    row = _struct(list(schema))
    return lambda value: row(parse(value))


def parse(value: bytes | None) -> Any:
    if value is None:
        raise SchemaMismatch(NO_VALUE)
    try:
        return json.loads(
            str(value, "utf-8"),
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as bad:
        raise SchemaMismatch(f"not UTF-8: byte {bad.start}") from bad
    except json.JSONDecodeError as bad:
        raise SchemaMismatch(f"not JSON: {bad.msg[0].lower()}{bad.msg[1:]} at character {bad.pos}") from bad
    except RecursionError as bad:
        raise SchemaMismatch("nested too deeply") from bad


def _no_constant(name: str) -> Any:
    raise SchemaMismatch(f"not JSON: {name}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    ambiguous = _Ambiguous(found)
    counts = Counter(name for name, _ in pairs)
    ambiguous.twice = frozenset(name for name, count in counts.items() if count > 1)
    return ambiguous


# ── columns ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def reader_of(kind: pa.DataType) -> Reader:
    """Reader of a column of this type."""
    if pa.types.is_struct(kind):
        return _struct([kind.field(index) for index in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return _list(kind.value_field)
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if pa.types.is_integer(kind):
        return _whole(kind.bit_width)
    if kind in SIMPLE:
        return SIMPLE[kind]
    raise UnsupportedColumn(f"the type {kind} has no JSON form")


def _struct(fields: list[pa.Field]) -> Reader:
    readers = [(field.name, _in_column(field)) for field in fields]
    names = {name for name, _ in readers}
    if len(names) < len(readers):
        raise UnsupportedColumn("two columns have the same name")

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _not("an object", value)
        twice = sorted(names & value.twice) if isinstance(value, _Ambiguous) else ()
        if twice:
            raise SchemaMismatch("it occurs twice").within(twice[0])
        return {name: column(value.get(name)) for name, column in readers}

    return read


def _in_column(field: pa.Field) -> Reader:
    """Handles null, and adds the column's name to errors."""
    name, nullable, reader = field.name, field.nullable, _named(field)

    def read(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise SchemaMismatch("it must not be missing or null").within(name)
        try:
            return reader(value)
        except SchemaMismatch as bad:
            raise bad.within(name) from None

    return read


def _named(field: pa.Field) -> Reader:
    try:
        return reader_of(field.type)
    except UnsupportedColumn as unknown:
        raise UnsupportedColumn(f"{field.name}: {unknown}") from None


def _list(element: pa.Field) -> Reader:
    reader = _in_column(element)

    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _not("an array", value)
        return [reader(each) for each in value]

    return read


def _map(kind: pa.MapType) -> Reader:
    if not pa.types.is_string(kind.key_type):
        raise UnsupportedColumn(f"JSON has no maps with keys of the type {kind.key_type}, only of strings")
    reader = _in_column(kind.item_field)

    def read(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise _not("an object", value)
        if isinstance(value, _Ambiguous):
            raise SchemaMismatch("it occurs twice").within(shortened(min(value.twice)))
        return [(_text(name), reader(each)) for name, each in value.items()]

    return read


def _whole(bits: int) -> Reader:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(value: Any) -> int:
        if not isinstance(value, _Number) or not value.removeprefix("-").isdigit():
            raise _not("a whole number", value)
        if len(value) > MAX_DIGITS or not least <= int(value) <= most:
            raise SchemaMismatch(f"{shortened(value)} is out of the range of {bits} bits")
        return int(value)

    return read


def _decimal(precision: int, scale: int) -> Reader:
    def read(value: Any) -> Decimal:
        if not isinstance(value, str) or not NUMBER.fullmatch(value):
            raise _not("a decimal number", value)
        try:
            number = Decimal(value)
        except InvalidOperation:
            raise _not("a decimal number", value) from None
        if not number:
            return Decimal((0, (0,), -scale))
        _, digits, exponent = number.as_tuple()
        assert isinstance(exponent, int), "the number is finite"
        while digits[-1] == 0:
            digits, exponent = digits[:-1], exponent + 1
        if exponent < -scale or len(digits) + exponent > precision - scale:
            raise SchemaMismatch(f"{shortened(value)} is not exact in decimal({precision},{scale})")
        return number

    return read


def _double(value: Any) -> float:
    if not isinstance(value, _Number):
        raise _not("a number", value)
    number = float(value)
    if not math.isfinite(number):
        raise SchemaMismatch(f"{shortened(value)} is out of range")
    return number


def _float(value: Any) -> float:
    number = _double(value)
    if abs(number) >= MAX_FLOAT:
        raise SchemaMismatch(f"{shortened(value)} is out of range")
    return number


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _not("true or false", value)
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise _not("a string", value)
    return _text(value)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as bad:
        raise SchemaMismatch("half of a surrogate pair is not text") from bad
    return value


def base64_bytes(value: Any) -> bytes:
    """Base64 in ASCII, with padding and without white space."""
    try:
        return b64decode(_string(value).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise _not("a string of Base64", value) from None


def _date(value: Any) -> date:
    text = _string(value)
    try:
        if DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        raise SchemaMismatch(f"{text} does not exist") from None
    raise _not("a date such as 2026-11-16", value)


def _timestamp(value: Any) -> datetime:
    local, zone = _time(value)
    try:
        return local.replace(tzinfo=zone or UTC).astimezone(UTC)
    except OverflowError:
        raise SchemaMismatch(f"{value} is out of range") from None


def _timestamp_without_zone(value: Any) -> datetime:
    local, zone = _time(value)
    if zone is not None:
        raise _not("a time without a zone", value)
    return local


def _time(value: Any) -> tuple[datetime, timezone | None]:
    parts = TIME.fullmatch(_string(value))
    if parts is None:
        raise _not("a time such as 2026-11-16T10:00:00Z", value)
    year, month, day, hour, minute, second, fraction, utc, sign, hours, minutes = parts.groups()
    micros = int((fraction or "").ljust(6, "0")[:6])
    try:
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), micros)
        if utc:
            return local, UTC
        if not sign:
            return local, None
        away = timedelta(hours=int(hours), minutes=int(minutes or 0))
        if int(minutes or 0) > 59:
            raise ValueError("an hour has 60 minutes")
        return local, timezone(-away if sign == "-" else away)
    except ValueError:
        raise SchemaMismatch(f"{value} does not exist") from None


SIMPLE: Final[dict[pa.DataType, Reader]] = {
    pa.bool_(): _boolean,
    pa.string(): _string,
    pa.binary(): base64_bytes,
    pa.float32(): _float,
    pa.float64(): _double,
    pa.date32(): _date,
    pa.timestamp("us", tz="UTC"): _timestamp,
    pa.timestamp("us"): _timestamp_without_zone,
}


def _not(wanted: str, value: Any) -> SchemaMismatch:
    return SchemaMismatch(f"{_shown(value)} is not {wanted}")


def _shown(value: Any) -> str:
    if isinstance(value, _Number):
        return shortened(value)
    if isinstance(value, str):
        return shortened(json.dumps(value))
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return "an object" if isinstance(value, dict) else "an array"
