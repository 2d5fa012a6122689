"""Checkers of payloads: plain values, without any schema id in front. Compiled once per schema, made for bulk."""

from collections.abc import Sequence
from typing import Protocol

from moldau.schemas.schema import ParsedSchema, SchemaType


class PayloadChecker(Protocol):
    """Says which of many values do not fit a schema. Keeps nothing between calls."""

    def check(self, values: Sequence[bytes]) -> dict[int, str]:
        """The index of each value that does not fit, and why. Never raises for what a value contains."""


def checker(parsed: ParsedSchema, message: str | None = None) -> PayloadChecker:
    """Compile the checker of a schema, or raise InvalidSchema if its payloads cannot be checked safely.

    `message` names the Protobuf message of the payloads; it is the first of the file otherwise.
    """
    match parsed.schema_type:
        case SchemaType.AVRO:
            from moldau.schemas.avro.checking import avro_checker

            return avro_checker(parsed)
        case SchemaType.JSON:
            from moldau.schemas.jsonschema.checking import json_schema_checker

            return json_schema_checker(parsed)
        case SchemaType.PROTOBUF:
            from moldau.schemas.protobuf.checking import protobuf_checker

            return protobuf_checker(parsed, message)
