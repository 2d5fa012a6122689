"""From a FileDescriptorProto back to elements: for schemas in base64 and for the well-known files."""

from collections.abc import Iterable

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.message import DecodeError, Message

from moldau.schemas.protobuf.elements import (
    Constant,
    EnumElement,
    EnumValueElement,
    ExtendElement,
    ExtensionsElement,
    FieldElement,
    FileElement,
    GroupElement,
    Kind,
    MapType,
    MessageElement,
    OneofElement,
    Option,
    Range,
    ReservedElement,
    RpcElement,
    ServiceElement,
)
from moldau.schemas.protobuf.names import json_name, type_names
from moldau.schemas.protobuf.tokens import unescape
from moldau.schemas.schema import MAX_NESTING, InvalidSchema

_LABELS = {1: "optional", 2: "required", 3: "repeated"}


def lift_file(serialized: bytes) -> FileElement:
    """The elements of a serialized FileDescriptorProto."""
    file = FileDescriptorProto()
    try:
        file.ParseFromString(serialized)
    except DecodeError as error:
        raise InvalidSchema(f"neither a .proto file nor a FileDescriptorProto in base64: {error}") from None
    if file.syntax not in ("", "proto2", "proto3"):
        raise InvalidSchema('editions are not supported: write syntax = "proto2" or "proto3"')
    lift = _Lift(file.syntax == "proto3")
    public = set(file.public_dependency)
    return FileElement(
        file.syntax or "proto2",
        file.package,
        tuple(name for index, name in enumerate(file.dependency) if index not in public),
        tuple(name for index, name in enumerate(file.dependency) if index in public),
        tuple(lift.message(message, 1) for message in file.message_type),
        tuple(_enum(enum) for enum in file.enum_type),
        lift.extends(file.extension),
        tuple(_service(service) for service in file.service),
        _options(file.options),
    )


class _Lift:
    def __init__(self, proto3: bool) -> None:
        self._proto3 = proto3

    def message(self, message: DescriptorProto, depth: int) -> MessageElement:
        if depth > MAX_NESTING:
            raise InvalidSchema(f"{message.name} is nested deeper than {MAX_NESTING}")
        nested = {inner.name: inner for inner in message.nested_type}
        maps = {name for name, inner in nested.items() if inner.options.map_entry}
        groups = {field.type_name.rpartition(".")[2] for field in message.field if _is_group(field)}
        real_oneofs = [index for index in range(len(message.oneof_decl)) if not _synthetic(message, index)]
        top = [field for field in message.field if not field.HasField("oneof_index") or field.proto3_optional]
        members = {
            index: [f for f in message.field if f not in top and f.oneof_index == index] for index in real_oneofs
        }
        return MessageElement(
            message.name,
            tuple(self.field(field, nested) for field in top if not _is_group(field)),
            tuple(
                OneofElement(
                    message.oneof_decl[index].name,
                    tuple(self.field(field, nested, in_oneof=True) for field in members[index] if not _is_group(field)),
                    tuple(self._group(field, nested, depth, "") for field in members[index] if _is_group(field)),
                    _options(message.oneof_decl[index].options),
                )
                for index in real_oneofs
            ),
            tuple(self._group(field, nested, depth, _LABELS[field.label]) for field in top if _is_group(field)),
            tuple(
                self.message(inner, depth + 1)
                for inner in message.nested_type
                if inner.name not in maps and inner.name not in groups
            ),
            tuple(_enum(enum) for enum in message.enum_type),
            _reserved(message),
            tuple(
                ExtensionsElement((Range(item.start, item.end - 1),), _options(item.options))
                for item in message.extension_range
            ),
            self.extends(message.extension),
            tuple(option for option in _options(message.options) if option.name != "map_entry"),
        )

    def field(
        self, field: FieldDescriptorProto, nested: dict[str, DescriptorProto], *, in_oneof: bool = False
    ) -> FieldElement:
        entry = nested.get(field.type_name.rpartition(".")[2])
        label = _LABELS[field.label]
        kind: str | MapType = _type(field)
        if entry is not None and entry.options.map_entry:
            kind, label = MapType(_type(entry.field[0]), _type(entry.field[1])), ""
        elif in_oneof or (self._proto3 and label == "optional" and not field.proto3_optional):
            label = ""
        options = list(_options(field.options))
        if field.HasField("default_value"):
            options.append(Option("default", _default(field)))
        if field.json_name and field.json_name != json_name(field.name):
            options.append(Option("json_name", Constant(Kind.STRING, field.json_name)))
        return FieldElement(field.name, field.number, kind, label, tuple(options))

    def extends(self, fields: Iterable[FieldDescriptorProto]) -> tuple[ExtendElement, ...]:
        by_type: dict[str, list[FieldElement]] = {}
        for field in fields:
            if not _is_group(field):
                by_type.setdefault(field.extendee, []).append(self.field(field, {}))
        return tuple(ExtendElement(name, tuple(found)) for name, found in by_type.items())

    def _group(
        self, field: FieldDescriptorProto, nested: dict[str, DescriptorProto], depth: int, label: str
    ) -> GroupElement:
        inner = nested.get(field.type_name.rpartition(".")[2])
        if inner is None:
            raise InvalidSchema(f"the group {field.type_name} is not defined")
        return GroupElement(label, field.number, self.message(inner, depth + 1))


def _is_group(field: FieldDescriptorProto) -> bool:
    return field.type == FieldDescriptor.TYPE_GROUP


def _synthetic(message: DescriptorProto, index: int) -> bool:
    """Whether a oneof only marks a field as optional, in proto3."""
    return any(field.proto3_optional and field.oneof_index == index for field in message.field)


def _type(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return field.type_name
    return type_names()[field.type]


def _default(field: FieldDescriptorProto) -> Constant:
    if field.type == FieldDescriptor.TYPE_STRING:
        return Constant(Kind.STRING, field.default_value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return Constant(Kind.STRING, unescape(field.default_value))
    number = field.default_value[:1].isdigit() or field.default_value.startswith("-")
    return Constant(Kind.NUMBER if number else Kind.IDENTIFIER, field.default_value)


def _enum(enum: EnumDescriptorProto) -> EnumElement:
    reserved: list[Range | str] = [Range(item.start, item.end) for item in enum.reserved_range]
    return EnumElement(
        enum.name,
        tuple(EnumValueElement(value.name, value.number, _options(value.options)) for value in enum.value),
        tuple(ReservedElement((value,)) for value in (*reserved, *enum.reserved_name)),
        _options(enum.options),
    )


def _reserved(message: DescriptorProto) -> tuple[ReservedElement, ...]:
    values: list[Range | str] = [Range(item.start, item.end - 1) for item in message.reserved_range]
    return tuple(ReservedElement((value,)) for value in (*values, *message.reserved_name))


def _service(service: ServiceDescriptorProto) -> ServiceElement:
    rpcs = tuple(
        RpcElement(
            method.name,
            method.input_type,
            method.output_type,
            method.client_streaming,
            method.server_streaming,
            _options(method.options),
        )
        for method in service.method
    )
    return ServiceElement(service.name, rpcs, _options(service.options))


def _options(options: Message) -> tuple[Option, ...]:
    """The scalar options that Protobuf itself defines; custom ones are unknown fields here."""
    found = []
    for field, value in options.ListFields():
        if field.is_repeated or field.is_extension or field.message_type is not None:
            continue
        if field.enum_type is not None:
            constant = Constant(Kind.IDENTIFIER, field.enum_type.values_by_number[value].name)
        elif isinstance(value, bool):
            constant = Constant(Kind.IDENTIFIER, "true" if value else "false")
        elif isinstance(value, str):
            constant = Constant(Kind.STRING, value)
        else:
            constant = Constant(Kind.NUMBER, str(value))
        found.append(Option(field.name, constant))
    return tuple(found)
