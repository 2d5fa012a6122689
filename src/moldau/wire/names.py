"""Names in messages: renames the topics, groups and transactional ids of any message. Knows no rule for names.

The declarations say which fields are names (`TOPIC_NAME`, `GROUP_ID`, …), so a message that is added later is covered
by its own declaration.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from moldau.wire.declare import (
    ASSIGNMENT,
    SUBSCRIPTION,
    TOPIC_ID,
    Array,
    Field,
    Kind,
    Name,
    NameOf,
    Nested,
    fields_of,
    replace,
)
from moldau.wire.messages.consumer_protocol import (
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
    write_subscription,
)
from moldau.wire.primitives import MalformedMessage

T = TypeVar("T")

ERROR_TEXT: Final = "error_message"  # the fields with texts for people end so; they may mention names


class Renaming(Protocol):
    """The rule: from a name of one side to that of the other. None for a name that the other side may not see."""

    def name(self, kind: Name, name: str, /) -> str | None: ...

    def topic_id(self, topic_id: UUID, /) -> UUID: ...

    def text(self, text: str, /) -> str: ...


Convert = Callable[[Any, Any, Renaming], Any]  # the struct, a field's value, the rule; None: leave the struct out


def renamed(message: T, renaming: Renaming) -> T | None:
    """The message with other names. Array elements whose name has no counterpart are left out; None for the message."""
    changes: dict[str, object] = {}
    for field, convert in _plan(type(message)):
        old = getattr(message, field)
        if old is None:
            continue
        new = convert(message, old, renaming)
        if new is None:
            return None
        if new is not old:
            changes[field] = new
    return replace(message, **changes) if changes else message


_plans: dict[type, tuple[tuple[str, Convert], ...]] = {}


def _plan(cls: type) -> tuple[tuple[str, Convert], ...]:
    """The fields of a struct that are names or hold some, each with its conversion."""
    plan = _plans.get(cls)
    if plan is None:
        found = ((field.name, _convert(field)) for field in fields_of(cls))
        plan = _plans[cls] = tuple((name, convert) for name, convert in found if convert is not None)
    return plan


def _convert(field: Field) -> Convert | None:
    if field.name.endswith(ERROR_TEXT):
        return lambda struct, text, renaming: renaming.text(text)
    return _of_kind(field.kind)


def _of_kind(kind: Kind[Any]) -> Convert | None:
    match kind:
        case Name():
            return lambda struct, name, renaming: renaming.name(kind, name)
        case NameOf():
            return lambda struct, name, renaming: _of_type(kind, struct, name, renaming)
        case Array():
            each = _of_kind(kind.of)
            return None if each is None else lambda struct, values, renaming: _all(struct, values, each, renaming)
        case Nested() if _plan(kind.cls):
            return lambda struct, value, renaming: renamed(value, renaming)
    if kind is TOPIC_ID:
        return lambda struct, topic_id, renaming: renaming.topic_id(topic_id)
    if kind is SUBSCRIPTION:
        return lambda struct, data, renaming: _embedded(read_subscription, write_subscription, data, renaming)
    if kind is ASSIGNMENT:
        return lambda struct, data, renaming: _embedded(read_assignment, write_assignment, data, renaming)
    return None


def _embedded(read: Callable[[bytes], T], write: Callable[[T, int], bytes], data: bytes, renaming: Renaming) -> bytes:
    """The bytes of a classic member with other names. What is not of the consumer protocol stays as it is."""
    try:
        version, value = read_version(data), read(data)
    except MalformedMessage:
        return data
    if write(value, version) != data:  # a newer version, which would lose what is not known here
        return data
    after = renamed(value, renaming)
    assert after is not None  # all names are in arrays
    return write(after, version)


def _of_type(kind: NameOf, struct: object, name: str, renaming: Renaming) -> str | None:
    of = kind.types.get(getattr(struct, kind.field))
    return name if of is None else renaming.name(of, name)


def _all(struct: object, values: tuple[Any, ...], convert: Convert, renaming: Renaming) -> tuple[Any, ...]:
    converted = (convert(struct, value, renaming) for value in values)
    return tuple(value for value in converted if value is not None)
