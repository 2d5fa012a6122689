"""Values of typed Python to values of JSON, and back: a type hint is compiled once to a pair of functions.

A problem names its field. Fields that a type does not know are passed over, so that a producer may add some before its
consumers know them. Text of JSON is made in `models`.
"""

import dataclasses
import decimal
import enum
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from moldau.client.serializers.scalars import (
    KEYS,
    SCALARS,
    Conversion,
    InvalidValue,
    Json,
    Unsupported,
    enumeration,
    literal,
    null,
    wrong,
)


def _as_is(value: Any) -> Any:
    return value


def _without_decimals(value: Json) -> Json:
    """What json makes of numbers by default, where they were read as decimals for other fields of the type."""
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, list):
        return [_without_decimals(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_decimals(each) for name, each in value.items()}
    return value


def _untyped(kind: type, exact: bool) -> Conversion:
    """A dict or list of anything: json converts what is in it."""

    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise wrong(kind.__name__, value)
        return value

    return Conversion(check, (lambda value: _without_decimals(check(value))) if exact else check)


class Record:
    """A dataclass. Its fields are set after it was made, since they may mention it."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.fields: list[tuple[str, Conversion, bool]] = []  # name, conversion, whether __init__ takes it
        self.required: list[str] = []

    def to_json(self, value: Any) -> Json:
        if not isinstance(value, self.kind):
            raise wrong(self.kind.__name__, value)
        found = {}
        for name, conversion, _ in self.fields:
            try:
                found[name] = conversion.to_json(getattr(value, name))
            except InvalidValue as problem:
                raise problem.within(name) from None
        return found

    def from_json(self, value: Json) -> Any:
        if not isinstance(value, dict):
            raise wrong(f"the fields of {self.kind.__name__}", value)
        found = {}
        for name, conversion, taken in self.fields:
            if taken and name in value:
                try:
                    found[name] = conversion.from_json(value[name])
                except InvalidValue as problem:
                    raise problem.within(name) from None
        for name in self.required:
            if name not in found:
                raise InvalidValue("is missing", name)
        try:
            return self.kind(**found)
        except (TypeError, ValueError) as error:  # its __post_init__ refuses them
            raise InvalidValue(f"{self.kind.__name__} cannot be made: {error}") from error


def is_pydantic(kind: object) -> bool:
    """Whether it is a model of pydantic 2, known by its methods: pydantic need not be installed."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump_json")


def pydantic_problem(error: ValueError) -> InvalidValue:
    """The first problem of pydantic's ValidationError, without the input."""
    problems: Callable[..., list[dict[str, Any]]] | None = getattr(error, "errors", None)
    if problems is None:
        return InvalidValue(str(error))
    first, *others = problems(include_url=False, include_input=False)
    problem = InvalidValue(first["msg"] + (f" (and {len(others)} more problems)" if others else ""))
    for step in reversed(first["loc"]):
        problem = problem.within(f"[{step}]" if isinstance(step, int) else str(step))
    return problem


def _pydantic(kind: Any) -> Conversion:
    def to_json(value: Any) -> Json:
        if not isinstance(value, kind):
            raise wrong(kind.__name__, value)
        return value.model_dump(mode="json", by_alias=True)

    def from_json(value: Json) -> Any:
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise pydantic_problem(error) from None

    return Conversion(to_json, from_json)


class Compiler:
    """Compiles the hints of one root type. `exact`: numbers with a fraction were read as Decimals, not as floats.

    That is needed if some field is a Decimal, and only then: `found_decimal` says so afterwards.
    """

    def __init__(self, exact: bool = False) -> None:
        self.found_decimal = False
        self._exact = exact
        self._records: dict[object, Record] = {}
        self._variables: dict[object, object] = {}

    def compile(self, hint: Any) -> Conversion:
        if isinstance(hint, typing.TypeVar) and hint in self._variables:
            hint = self._variables[hint]
        if isinstance(hint, typing.NewType):
            return self.compile(hint.__supertype__)
        origin, parts = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self.compile(parts[0])
        return self._simple(hint) or self._compound(origin or hint, parts, hint)

    def _simple(self, hint: Any) -> Conversion | None:
        if hint in SCALARS:
            self.found_decimal = self.found_decimal or hint is decimal.Decimal
            return SCALARS[hint]
        if hint is None or hint is types.NoneType:
            return Conversion(null, null)
        if hint is Any:
            return Conversion(_as_is, _without_decimals if self._exact else _as_is)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return enumeration(hint)
        if is_pydantic(hint):
            return _pydantic(hint)
        if hint is dict or hint is list:
            return _untyped(hint, self._exact)
        return None

    def _compound(self, origin: Any, parts: tuple[Any, ...], hint: Any) -> Conversion:
        if dataclasses.is_dataclass(origin) and isinstance(origin, type):
            return self._record(origin, parts, hint)
        if origin in (typing.Union, types.UnionType):
            return self._union(parts)
        if origin is typing.Literal:
            return literal(parts)
        if origin in (list, Sequence):
            return self._list(parts, list)
        if origin in (set, frozenset, AbstractSet):
            return self._list(parts, frozenset if origin is frozenset else set)
        if origin is tuple:
            return self._tuple(parts)
        if origin in (dict, Mapping):
            return self._dict(parts)
        shown = hint.__name__ if isinstance(hint, type) else str(hint)
        raise Unsupported(
            f"{shown} has no form in JSON: supported are dataclasses, pydantic models, enums, dict, list, set, tuple, "
            "str, int, float, bool, Decimal, datetime, date, time, UUID, bytes, unions and None"
        )

    def _record(self, kind: type, parts: tuple[Any, ...], hint: Any) -> Conversion:
        record = self._records.get(hint)
        if record is None:
            record = self._records[hint] = Record(kind)
            outer, self._variables = (
                self._variables,
                dict(zip(getattr(kind, "__parameters__", ()), parts, strict=False)),
            )
            hints = _hints(kind)
            for field in dataclasses.fields(kind):
                try:
                    record.fields.append((field.name, self.compile(hints[field.name]), field.init))
                except Unsupported as error:
                    raise Unsupported(f"{kind.__name__}.{field.name}: {error}") from None
                if field.init and field.default is field.default_factory is dataclasses.MISSING:
                    record.required.append(field.name)
            self._variables = outer
        return Conversion(record.to_json, record.from_json)

    def _union(self, parts: tuple[Any, ...]) -> Conversion:
        members = [self.compile(part) for part in parts if part is not types.NoneType]
        nullable = len(members) < len(parts)
        names = " or ".join(getattr(part, "__name__", str(part)) for part in parts)

        def attempt(value: Any, ways: list[Callable[[Any], Any]]) -> Any:
            if value is None and nullable:
                return None
            if len(ways) == 1:
                return ways[0](value)
            for way in ways:
                try:
                    return way(value)
                except InvalidValue:
                    continue
            raise wrong(names, value)

        writers, readers = [member.to_json for member in members], [member.from_json for member in members]
        return Conversion(lambda value: attempt(value, writers), lambda value: attempt(value, readers))

    def _list(self, parts: tuple[Any, ...], kind: type) -> Conversion:
        member = self.compile(parts[0] if parts else Any)
        accepted = (list, tuple) if kind is list else (set, frozenset)

        def to_json(value: Any) -> list[Json]:
            if not isinstance(value, accepted):
                raise wrong(kind.__name__, value)
            return _each(member.to_json, value)

        def from_json(value: Json) -> Any:
            if not isinstance(value, list):
                raise wrong("list", value)
            found = _each(member.from_json, value)
            return found if kind is list else kind(found)

        return Conversion(to_json, from_json)

    def _tuple(self, parts: tuple[Any, ...]) -> Conversion:
        if not parts or parts[-1] is Ellipsis:
            members = self._list(parts[:1], list)
            return Conversion(members.to_json, lambda value: tuple(members.from_json(value)))
        conversions = [self.compile(part) for part in parts]

        def convert(value: Any, ways: list[Callable[[Any], Any]]) -> list[Any]:
            if not isinstance(value, list | tuple) or len(value) != len(ways):
                raise wrong(f"a list of {len(ways)}", value)
            return [_step(way, each, index) for index, (way, each) in enumerate(zip(ways, value, strict=True))]

        writers, readers = [each.to_json for each in conversions], [each.from_json for each in conversions]
        return Conversion(lambda value: convert(value, writers), lambda value: tuple(convert(value, readers)))

    def _dict(self, parts: tuple[Any, ...]) -> Conversion:
        key_hint, value_hint = parts or (Any, Any)
        keys, values = _keys(key_hint, self), self.compile(value_hint)

        def convert(value: Any, way_of_keys: Callable[[Any], Any], way: Callable[[Any], Any]) -> dict[Any, Any]:
            if not isinstance(value, Mapping):
                raise wrong("dict", value)
            found = {}
            for name, each in value.items():
                try:
                    found[way_of_keys(name)] = way(each)
                except InvalidValue as problem:
                    raise problem.within(f"[{name!r}]") from None
            return found

        return Conversion(
            lambda value: convert(value, keys.to_json, values.to_json),
            lambda value: convert(value, keys.from_json, values.from_json),
        )


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, localns={kind.__name__: kind}, include_extras=True)
    except NameError as error:
        raise Unsupported(f"a type hint of {kind.__name__} names nothing that its module has: {error}") from None


def _step(way: Callable[[Any], Any], value: Any, index: int) -> Any:
    try:
        return way(value)
    except InvalidValue as problem:
        raise problem.within(f"[{index}]") from None


def _each(way: Callable[[Any], Any], values: Any) -> list[Any]:
    return [_step(way, value, index) for index, value in enumerate(values)]


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidValue("the name is no whole number") from None


def _keys(hint: Any, compiler: Compiler) -> Conversion:
    """Names in a JSON object are text."""
    if hint is int:
        check = SCALARS[int].to_json
        return Conversion(lambda value: str(check(value)), _whole_number)
    if hint is Any or hint in KEYS or (isinstance(hint, type) and issubclass(hint, enum.Enum)):
        return compiler.compile(str if hint is Any else hint)
    raise Unsupported(f"names in a JSON object are text: {hint} cannot be the type of a dict's keys")
