"""JSON as Avro and JSON Schema write it: read within bounds, write compactly. Knows no schema."""

import json
import math
from typing import TypeAlias

from moldau.schemas.schema import InvalidSchema

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject: TypeAlias = dict[str, Json]

MAX_JSON_NESTING = 256  # brackets in brackets


def read_json(text: str, what: str) -> Json:
    """The value of a JSON text. Raises InvalidSchema with line and column."""
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise InvalidSchema(f"{what}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise InvalidSchema(f"{what}: nested deeper than {MAX_JSON_NESTING} brackets") from None
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidSchema(f"{what}: {error}") from None
    _check_nesting(value, what)
    return value


def write_json(value: Json) -> str:
    """Compact JSON, keys in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_sorted_json(value: Json) -> str:
    """Compact JSON, keys sorted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large for a number")
    return number


def _check_nesting(value: Json, what: str) -> None:
    level: list[Json] = [value]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_JSON_NESTING:
            raise InvalidSchema(f"{what}: nested deeper than {MAX_JSON_NESTING} brackets")
        inner: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
        level = [item for item in inner if isinstance(item, dict | list)]
