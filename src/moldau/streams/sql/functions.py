"""The table of functions and operators: which types each takes, which it gives, and what it does in Python.

Spark does the same for the same arguments: the differential tests compare them. Operators that treat null in their own
way (and, or, coalesce, …) are `nulls=True`; all others are null if an argument is.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP
from decimal import Decimal as Exact
from typing import Any, Final

from moldau.streams.sql.errors import EvaluationFailed
from moldau.streams.sql.types import (
    BIGINT,
    BINARY,
    BITS,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    NUMBERS,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    VOID,
    Array,
    Map,
    Scalar,
    Type,
)

ANY: Final = Scalar("any")  # arguments of one type, whichever it is
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Signature:
    """Types of the arguments; with `more` the last one repeats, `optional` many may be left out at the end."""

    takes: tuple[Type, ...]
    gives: Type
    more: bool = False
    optional: int = 0

    def accepts(self, count: int) -> bool:
        least = len(self.takes) - self.optional
        return count >= least if self.more else least <= count <= len(self.takes)

    def wanted(self, count: int) -> list[Type]:
        return [self.takes[min(position, len(self.takes) - 1)] for position in range(count)]


@dataclass(frozen=True, slots=True)
class Function:
    call: Callable[..., Any]
    signatures: tuple[Signature, ...]
    nulls: bool = False
    spark: str = ""  # how Spark writes it, if that is not name(arguments): '({0} + {1})'


WIDER: Final[dict[Type, tuple[Type, ...]]] = {
    TINYINT: (SMALLINT, INT, BIGINT, FLOAT, DOUBLE),
    SMALLINT: (INT, BIGINT, FLOAT, DOUBLE),
    INT: (BIGINT, DOUBLE),
    BIGINT: (DOUBLE,),
    FLOAT: (DOUBLE,),
}


def widens(given: Type, wanted: Type) -> bool:
    """Whether a value of one type may stand where the other is wanted, without a cast in the text."""
    return given in (wanted, VOID) or wanted in WIDER.get(given, ())


def common_type(types: Sequence[Type]) -> Type | None:
    """The type that all of them may become."""
    known = [each for each in types if each != VOID]
    if not known:
        return VOID
    if all(each == known[0] for each in known):
        return known[0]
    return next((wide for wide in NUMBERS if all(widens(each, wide) for each in known)), None)


def match(signature: Signature, given: Sequence[Type]) -> tuple[list[Type], Type] | None:
    """The types that arguments must be cast to and the type of the result; None if they do not fit."""
    if not signature.accepts(len(given)):
        return None
    wanted = signature.wanted(len(given))
    chosen = common_type([kind for kind, want in zip(given, wanted, strict=True) if want == ANY])
    if chosen is None:
        return None
    exact = [chosen if want == ANY else want for want in wanted]
    for kind, want in zip(given, exact, strict=True):
        container = (want == _ARRAY and isinstance(kind, Array)) or (want == _MAP and isinstance(kind, Map))
        if not container and not widens(kind, want):
            return None
    casts = [kind if want in (_ARRAY, _MAP) else want for kind, want in zip(given, exact, strict=True)]
    return casts, chosen if signature.gives == ANY else signature.gives


_ARRAY: Final = Array(ANY)
_MAP: Final = Map(ANY, ANY)


def in_range(value: int, kind: Type) -> int:
    bits = BITS[kind]  # type: ignore[index]
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise EvaluationFailed(f"{value} is beyond {kind}")
    return value


def _checked(operate: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def calculate(one: Any, other: Any) -> Any:
        try:
            return operate(one, other)
        except OverflowError:
            return math.inf

    return calculate


def _divide(one: float, other: float) -> float:
    if other == 0:
        raise EvaluationFailed(f"{one} is divided by 0")
    return one / other


def _remainder(one: Any, other: Any) -> Any:
    """As in Java: the sign is that of the dividend."""
    if other == 0:
        raise EvaluationFailed(f"{one} is divided by 0")
    if isinstance(one, float) or isinstance(other, float):
        return math.fmod(one, other)
    rest = abs(one) % abs(other)
    return -rest if one < 0 else rest


def _and(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _or(one: bool | None, other: bool | None) -> bool | None:
    if one is True or other is True:
        return True
    return None if one is None or other is None else False


def _is_in(value: Any, *others: Any) -> bool | None:
    if value is None:
        return None
    if value in [each for each in others if each is not None]:
        return True
    return None if None in others else False


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _greatest(*values: Any) -> Any:
    return max((value for value in values if value is not None), default=None)


def _least(*values: Any) -> Any:
    return min((value for value in values if value is not None), default=None)


def _round(value: float, digits: int = 0) -> float:
    if not math.isfinite(value):
        return value
    return float(Exact(repr(value)).quantize(Exact(1).scaleb(-digits), rounding=ROUND_HALF_UP))


def _substring(text: Any, start: int, length: int | None = None) -> Any:
    """Counts from 1; a negative start counts from the end. What lies before the text is cut off."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = len(text) if length is None else begin + max(length, 0)
    return text[max(begin, 0) : max(end, 0)]


def _replace(text: str, old: str, new: str = "") -> str:
    return text.replace(old, new) if old else text


def _unix_millis(time: datetime) -> int:
    return (time - EPOCH) // MILLISECOND


def _like(text: str, pattern: str) -> bool:
    """`%` is any text, `_` any character, and a backslash makes either of them itself."""
    return _like_from(text, pattern)


def _like_from(text: str, pattern: str) -> bool:
    tokens: list[str | int] = []  # 0: one character, 1: any text
    escaped = False
    for character in pattern:
        if escaped or character not in "%_\\":
            tokens.append(character)
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            tokens.append(1 if character == "%" else 0)
    return _matches(text, tokens)


def _matches(text: str, tokens: list[str | int]) -> bool:
    """Greedy, with one place to return to: linear in practice, at worst text × pattern."""
    at, token, star, mark = 0, 0, -1, 0
    while at < len(text):
        if token < len(tokens) and (tokens[token] == 0 or tokens[token] == text[at]):
            at, token = at + 1, token + 1
        elif token < len(tokens) and tokens[token] == 1:
            star, mark, token = token, at, token + 1
        elif star >= 0:
            mark += 1
            at, token = mark, star + 1
        else:
            return False
    return all(each == 1 for each in tokens[token:])


def _signs(*rows: tuple[tuple[Type, ...], Type]) -> tuple[Signature, ...]:
    return tuple(Signature(takes, gives) for takes, gives in rows)


ARITHMETIC: Final = _signs(*(((kind, kind), kind) for kind in (INT, BIGINT, DOUBLE)))
NEGATION: Final = _signs(*(((kind,), kind) for kind in (INT, BIGINT, DOUBLE)))
COMPARISON: Final = _signs(((ANY, ANY), BOOLEAN))
LOGIC: Final = _signs(((BOOLEAN, BOOLEAN), BOOLEAN))
TEXT: Final = _signs(((STRING,), STRING))
TEST: Final = _signs(((STRING, STRING), BOOLEAN))
PART_OF_TIME: Final = _signs(((TIMESTAMP,), INT), ((DATE,), INT))
TIME_OF_DAY: Final = _signs(((TIMESTAMP,), INT))
ORDERED: Final = (STRING, BINARY, BOOLEAN, *NUMBERS, DATE, TIMESTAMP)

OPERATORS: Final[dict[str, Function]] = {
    "+": Function(_checked(lambda a, b: a + b), ARITHMETIC, spark="({0} + {1})"),
    "-": Function(_checked(lambda a, b: a - b), ARITHMETIC, spark="({0} - {1})"),
    "*": Function(_checked(lambda a, b: a * b), ARITHMETIC, spark="({0} * {1})"),
    "/": Function(_divide, _signs(((DOUBLE, DOUBLE), DOUBLE)), spark="({0} / {1})"),
    "%": Function(_remainder, ARITHMETIC, spark="({0} % {1})"),
    "negative": Function(lambda a: -a, NEGATION, spark="(- {0})"),
    "=": Function(lambda a, b: a == b, COMPARISON, spark="({0} = {1})"),
    "<>": Function(lambda a, b: a != b, COMPARISON, spark="({0} <> {1})"),
    "<": Function(lambda a, b: a < b, COMPARISON, spark="({0} < {1})"),
    "<=": Function(lambda a, b: a <= b, COMPARISON, spark="({0} <= {1})"),
    ">": Function(lambda a, b: a > b, COMPARISON, spark="({0} > {1})"),
    ">=": Function(lambda a, b: a >= b, COMPARISON, spark="({0} >= {1})"),
    "and": Function(_and, LOGIC, nulls=True, spark="({0} AND {1})"),
    "or": Function(_or, LOGIC, nulls=True, spark="({0} OR {1})"),
    "not": Function(lambda a: not a, _signs(((BOOLEAN,), BOOLEAN)), spark="(NOT {0})"),
    "is null": Function(lambda a: a is None, _signs(((ANY,), BOOLEAN)), nulls=True, spark="({0} IS NULL)"),
    "in": Function(_is_in, (Signature((ANY, ANY), BOOLEAN, more=True),), nulls=True),
    "like": Function(_like, TEST, spark="({0} LIKE {1})"),
    "||": Function(lambda a, b: a + b, _signs(((STRING, STRING), STRING)), spark="({0} || {1})"),
}

FUNCTIONS: Final[dict[str, Function]] = {
    "abs": Function(abs, NEGATION),
    "ceil": Function(math.ceil, _signs(((BIGINT,), BIGINT), ((DOUBLE,), BIGINT))),
    "coalesce": Function(_coalesce, (Signature((ANY,), ANY, more=True),), nulls=True),
    "concat": Function(lambda *texts: "".join(texts), (Signature((STRING,), STRING, more=True),)),
    "contains": Function(lambda text, part: part in text, TEST),
    "day": Function(lambda time: time.day, PART_OF_TIME),
    "endswith": Function(lambda text, part: text.endswith(part), TEST),
    "floor": Function(math.floor, _signs(((BIGINT,), BIGINT), ((DOUBLE,), BIGINT))),
    "greatest": Function(_greatest, (Signature((ANY, ANY), ANY, more=True),), nulls=True),
    "hour": Function(lambda time: time.hour, TIME_OF_DAY),
    "ifnull": Function(_coalesce, _signs(((ANY, ANY), ANY)), nulls=True),
    "least": Function(_least, (Signature((ANY, ANY), ANY, more=True),), nulls=True),
    "length": Function(len, _signs(((STRING,), INT), ((BINARY,), INT))),
    "lower": Function(str.lower, TEXT),
    "minute": Function(lambda time: time.minute, TIME_OF_DAY),
    "month": Function(lambda time: time.month, PART_OF_TIME),
    "nullif": Function(lambda a, b: None if a is not None and a == b else a, _signs(((ANY, ANY), ANY)), nulls=True),
    "replace": Function(_replace, (Signature((STRING, STRING, STRING), STRING, optional=1),)),
    "round": Function(_round, (Signature((DOUBLE, INT), DOUBLE, optional=1),)),
    "second": Function(lambda time: time.second, TIME_OF_DAY),
    "size": Function(len, (Signature((_ARRAY,), INT), Signature((_MAP,), INT))),
    "startswith": Function(lambda text, part: text.startswith(part), TEST),
    "substring": Function(_substring, (Signature((STRING, INT, INT), STRING, optional=1),)),
    "timestamp_millis": Function(lambda ms: EPOCH + ms * MILLISECOND, _signs(((BIGINT,), TIMESTAMP))),
    "trim": Function(lambda text: text.strip(" "), TEXT),
    "unix_millis": Function(_unix_millis, _signs(((TIMESTAMP,), BIGINT))),
    "upper": Function(str.upper, TEXT),
    "year": Function(lambda time: time.year, PART_OF_TIME),
}
ALIASES: Final = {"nvl": "ifnull", "substr": "substring", "len": "length", "char_length": "length", "ceiling": "ceil"}
ALL: Final = {**OPERATORS, **FUNCTIONS}
