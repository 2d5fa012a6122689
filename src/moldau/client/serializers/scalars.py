"""Single values of typed Python as values of JSON, and back; what is made of several is in `conversions`.

Reading is strict: no value changes its type silently. A problem tells types only: errors are logged, and values may be
secret.
"""

import base64
import binascii
import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

Json: TypeAlias = Any  # what the module json gives: dict, list, str, int, float, bool, None


class InvalidValue(ValueError):
    """A value that does not fit its type; the path of fields to it grows while the error passes them."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem, path)
        self.problem, self.path = problem, path

    def within(self, step: str) -> "InvalidValue":
        """The same problem, one level up: `step` is `name` or `[index]`."""
        joined = step + ("" if not self.path or self.path.startswith("[") else ".") + self.path
        return InvalidValue(self.problem, joined)

    def __str__(self) -> str:
        return f"field {self.path}: {self.problem}" if self.path else self.problem


class Unsupported(TypeError):
    """A type that has no form in JSON."""


class Conversion(NamedTuple):
    to_json: Callable[[Any], Json]
    from_json: Callable[[Json], Any]


def wrong(expected: str, value: object) -> InvalidValue:
    """A problem that tells types only: values may be secret, and errors are logged."""
    return InvalidValue(f"expected {expected}, not {'null' if value is None else type(value).__name__}")


def _exactly(kind: type, name: str) -> Conversion:
    """A type that JSON has itself."""

    def check(value: Any) -> Any:
        if type(value) is kind or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        raise wrong(name, value)

    return Conversion(check, check)


def _number_out(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong("a number", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValue("JSON has no infinity and no NaN")
    return value


def _number_in(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise wrong("a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidValue("the number is too large for a float")
    return number


def _decimal_in(value: Json) -> decimal.Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | decimal.Decimal):
        raise wrong("a decimal number", value)
    try:
        return decimal.Decimal(value)
    except decimal.InvalidOperation:
        raise InvalidValue("the text is no decimal number") from None


def _as_text(kind: type, name: str, write: Callable[[Any], str], read: Callable[[str], Any]) -> Conversion:
    """A type that is text in JSON."""

    def to_json(value: Any) -> str:
        if not isinstance(value, kind) or (kind is datetime.date and isinstance(value, datetime.datetime)):
            raise wrong(name, value)
        return write(value)

    def from_json(value: Json) -> Any:
        if not isinstance(value, str):
            raise wrong(f"{name} as text", value)
        try:
            return read(value)
        except (ValueError, binascii.Error):
            raise InvalidValue(f"the text is no {name}") from None

    return Conversion(to_json, from_json)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _base64_in(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_decimals = _as_text(decimal.Decimal, "decimal number", str, decimal.Decimal)

SCALARS: dict[object, Conversion] = {
    str: _exactly(str, "str"),
    int: _exactly(int, "int"),
    bool: _exactly(bool, "bool"),
    float: Conversion(_number_out, _number_in),
    decimal.Decimal: Conversion(_decimals.to_json, _decimal_in),
    datetime.datetime: _as_text(
        datetime.datetime, "ISO 8601 datetime", datetime.datetime.isoformat, datetime.datetime.fromisoformat
    ),
    datetime.date: _as_text(datetime.date, "ISO 8601 date", datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.time: _as_text(datetime.time, "ISO 8601 time", datetime.time.isoformat, datetime.time.fromisoformat),
    uuid.UUID: _as_text(uuid.UUID, "UUID", str, uuid.UUID),
    bytes: _as_text(bytes, "base64 text", _base64, _base64_in),
}
KEYS = (str, datetime.datetime, datetime.date, datetime.time, uuid.UUID, decimal.Decimal)


def null(value: object) -> None:
    if value is not None:
        raise wrong("null", value)


def enumeration(kind: type[enum.Enum]) -> Conversion:
    def to_json(value: Any) -> Json:
        if not isinstance(value, kind):
            raise wrong(kind.__name__, value)
        return value.value

    def from_json(value: Json) -> enum.Enum:
        try:
            return kind(value)
        except ValueError:
            raise InvalidValue(f"the value is no {kind.__name__}") from None

    return Conversion(to_json, from_json)


def literal(values: tuple[Any, ...]) -> Conversion:
    allowed = {(type(value), value) for value in values}

    def check(value: Any) -> Any:
        if isinstance(value, list | dict) or (type(value), value) not in allowed:
            raise wrong(f"one of {', '.join(map(repr, values))}", value)
        return value

    return Conversion(check, check)
