"""From elements to FileDescriptorProtos, with all names resolved. Custom options are left out: decoding needs none."""

import struct
from collections.abc import Iterable, MutableSequence
from typing import TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.message import Message

from moldau.schemas.protobuf.elements import (
    Constant,
    EnumElement,
    ExtendElement,
    FieldElement,
    FileElement,
    GroupElement,
    Kind,
    MapType,
    MessageElement,
    Option,
    OptionValue,
    Range,
)
from moldau.schemas.protobuf.linking import Linked, within
from moldau.schemas.protobuf.names import entry_name, json_name
from moldau.schemas.schema import InvalidSchema

_LABELS = {
    "": FieldDescriptorProto.LABEL_OPTIONAL,
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}

_Messages: TypeAlias = MutableSequence[DescriptorProto]
_Fields: TypeAlias = MutableSequence[FieldDescriptorProto]


def lower_file(name: str, linked: Linked) -> FileDescriptorProto:
    """The descriptor of one of the linked files."""
    return _Lower(name, linked).file()


class _Lower:
    def __init__(self, name: str, linked: Linked) -> None:
        self._name = name
        self._linked = linked
        self._file: FileElement = linked.files[name]

    def file(self) -> FileDescriptorProto:
        file = self._file
        lowered = FileDescriptorProto(name=self._name, package=file.package or None)
        if file.proto3:
            lowered.syntax = "proto3"
        lowered.dependency.extend((*file.imports, *file.public_imports))
        lowered.public_dependency.extend(range(len(file.imports), len(lowered.dependency)))
        lowered.message_type.extend(self._message(message, file.package) for message in file.messages)
        lowered.enum_type.extend(_enum(enum) for enum in file.enums)
        self._extends(file.extends, file.package, lowered.extension, lowered.message_type)
        for service in file.services:
            added = lowered.service.add(name=service.name)
            _set_options(added, service.options)
            scope = within(file.package, service.name)
            for rpc in service.rpcs:
                method = added.method.add(name=rpc.name, input_type=self._named(rpc.request, scope))
                method.output_type = self._named(rpc.response, scope)
                _set_options(method, rpc.options)
                if rpc.request_streams:
                    method.client_streaming = True
                if rpc.response_streams:
                    method.server_streaming = True
        _set_options(lowered, file.options)
        return lowered

    def _message(self, message: MessageElement, scope: str) -> DescriptorProto:
        full = within(scope, message.name)
        lowered = DescriptorProto(name=message.name)
        for field in message.fields:
            lowered.field.append(self._field(field, full, lowered.nested_type))
        for group in message.groups:
            lowered.field.append(self._group(group, full, lowered.nested_type))
        for index, oneof in enumerate(message.oneofs):
            _set_options(lowered.oneof_decl.add(name=oneof.name), oneof.options)
            for field in oneof.fields:
                lowered.field.append(self._field(field, full, lowered.nested_type))
                lowered.field[-1].oneof_index = index
            for group in oneof.groups:
                lowered.field.append(self._group(group, full, lowered.nested_type))
                lowered.field[-1].oneof_index = index
        lowered.nested_type.extend(self._message(inner, full) for inner in message.messages)
        lowered.enum_type.extend(_enum(enum) for enum in message.enums)
        self._extends(message.extends, full, lowered.extension, lowered.nested_type)
        for extensions in message.extensions:
            for item in extensions.ranges:
                _set_options(lowered.extension_range.add(start=item.first, end=item.last + 1), extensions.options)
        for reserved in message.reserved:
            for value in reserved.values:
                if isinstance(value, Range):
                    lowered.reserved_range.add(start=value.first, end=value.last + 1)
                else:
                    lowered.reserved_name.append(value)
        _set_options(lowered, message.options)
        self._mark_optional(lowered)
        return lowered

    def _mark_optional(self, message: DescriptorProto) -> None:
        """Each optional field of proto3 gets a oneof of its own, after the real ones."""
        taken = {field.name for field in message.field} | {oneof.name for oneof in message.oneof_decl}
        for field in message.field:
            if field.proto3_optional:
                name = f"_{field.name}"
                while name in taken:
                    name = f"X{name}"
                taken.add(name)
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=name)

    def _field(self, field: FieldElement, scope: str, nested: _Messages) -> FieldDescriptorProto:
        lowered = FieldDescriptorProto(name=field.name, number=field.number, label=_LABELS[field.label])
        lowered.json_name = json_name(field.name)
        if isinstance(field.type, MapType):
            lowered.label = FieldDescriptorProto.LABEL_REPEATED
            lowered.type = FieldDescriptorProto.TYPE_MESSAGE
            entry = self._entry(field, field.type, scope)
            lowered.type_name = f".{within(scope, entry.name)}"
            nested.append(entry)
        else:
            self._set_type(lowered, field.type, scope)
        if self._file.proto3 and field.label == "optional":
            lowered.proto3_optional = True
        plain = []
        for option in field.options:
            if option.name == "json_name":
                lowered.json_name = _text(option.value, field)
            elif option.name == "default":
                lowered.default_value = _default(_text(option.value, field), lowered.type)
            else:
                plain.append(option)
        _set_options(lowered, plain)
        return lowered

    def _set_type(self, field: FieldDescriptorProto, name: str, scope: str) -> None:
        scalar = getattr(FieldDescriptorProto, f"TYPE_{name.upper()}", None) if name.islower() else None
        if scalar is not None and name not in ("message", "enum", "group"):
            field.type = scalar
            return
        found = self._linked.resolve(name, scope)
        if found is None:
            raise InvalidSchema(f"the type {name} is not defined")
        is_enum = isinstance(found.element, EnumElement)
        field.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{found.full_name}"

    def _entry(self, field: FieldElement, kind: MapType, scope: str) -> DescriptorProto:
        entry = DescriptorProto(name=entry_name(field.name))
        entry.options.map_entry = True
        for number, (name, inner) in enumerate((("key", kind.key), ("value", kind.value)), 1):
            added = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL, json_name=name)
            self._set_type(added, inner, scope)
        return entry

    def _group(self, group: GroupElement, scope: str, nested: _Messages) -> FieldDescriptorProto:
        name = group.message.name.lower()
        nested.append(self._message(group.message, scope))
        return FieldDescriptorProto(
            name=name,
            number=group.number,
            label=_LABELS[group.label],
            type=FieldDescriptorProto.TYPE_GROUP,
            type_name=f".{within(scope, group.message.name)}",
            json_name=json_name(name),
        )

    def _extends(self, extends: Iterable[ExtendElement], scope: str, target: _Fields, nested: _Messages) -> None:
        for extend in extends:
            extendee = self._named(extend.name, scope)
            for field in extend.fields:
                target.append(self._field(field, scope, nested))
                target[-1].extendee = extendee
            for group in extend.groups:
                target.append(self._group(group, scope, nested))
                target[-1].extendee = extendee

    def _named(self, name: str, scope: str) -> str:
        found = self._linked.resolve(name, scope)
        return f".{found.full_name}" if found else name


def _enum(enum: EnumElement) -> EnumDescriptorProto:
    lowered = EnumDescriptorProto(name=enum.name)
    for value in enum.values:
        _set_options(lowered.value.add(name=value.name, number=value.number), value.options)
    for reserved in enum.reserved:
        for item in reserved.values:
            if isinstance(item, Range):
                lowered.reserved_range.add(start=item.first, end=item.last)
            else:
                lowered.reserved_name.append(item)
    _set_options(lowered, enum.options)
    return lowered


def _text(value: OptionValue, field: FieldElement) -> str:
    if not isinstance(value, Constant):
        raise InvalidSchema(f"line {field.line}: the default and json_name of {field.name} are constants")
    return value.text


def _default(text: str, kind: int) -> str:
    """A default as descriptors write it."""
    match kind:
        case FieldDescriptor.TYPE_BYTES:
            return "".join(_escaped(byte) for byte in text.encode("latin-1", "replace"))
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
            return _decimal(text, kind)
        case FieldDescriptor.TYPE_STRING | FieldDescriptor.TYPE_BOOL | FieldDescriptor.TYPE_ENUM:
            return text
    digits = text.lstrip("-").lower()
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    return f"{'-' if text.startswith('-') else ''}{int(digits, base)}"


def _decimal(text: str, kind: int) -> str:
    if text.lstrip("-") in ("inf", "nan"):
        return text
    number = float(int(text, 0)) if text.lower().lstrip("-").startswith("0x") else float(text.rstrip("fF"))
    digits = f"{number:.15g}"
    if kind == FieldDescriptor.TYPE_FLOAT:
        short = f"{number:.6g}"
        digits = short if struct.pack("f", float(short)) == struct.pack("f", number) else f"{number:.9g}"
    elif float(digits) != number:
        digits = f"{number:.17g}"
    return digits


def _escaped(byte: int) -> str:
    named = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}
    return named.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")


def _set_options(target: Message, options: Iterable[Option]) -> None:
    """Set the options that Protobuf defines; others are of a newer version of it, or custom."""
    for option in options:
        if option.custom or not isinstance(option.value, Constant):
            continue
        holder: Message = target.options  # type: ignore[attr-defined]
        field = holder.DESCRIPTOR.fields_by_name.get(option.name)
        if field is None or field.is_repeated or field.message_type is not None:
            continue
        text = option.value.text
        if field.enum_type is not None:
            named = field.enum_type.values_by_name.get(text)
            if named is None:
                raise InvalidSchema(f"{text} is no value of the option {option.name}")
            setattr(holder, option.name, named.number)
        else:
            value = text if option.value.kind is Kind.STRING else {"true": True, "false": False}.get(text)
            try:
                setattr(holder, option.name, value)
            except TypeError:
                raise InvalidSchema(f"{text} is no value of the option {option.name}") from None
