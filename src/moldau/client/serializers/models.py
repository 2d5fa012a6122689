"""Values as JSON: dataclasses, pydantic models, and every type that `conversions` has a form for.

pydantic models convert themselves: their validators, aliases and settings hold. Moldau does not need pydantic.
"""

import contextlib
import decimal
import json
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

from moldau.client.serializers.conversions import Compiler, is_pydantic, pydantic_problem
from moldau.client.serializers.port import SerializerContext
from moldau.client.serializers.scalars import Conversion, InvalidValue, Json, Unsupported, wrong

T = TypeVar("T")
MOST_TYPES = 1024  # of values inside untyped ones, whose conversions are remembered


class Model(Generic[T]):
    """The Serde of a type: its values as JSON text in UTF-8."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        if is_pydantic(kind):
            self._write, self._read = _pydantic(kind)
            return
        compiler = Compiler()
        conversion = compiler.compile(kind)
        decode = _DECODER.decode
        if compiler.found_decimal:
            conversion, decode = Compiler(exact=True).compile(kind), _EXACT.decode
        self._write = lambda obj: _text(conversion.to_json(obj)).encode()
        self._read = lambda value: conversion.from_json(decode(value.decode()))

    def serialize(self, obj: T | None, ctx: SerializerContext, /) -> bytes | None:
        return None if obj is None else cast(bytes, self._write(obj))

    def deserialize(self, value: bytes | None, ctx: SerializerContext, /) -> T:
        return cast(T, None if value is None else self._read(value))

    def __repr__(self) -> str:
        return f"Model({getattr(self.kind, '__name__', self.kind)})"


def _pydantic(kind: Any) -> Conversion:
    def write(obj: Any) -> bytes:
        if not isinstance(obj, kind):
            raise wrong(kind.__name__, obj)
        return cast(str, cast(Any, obj).model_dump_json(by_alias=True)).encode()

    def read(value: bytes) -> Any:
        try:
            return kind.model_validate_json(value)
        except ValueError as error:
            raise pydantic_problem(error) from None

    return Conversion(write, read)


def _text(value: Json) -> str:
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError):
        with contextlib.suppress(RecursionError):  # a list that contains itself
            _name_the_field(value)
        raise


def _name_the_field(value: Json) -> None:
    """Raise the problem of the first part that cannot be written, with the path to it."""
    if isinstance(value, dict | list | tuple):
        for step, part in value.items() if isinstance(value, dict) else enumerate(value):
            try:
                _name_the_field(part)
            except InvalidValue as problem:
                raise problem.within(f"[{step}]" if isinstance(step, int) else str(step)) from None
        return
    try:
        _ENCODER.encode(value)
    except InvalidValue:
        raise
    except ValueError as error:
        raise InvalidValue(str(error)) from None


def _undeclared(value: Any) -> Json:
    """The form of a value that json has none for, and whose type no hint tells."""
    try:
        return _conversion_of(cast(Hashable, type(value))).to_json(value)
    except Unsupported as error:
        raise InvalidValue(str(error)) from None


@lru_cache(MOST_TYPES)
def _conversion_of(kind: Hashable) -> Conversion:
    return Compiler().compile(kind)


def _no_constant(name: str) -> Json:
    raise InvalidValue(f"JSON has no {name}")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_undeclared)
_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_EXACT = json.JSONDecoder(parse_constant=_no_constant, parse_float=decimal.Decimal)

JSON: Model[Any] = Model(cast(type[Any], Any))
