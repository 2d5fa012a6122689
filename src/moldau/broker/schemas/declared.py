"""What a topic's settings declare of schemas: read from texts, and refused where they cannot be meant. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.base.settings import shortened
from moldau.log.settings import LATEST

SCHEMA_SETTINGS: Final = ("moldau.key.schema", "moldau.value.schema")
DEAD: Final = ".dead"  # the end of a dead letter topic's name


class Declared(NamedTuple):
    """A subject, and its version: None is the newest."""

    subject: str
    version: int | None


def declared(value: str) -> Declared:
    """The subject that a setting names, which was checked when it was set."""
    subject, at, version = value.rpartition("@")
    if not at:
        return Declared(value, None)
    return Declared(subject, None if version == LATEST else int(version))


def is_inline(value: str) -> bool:
    return value.startswith("{")


def problem_with(overrides: Mapping[str, str], changed: set[str]) -> Refusal | None:
    """Why no topic can have these settings. A schema that did not change is not read again."""
    for name in SCHEMA_SETTINGS:
        value = overrides.get(name, "").strip()
        if name in changed and is_inline(value):
            wrong = _unreadable(value)
            if wrong:
                return Refusal(WireError.INVALID_CONFIG, f"{name} is not a JSON Schema: {shortened(wrong)}")
    return None


def _unreadable(text: str) -> str | None:
    # Here, since few topics declare one: the room of schemas and its libraries take a while to import.
    from moldau.schemas import InvalidSchema, SchemaType, checker, parse

    try:
        checker(parse(SchemaType.JSON, text))
    except InvalidSchema as problem:
        return str(problem)
    return None
