"""Evaluation of expressions in Python: an expression becomes one function of a row.

A row maps roots to values: `{"key": "a", "value": {"amount": 1.5}, "timestamp": …}`. Integers are checked for overflow,
and what Spark refuses to calculate (1 / 0, cast('x' as int)) raises EvaluationFailed.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, Final, TypeAlias

from moldau.streams.sql.errors import EvaluationFailed, StreamsError
from moldau.streams.sql.expressions import Call, Case, Cast, Column, Expression, Literal, SparkText
from moldau.streams.sql.functions import ALL, EPOCH, in_range
from moldau.streams.sql.types import (
    BIGINT,
    BINARY,
    BITS,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    VOID,
    Type,
)

Row: TypeAlias = Mapping[str, Any]
Evaluate: TypeAlias = Callable[[Row], Any]

TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:(Z)|([+-])(\d\d):?(\d\d)?)?)?", re.ASCII
)
DAY: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
WHOLE: Final = re.compile(r"[+-]?\d{1,40}", re.ASCII)
FRACTION: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
TRUE: Final = ("t", "true", "y", "yes", "1")
FALSE: Final = ("f", "false", "n", "no", "0")


class NeedsSpark(StreamsError):
    """An expression that only Spark evaluates."""


def compiled(expression: Expression) -> Evaluate:
    """A function that evaluates the expression for a row."""
    match expression:
        case Literal(value, _):
            return lambda row: value
        case Column(path, _):
            return _column(path)
        case Cast(argument, kind):
            inner, convert = compiled(argument), conversion(argument.type, kind)
            return lambda row: None if (value := inner(row)) is None else convert(value)
        case Case(arms, otherwise, _):
            return _case([(compiled(condition), compiled(result)) for condition, result in arms], compiled(otherwise))
        case Call(name, arguments, kind):
            return _call(name, [compiled(argument) for argument in arguments], kind)
        case SparkText(text, _):
            raise NeedsSpark(f'only Spark can evaluate "{text}": use app.test(engine="spark")')


def _column(path: tuple[str, ...]) -> Evaluate:
    if len(path) == 1:
        root = path[0]
        return lambda row: row[root]
    root, rest = path[0], path[1:]

    def walk(row: Row) -> Any:
        value = row[root]
        for name in rest:
            if value is None:
                return None
            value = value[name]
        return value

    return walk


def _case(arms: list[tuple[Evaluate, Evaluate]], otherwise: Evaluate) -> Evaluate:
    def choose(row: Row) -> Any:
        for condition, result in arms:
            if condition(row):
                return result(row)
        return otherwise(row)

    return choose


def _call(name: str, arguments: list[Evaluate], kind: Type) -> Evaluate:
    if name in ("and", "or"):
        return _lazy(arguments[0], arguments[1], name == "or", ALL[name].call)
    call = _in_range(ALL[name].call, kind) if kind in BITS else ALL[name].call
    if ALL[name].nulls:
        return lambda row: call(*[argument(row) for argument in arguments])

    def apply(row: Row) -> Any:
        values = [argument(row) for argument in arguments]
        return None if None in values else call(*values)

    return apply


def _lazy(one: Evaluate, other: Evaluate, decided: bool, call: Callable[..., Any]) -> Evaluate:
    """`and` and `or`: the right side is not evaluated if the left side decides."""

    def apply(row: Row) -> Any:
        left = one(row)
        return decided if left is decided else call(left, other(row))

    return apply


def _in_range(call: Callable[..., Any], kind: Type) -> Callable[..., Any]:
    return lambda *values: None if (result := call(*values)) is None else in_range(result, kind)


def conversion(given: Type, wanted: Type) -> Callable[[Any], Any]:
    """What a cast does with a value that is not null."""
    if given in (wanted, VOID):
        return lambda value: value
    if wanted == STRING:
        return as_text if given in (FLOAT, DOUBLE) else _texts.get(given, str)
    if wanted in BITS:
        return lambda value: in_range(_whole(value, wanted), wanted)
    if wanted == FLOAT:
        return lambda value: _single(_number(value))
    return _conversions[wanted]


def castable(given: Type, wanted: Type) -> bool:
    """Whether `cast` knows the pair."""
    numbers = (*BITS, FLOAT, DOUBLE)
    if given in (wanted, VOID):
        return True
    if given == STRING:
        return wanted in (*numbers, BOOLEAN, DATE, TIMESTAMP, BINARY)
    if given in numbers:
        return wanted in (*numbers, STRING, BOOLEAN)
    return (given, wanted) in {
        *((BOOLEAN, each) for each in (*numbers, STRING)),
        (BINARY, STRING),
        (DATE, STRING),
        (TIMESTAMP, BIGINT),
        (TIMESTAMP, DATE),
        (DATE, TIMESTAMP),
    }


def as_text(value: float) -> str:
    """A double as Java writes it: 1.0E10, 0.001, 1.0E-4."""
    if value == 0 or not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN" if value != value else str(value))
    if 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else format(value, "f").rstrip("0")
    digits, _, exponent = format(value, "e").partition("e")
    shortest = next(text for text in (format(value, f".{n}e") for n in range(17)) if float(text) == value)
    digits, _, exponent = shortest.partition("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def _whole(value: Any, kind: Type) -> int:
    if isinstance(value, str):
        text = value.strip()
        if not WHOLE.fullmatch(text):
            raise EvaluationFailed(f"'{value}' is not a {kind}")
        return int(text)
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(seconds=1)
    if isinstance(value, float) and not math.isfinite(value):
        raise EvaluationFailed(f"{value} is not a {kind}")
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, str):
        text = value.strip()
        if not FRACTION.fullmatch(text):
            raise EvaluationFailed(f"'{value}' is not a double")
        return float(text)
    return float(value)


def _single(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _truth(value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value)
    text = value.strip().lower()
    if text not in TRUE and text not in FALSE:
        raise EvaluationFailed(f"'{value}' is not a boolean")
    return text in TRUE


def read_timestamp(value: Any) -> datetime:
    """`2026-11-18T10:00:05.123Z`; without a zone it is UTC."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    found = TIME.fullmatch(str(value).strip())
    if found is None:
        raise EvaluationFailed(f"'{value}' is not a timestamp")
    year, month, day, hour, minute, second, fraction, _, sign, hours, minutes = found.groups()
    try:
        offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        zone = timezone(-offset if sign == "-" else offset)
        micros = int((fraction or "0").ljust(6, "0")[:6])
        read = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros, zone
        )
        return read.astimezone(UTC)
    except (ValueError, OverflowError) as wrong:
        raise EvaluationFailed(f"'{value}' is not a timestamp: {wrong}") from wrong


def read_date(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    found = DAY.fullmatch(str(value).strip())
    try:
        if found:
            return date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError as wrong:
        raise EvaluationFailed(f"'{value}' is not a date: {wrong}") from wrong
    raise EvaluationFailed(f"'{value}' is not a date")


_texts: Final[dict[Type, Callable[[Any], str]]] = {
    BOOLEAN: lambda value: "true" if value else "false",
    BINARY: lambda value: value.decode(errors="replace"),
}
_conversions: Final[dict[Type, Callable[[Any], Any]]] = {
    DOUBLE: _number,
    BOOLEAN: _truth,
    TIMESTAMP: read_timestamp,
    DATE: read_date,
    BINARY: str.encode,
}
