"""Text of a .proto file from its elements: canonical as Confluent's registry stores it, and the normal form.

The order of sections, indentation and blank lines are those of the registry: its texts and ours must be the same.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from moldau.schemas.protobuf.elements import (
    MAX_FIELD_NUMBER,
    Constant,
    EnumElement,
    ExtendElement,
    ExtensionsElement,
    FieldElement,
    FileElement,
    GroupElement,
    Kind,
    ListLiteral,
    MapType,
    MessageElement,
    MessageLiteral,
    OneofElement,
    Option,
    OptionValue,
    Range,
    ReservedElement,
    RpcElement,
    ServiceElement,
)

_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", "'": "\\'", '"': '\\"',
}  # fmt: skip

KeepOption: TypeAlias = Callable[[Option], bool]


def print_file(file: FileElement, keep: KeepOption = lambda option: True) -> str:
    """The text of a file, with those of its options that `keep` takes."""
    return _Printer(keep).file(file)


class _Printer:
    def __init__(self, keep: KeepOption) -> None:
        self._keep = keep

    def file(self, file: FileElement) -> str:
        text = f'syntax = "{file.syntax}";\n' if file.syntax else ""
        if file.package:
            text += f"package {file.package};\n"
        text += _section(
            [f'import "{name}";\n' for name in file.imports]
            + [f'import public "{name}";\n' for name in file.public_imports]
        )
        text += _section(self._statements(file.options))
        text += _section([*map(self._message, file.messages), *map(self._enum, file.enums)])
        text += _section(map(self._extend, file.extends))
        return text + _section(map(self._service, file.services))

    def _message(self, message: MessageElement) -> str:
        return _braces(
            f"message {message.name}",
            map(_reserved, message.reserved),
            self._statements(message.options),
            map(self._field, message.fields),
            map(self._oneof, message.oneofs),
            map(self._group, message.groups),
            map(self._extensions, message.extensions),
            map(self._extend, message.extends),
            [*map(self._message, message.messages), *map(self._enum, message.enums)],
        )

    def _enum(self, enum: EnumElement) -> str:
        values = [f"{value.name} = {value.number}{self._options(value.options)};\n" for value in enum.values]
        return _braces(f"enum {enum.name}", [*map(_reserved, enum.reserved), *self._statements(enum.options), *values])

    def _oneof(self, oneof: OneofElement) -> str:
        return _braces(
            f"oneof {oneof.name}",
            self._statements(oneof.options),
            map(self._field, oneof.fields),
            map(self._group, oneof.groups),
        )

    def _group(self, group: GroupElement) -> str:
        label = f"{group.label} " if group.label else ""
        text = self._message(group.message)
        return f"{label}group {group.message.name} = {group.number}" + text[len(f"message {group.message.name}") :]

    def _extend(self, extend: ExtendElement) -> str:
        return _braces(f"extend {extend.name}", map(self._field, extend.fields), map(self._group, extend.groups))

    def _service(self, service: ServiceElement) -> str:
        return _braces(
            f"service {service.name}", self._statements(service.options), [self._rpc(rpc) for rpc in service.rpcs]
        )

    def _rpc(self, rpc: RpcElement) -> str:
        request = f"stream {rpc.request}" if rpc.request_streams else rpc.request
        response = f"stream {rpc.response}" if rpc.response_streams else rpc.response
        text = f"rpc {rpc.name} ({request}) returns ({response})"
        statements = self._statements(rpc.options)
        return f"{text} {{\n{_indented(statements)}}};\n" if statements else f"{text};\n"

    def _field(self, field: FieldElement) -> str:
        label = f"{field.label} " if field.label else ""
        special = ("default", "json_name")  # the registry writes them last
        options = sorted(field.options, key=lambda option: special.index(option.name) if option.name in special else -1)
        return f"{label}{type_text(field.type)} {field.name} = {field.number}{self._options(options)};\n"

    def _extensions(self, extensions: ExtensionsElement) -> str:
        return f"extensions {', '.join(map(_range, extensions.ranges))}{self._options(extensions.options)};\n"

    def _statements(self, options: Iterable[Option]) -> list[str]:
        return [f"option {_option(option)};\n" for option in options if self._keep(option)]

    def _options(self, options: Sequence[Option]) -> str:
        kept = [_option(option) for option in options if self._keep(option)]
        return f" {_brackets(kept)}" if kept else ""


def type_text(kind: str | MapType) -> str:
    return f"map<{kind.key}, {kind.value}>" if isinstance(kind, MapType) else kind


def _braces(head: str, *sections: Iterable[str]) -> str:
    """A block whose sections each begin with an empty line, but for the first."""
    return f"{head} {{" + "".join(f"\n{_indented(parts)}" for section in sections if (parts := list(section))) + "}\n"


def _section(parts: Iterable[str]) -> str:
    text = "".join(parts)
    return f"\n{text}" if text else ""


def _indented(parts: Iterable[str]) -> str:
    return "".join(f"  {line}\n" for part in parts for line in part.rstrip("\n").split("\n"))


def _brackets(values: Sequence[str]) -> str:
    if len(values) == 1:
        return f"[{values[0]}]"
    return f"[\n{_indented(_separated(values))}]"


def _separated(values: Sequence[str]) -> list[str]:
    return [f"{value}," for value in values[:-1]] + list(values[-1:])


def _option(option: Option) -> str:
    return f"{option.name} = {_value(option.value)}"


def _value(value: OptionValue) -> str:
    match value:
        case Constant(Kind.STRING, text):
            return '"' + "".join(_ESCAPES.get(character, character) for character in text) + '"'
        case Constant():
            return value.text
        case ListLiteral():
            return f"[\n{_indented(_separated([_value(item) for item in value.values]))}]"
        case MessageLiteral():
            return f"{{\n{_indented(_separated([f'{key}: {_value(item)}' for key, item in value.entries]))}}}"


def _reserved(reserved: ReservedElement) -> str:
    return f"reserved {', '.join(_reserved_value(value) for value in reserved.values)};\n"


def _reserved_value(value: Range | str) -> str:
    return _range(value) if isinstance(value, Range) else f'"{value}"'


def _range(item: Range) -> str:
    if item.first == item.last:
        return str(item.first)
    return f"{item.first} to {'max' if item.last >= MAX_FIELD_NUMBER else item.last}"
