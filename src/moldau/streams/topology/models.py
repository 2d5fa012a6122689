"""Python classes as schemas: dataclasses and pydantic models, their types, and values of them from and to dictionaries.

Pydantic is recognized by its methods, not imported: who uses it has it.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal as Exact
from typing import Any, Final, TypeAlias

from moldau.streams.sql.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    Struct,
    Type,
)
from moldau.streams.topology.refusals import TopologyRefused

Model: TypeAlias = type[Any]
Convert: TypeAlias = Callable[[Any], Any]

OF_PYTHON: Final[Mapping[Any, Type]] = {
    str: STRING,
    int: BIGINT,
    float: DOUBLE,
    bool: BOOLEAN,
    bytes: BINARY,
    datetime: TIMESTAMP,
    date: DATE,
    Exact: Decimal(38, 18),
}
SUPPORTED: Final = (
    "str, int, float, bool, bytes, datetime, date, Decimal, list[…], dict[str, …], dataclasses and pydantic models"
)


def is_pydantic(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_fields") and hasattr(kind, "model_validate")


def is_model(kind: object) -> bool:
    return is_pydantic(kind) or (isinstance(kind, type) and dataclasses.is_dataclass(kind))


def type_of(annotation: Any, where: str) -> Type:
    """The type of an annotation; `where` is named if there is none."""
    inner, _ = _optional(annotation)
    if inner in OF_PYTHON:
        return OF_PYTHON[inner]
    if is_model(inner):
        return schema_of(inner)
    origin, arguments = typing.get_origin(inner), typing.get_args(inner)
    if origin is list and len(arguments) == 1:
        return Array(type_of(arguments[0], where))
    if origin is dict and len(arguments) == 2:
        return Map(type_of(arguments[0], where), type_of(arguments[1], where))
    name = getattr(inner, "__name__", str(inner))
    raise TopologyRefused(f"{where} is a {name}, which has no type in a topic. There are {SUPPORTED}")


def schema_of(model: Model) -> Struct:
    """The fields of a dataclass or a pydantic model. Those without a default and without None must be in each value."""
    hints = typing.get_type_hints(model)
    if is_pydantic(model):
        required = {name: info.is_required() for name, info in model.model_fields.items()}
    else:
        required = {
            each.name: each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
            for each in dataclasses.fields(model)
        }
    fields = []
    for name, needed in required.items():
        _, optional = _optional(hints[name])
        fields.append(Field(name, type_of(hints[name], f"{model.__name__}.{name}"), optional or not needed))
    if not fields:
        raise TopologyRefused(f"{model.__name__} has no fields")
    return Struct(tuple(fields))


def from_dictionary(model: Model) -> Convert:
    """A function that makes an instance of a dictionary; fields that are null take their default."""
    if is_pydantic(model):
        return lambda value: None if value is None else model.model_validate(_present(value))
    hints = typing.get_type_hints(model)
    inner = {each.name: _reader(hints[each.name]) for each in dataclasses.fields(model)}

    def make(value: Any) -> Any:
        if value is None or isinstance(value, model):
            return value
        return model(**{name: inner[name](each) for name, each in _present(value).items() if name in inner})

    return make


def to_dictionary(value: Any) -> Any:
    """What a Python function returned, as a value of a topic: models become dictionaries."""
    if is_pydantic(type(value)):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_dictionary(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [to_dictionary(each) for each in value]
    if isinstance(value, dict):
        return {name: to_dictionary(each) for name, each in value.items()}
    return value


def _present(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if each is not None}


def _reader(annotation: Any) -> Convert:
    inner, _ = _optional(annotation)
    if is_model(inner):
        return from_dictionary(inner)
    arguments = typing.get_args(inner)
    if typing.get_origin(inner) is list and arguments and is_model(arguments[0]):
        make = from_dictionary(arguments[0])
        return lambda values: [make(each) for each in values]
    return lambda value: value


def _optional(annotation: Any) -> tuple[Any, bool]:
    """`X | None` is X, and may be null."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        others = [each for each in typing.get_args(annotation) if each is not type(None)]
        if len(others) == 1:
            return others[0], True
    return annotation, False
