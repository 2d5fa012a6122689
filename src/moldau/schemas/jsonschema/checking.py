"""Validation of JSON payloads by jsonschema-rs, after a strict reading of the JSON."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.schemas.json_text import Json, read_json
from moldau.schemas.jsonschema.schema import JsonSchema
from moldau.schemas.jsonschema.validators import compile_validator
from moldau.schemas.schema import ParsedSchema, reason

if TYPE_CHECKING:
    from jsonschema_rs import Validator


class JsonChecker:
    """Validates JSON texts against one schema."""

    def __init__(self, validator: "Validator") -> None:
        self._validator = validator
        self._decode = json.JSONDecoder(parse_constant=_refuse).raw_decode

    def check(self, values: Sequence[bytes]) -> dict[int, str]:
        decode, is_valid = self._decode, self._validator.is_valid
        faults: dict[int, str] = {}
        for index, value in enumerate(values):
            try:
                text = value.decode().strip(" \t\r\n")
                instance, end = decode(text)
                if end != len(text):
                    faults[index] = f"not JSON: text after the value at character {end + 1}"
                elif not is_valid(instance):
                    faults[index] = self._explain(instance)
            except RecursionError:
                faults[index] = "not JSON that can be checked: nested too deeply"
            except (UnicodeDecodeError, UnicodeEncodeError) as error:  # of a lone surrogate in an escape
                faults[index] = reason(f"not JSON: {error.reason} at {error.start}")
            except ValueError as error:
                faults[index] = reason(f"not JSON: {error}")
        return faults

    def _explain(self, instance: Json) -> str:
        for error in self._validator.iter_errors(instance):
            path = "/".join(map(str, ("#", *error.instance_path)))
            return reason(f"{path}: {error.message}")
        return "#: does not fit the schema"


def json_schema_checker(parsed: ParsedSchema) -> JsonChecker:
    assert isinstance(parsed, JsonSchema)
    referenced = {name: read_json(text, name) for name, text in parsed.references.items()}
    return JsonChecker(compile_validator(parsed.documents, referenced))


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
