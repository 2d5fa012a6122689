"""The parts of a .proto file as values, as they are written: names are not resolved, comments are gone."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

MAX_FIELD_NUMBER = 536_870_911
MAX_ENUM_NUMBER = 2_147_483_647


class Kind(Enum):
    """What a constant of an option is."""

    STRING = "string"
    NUMBER = "number"
    IDENTIFIER = "identifier"


@dataclass(frozen=True, slots=True)
class Constant:
    kind: Kind
    text: str  # of a string without quotes and escapes


@dataclass(frozen=True, slots=True)
class MessageLiteral:
    entries: "tuple[tuple[str, OptionValue], ...]"


@dataclass(frozen=True, slots=True)
class ListLiteral:
    values: "tuple[OptionValue, ...]"


OptionValue: TypeAlias = Constant | MessageLiteral | ListLiteral


@dataclass(frozen=True, slots=True)
class Option:
    name: str  # with parentheses and parts: java_package, (confluent.field_meta), (a.b).c
    value: OptionValue

    @property
    def custom(self) -> bool:
        return self.name.startswith("(")


@dataclass(frozen=True, slots=True)
class Range:
    first: int
    last: int  # inclusive


@dataclass(frozen=True, slots=True)
class MapType:
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class FieldElement:
    name: str
    number: int
    type: str | MapType
    label: str = ""  # optional, required, repeated
    options: tuple[Option, ...] = ()
    line: int = 0

    def option(self, name: str) -> OptionValue | None:
        return next((option.value for option in self.options if option.name == name), None)


@dataclass(frozen=True, slots=True)
class GroupElement:
    """A field whose message is defined in place, in proto2."""

    label: str
    number: int
    message: "MessageElement"


@dataclass(frozen=True, slots=True)
class OneofElement:
    name: str
    fields: tuple[FieldElement, ...]
    groups: tuple[GroupElement, ...] = ()
    options: tuple[Option, ...] = ()
    line: int = 0


@dataclass(frozen=True, slots=True)
class ExtensionsElement:
    ranges: tuple[Range, ...]
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtendElement:
    name: str
    fields: tuple[FieldElement, ...]
    groups: tuple[GroupElement, ...] = ()


@dataclass(frozen=True, slots=True)
class EnumValueElement:
    name: str
    number: int
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class ReservedElement:
    """One statement: numbers or names."""

    values: tuple[Range | str, ...]


@dataclass(frozen=True, slots=True)
class EnumElement:
    name: str
    values: tuple[EnumValueElement, ...]
    reserved: tuple[ReservedElement, ...] = ()
    options: tuple[Option, ...] = ()
    line: int = 0


@dataclass(frozen=True, slots=True)
class MessageElement:
    name: str
    fields: tuple[FieldElement, ...] = ()
    oneofs: tuple[OneofElement, ...] = ()
    groups: tuple[GroupElement, ...] = ()
    messages: "tuple[MessageElement, ...]" = ()
    enums: tuple[EnumElement, ...] = ()
    reserved: tuple[ReservedElement, ...] = ()
    extensions: tuple[ExtensionsElement, ...] = ()
    extends: tuple[ExtendElement, ...] = ()
    options: tuple[Option, ...] = ()
    line: int = 0

    def all_fields(self) -> Iterator[FieldElement]:
        """Its fields, those of oneofs included, groups left out."""
        yield from self.fields
        for oneof in self.oneofs:
            yield from oneof.fields

    def all_groups(self) -> Iterator[GroupElement]:
        yield from self.groups
        for oneof in self.oneofs:
            yield from oneof.groups

    def all_messages(self) -> "Iterator[MessageElement]":
        """The messages directly inside, those of groups included."""
        yield from self.messages
        for group in self.all_groups():
            yield group.message
        for extend in self.extends:
            for group in extend.groups:
                yield group.message


@dataclass(frozen=True, slots=True)
class RpcElement:
    name: str
    request: str
    response: str
    request_streams: bool = False
    response_streams: bool = False
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceElement:
    name: str
    rpcs: tuple[RpcElement, ...] = ()
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class FileElement:
    syntax: str = ""  # proto2, proto3; proto2 if it is not written
    package: str = ""
    imports: tuple[str, ...] = ()
    public_imports: tuple[str, ...] = ()
    messages: tuple[MessageElement, ...] = ()
    enums: tuple[EnumElement, ...] = ()
    extends: tuple[ExtendElement, ...] = ()
    services: tuple[ServiceElement, ...] = ()
    options: tuple[Option, ...] = ()

    @property
    def proto3(self) -> bool:
        return self.syntax == "proto3"
