"""The normal form of a .proto file: fields by number, options by name, types by full name, imports sorted.

Messages keep their order: clients write their indexes into payloads.
"""

from collections.abc import Iterable
from dataclasses import replace

from moldau.schemas.protobuf.elements import (
    EnumElement,
    ExtendElement,
    FieldElement,
    FileElement,
    GroupElement,
    MapType,
    MessageElement,
    MessageLiteral,
    OneofElement,
    Option,
    OptionValue,
    Range,
    ReservedElement,
)
from moldau.schemas.protobuf.linking import SCALARS, Linked, within


def normal_file(linked: Linked) -> FileElement:
    """The root file in normal form."""
    return _Normal(linked).file(linked.root)


class _Normal:
    def __init__(self, linked: Linked) -> None:
        self._linked = linked

    def file(self, file: FileElement) -> FileElement:
        scope = file.package
        return replace(
            file,
            syntax="proto3" if file.proto3 else "",
            imports=tuple(sorted(set(file.imports))),
            public_imports=tuple(sorted(set(file.public_imports))),
            messages=tuple(self._message(message, scope) for message in file.messages),
            enums=tuple(map(_enum, file.enums)),
            extends=self._extends(file.extends, scope),
            services=tuple(
                replace(
                    service,
                    options=_options(service.options),
                    rpcs=tuple(
                        replace(
                            rpc,
                            request=self._type(rpc.request, within(scope, service.name)),
                            response=self._type(rpc.response, within(scope, service.name)),
                            options=_options(rpc.options),
                        )
                        for rpc in service.rpcs
                    ),
                )
                for service in file.services
            ),
            options=_options(file.options),
        )

    def _message(self, message: MessageElement, outer: str) -> MessageElement:
        scope = within(outer, message.name)
        oneofs = [self._oneof(oneof, scope) for oneof in message.oneofs]
        extensions = [
            replace(element, ranges=(item,), options=_options(element.options))
            for element in message.extensions
            for item in element.ranges
        ]
        return replace(
            message,
            fields=self._fields(message.fields, scope),
            oneofs=tuple(sorted(oneofs, key=_first_number)),
            groups=self._groups(message.groups, scope),
            messages=tuple(self._message(inner, scope) for inner in message.messages),
            enums=tuple(map(_enum, message.enums)),
            reserved=_reserved(message.reserved),
            extensions=tuple(sorted(extensions, key=lambda element: element.ranges[0].first)),
            extends=self._extends(message.extends, scope),
            options=_options(message.options),
        )

    def _oneof(self, oneof: OneofElement, scope: str) -> OneofElement:
        return replace(
            oneof,
            fields=self._fields(oneof.fields, scope),
            groups=self._groups(oneof.groups, scope),
            options=_options(oneof.options),
        )

    def _fields(self, fields: Iterable[FieldElement], scope: str) -> tuple[FieldElement, ...]:
        return tuple(
            replace(field, type=self._field_type(field.type, scope), options=_options(field.options))
            for field in sorted(fields, key=lambda field: field.number)
        )

    def _groups(self, groups: Iterable[GroupElement], scope: str) -> tuple[GroupElement, ...]:
        return tuple(
            replace(group, message=self._message(group.message, scope))
            for group in sorted(groups, key=lambda group: group.number)
        )

    def _extends(self, extends: Iterable[ExtendElement], scope: str) -> tuple[ExtendElement, ...]:
        fields: dict[str, list[FieldElement]] = {}
        groups: dict[str, list[GroupElement]] = {}
        for extend in extends:
            name = self._type(extend.name, scope)
            fields.setdefault(name, []).extend(extend.fields)
            groups.setdefault(name, []).extend(extend.groups)
        return tuple(
            ExtendElement(name, self._fields(found, scope), self._groups(groups[name], scope))
            for name, found in fields.items()
        )

    def _field_type(self, kind: str | MapType, scope: str) -> str | MapType:
        if isinstance(kind, MapType):
            return MapType(kind.key, self._type(kind.value, scope))
        return self._type(kind, scope)

    def _type(self, name: str, scope: str) -> str:
        if name in SCALARS:
            return name
        found = self._linked.resolve(name, scope)
        return f".{found.full_name}" if found else name


def _first_number(oneof: OneofElement) -> int:
    return min([field.number for field in oneof.fields] + [group.number for group in oneof.groups])


def _enum(enum: EnumElement) -> EnumElement:
    values = sorted(enum.values, key=lambda value: (value.number, value.name))
    return replace(
        enum,
        values=tuple(replace(value, options=_options(value.options)) for value in values),
        reserved=_reserved(enum.reserved),
        options=_options(enum.options),
    )


def _reserved(reserved: Iterable[ReservedElement]) -> tuple[ReservedElement, ...]:
    """Each number, range or name in a statement of its own: numbers first."""
    values = {value for element in reserved for value in element.values}
    numbers = sorted((value for value in values if isinstance(value, Range)), key=lambda item: (item.first, item.last))
    names = sorted(value for value in values if isinstance(value, str))
    return tuple([ReservedElement((number,)) for number in numbers] + [ReservedElement((name,)) for name in names])


def _options(options: Iterable[Option]) -> tuple[Option, ...]:
    return tuple(
        Option(option.name, _sorted_value(option.value)) for option in sorted(options, key=lambda option: option.name)
    )


def _sorted_value(value: OptionValue) -> OptionValue:
    if isinstance(value, MessageLiteral):
        return MessageLiteral(
            tuple((key, _sorted_value(item)) for key, item in sorted(value.entries, key=lambda entry: entry[0]))
        )
    return value
