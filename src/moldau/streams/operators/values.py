"""Values that Python functions return, checked against the type that the program promised."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal as Exact
from typing import Any, Final, TypeAlias

from moldau.streams.sql.errors import StreamsError
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
from moldau.streams.topology.models import to_dictionary

Conform: TypeAlias = Callable[[Any], Any]


class WrongValue(StreamsError):
    """A function of the program returned something else than it promised."""


def conform(kind: Type, what: str) -> Conform:
    """A function that turns what a user's function returned into a value of the type, or raises WrongValue."""
    inner = _conform(kind, what)
    return lambda value: inner(to_dictionary(value))


def _conform(kind: Type, what: str) -> Conform:
    match kind:
        case Struct(fields):
            return _struct(
                {each.name: _conform(each.type, f"{what}, field {each.name}") for each in fields}, kind, what
            )
        case Array(element):
            return _array(_conform(element, what), kind, what)
        case Map(_, value):
            return _map(_conform(value, what), kind, what)
        case Decimal():
            return _scalar(
                lambda value: isinstance(value, Exact | int) and not isinstance(value, bool), Exact, kind, what
            )
        case _:
            accepts, make = SCALARS[kind]
            return _scalar(accepts, make, kind, what)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _same(value: Any) -> Any:
    return value


def _within(bits: int) -> Callable[[Any], bool]:
    return lambda value: _whole(value) and -(1 << bits - 1) <= value < 1 << bits - 1


def _is_number(value: Any) -> bool:
    return _whole(value) or (isinstance(value, float) and not math.isnan(value))


SCALARS: Final[Mapping[Type, tuple[Callable[[Any], bool], Conform]]] = {
    STRING: (lambda value: isinstance(value, str), _same),
    BINARY: (lambda value: isinstance(value, bytes | bytearray), bytes),
    BOOLEAN: (lambda value: isinstance(value, bool), _same),
    FLOAT: (_is_number, float),
    DOUBLE: (_is_number, float),
    DATE: (lambda value: isinstance(value, date) and not isinstance(value, datetime), _same),
    TIMESTAMP: (lambda value: isinstance(value, datetime), _utc),
    **{kind: (_within(bits), _same) for kind, bits in BITS.items()},
}


def _wrong(value: Any, kind: Type, what: str) -> WrongValue:
    return WrongValue(f"{what}: {value!r:.100} is not a {kind}")


def _scalar(accepts: Callable[[Any], bool], make: Conform, kind: Type, what: str) -> Conform:
    def check(value: Any) -> Any:
        if value is None:
            return None
        if not accepts(value):
            raise _wrong(value, kind, what)
        return make(value)

    return check


def _struct(fields: Mapping[str, Conform], kind: Type, what: str) -> Conform:
    def check(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _wrong(value, kind, what)
        unknown = [name for name in value if name not in fields]
        if unknown:
            raise WrongValue(f"{what}: there is no field {unknown[0]} in {kind}")
        return {name: inner(value.get(name)) for name, inner in fields.items()}

    return check


def _array(element: Conform, kind: Type, what: str) -> Conform:
    def check(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise _wrong(value, kind, what)
        return [element(each) for each in value]

    return check


def _map(inner: Conform, kind: Type, what: str) -> Conform:
    def check(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _wrong(value, kind, what)
        return {name: inner(each) for name, each in value.items()}

    return check
