"""Differences between two .proto files, as readers with the one see data of the other. Fields are matched by number."""

from collections.abc import Iterable
from dataclasses import dataclass

from moldau.schemas.compatibility import Incompatibility
from moldau.schemas.pairs import Pairs
from moldau.schemas.protobuf.elements import EnumElement, FieldElement, MapType, MessageElement
from moldau.schemas.protobuf.linking import Definition, Linked, within
from moldau.schemas.protobuf.printing import type_text
from moldau.schemas.protobuf.rules import RULES
from moldau.schemas.protobuf.schema import ProtobufSchema
from moldau.schemas.rules import Differences
from moldau.schemas.schema import ParsedSchema

# Types of one group are written alike: https://protobuf.dev/programming-guides/proto3/#updating
_GROUPS = {
    "general number": ("int32", "int64", "uint32", "uint64", "bool"),
    "signed number": ("sint32", "sint64"),
    "string or bytes": ("string", "bytes"),
    "fixed32": ("fixed32", "sfixed32"),
    "fixed64": ("fixed64", "sfixed64"),
    "float": ("float",),
    "double": ("double",),
}
SCALAR_KINDS = {scalar: kind for kind, scalars in _GROUPS.items() for scalar in scalars}
STRING = "string or bytes"


def compare_protobuf(reader: ParsedSchema, writer: ParsedSchema) -> tuple[Incompatibility, ...]:
    return protobuf_differences(reader, writer).incompatibilities("#")


def protobuf_differences(reader: ParsedSchema, writer: ParsedSchema) -> Differences:
    """All differences from the writer's to the reader's schema, harmless ones included."""
    assert isinstance(reader, ProtobufSchema)
    assert isinstance(writer, ProtobufSchema)
    out = Differences(RULES)
    _Comparison(writer.linked, reader.linked).files(out)
    return out


@dataclass(frozen=True, slots=True)
class _Member:
    """A field of a message, and the oneof that it is in, if any."""

    field: FieldElement
    oneof: str
    group: bool = False

    def path(self, path: str) -> str:
        return f"{path}/{self.oneof}/{self.field.number}" if self.oneof else f"{path}/{self.field.number}"


@dataclass(frozen=True, slots=True)
class _Type:
    """What a field holds, resolved."""

    kind: str  # scalar, map, message, group
    text: str
    scalar: str = ""  # the group that a scalar or enum is of
    definition: Definition | None = None
    map: MapType | None = None


class _Comparison:
    """From `original`, with which data is written, to `update`, with which it is read."""

    def __init__(self, original: Linked, update: Linked) -> None:
        self._original = original
        self._update = update
        self._pairs = Pairs()

    def files(self, out: Differences) -> None:
        original, update = self._original.root, self._update.root
        if original.package != update.package:
            names = {"original": original.package or "none", "update": update.package or "none"}
            out.add("PACKAGE_CHANGED", "", **names)
        scopes = (original.package, update.package)
        self._types(original.messages, update.messages, scopes, "", out)
        _enums(original.enums, update.enums, "", out)
        self._pairs.finish(out)

    def _types(
        self,
        originals: Iterable[MessageElement],
        updates: Iterable[MessageElement],
        scopes: tuple[str, str],
        path: str,
        out: Differences,
    ) -> None:
        before = {message.name: (index, message) for index, message in enumerate(originals)}
        after = {message.name: (index, message) for index, message in enumerate(updates)}
        for name in before | after:
            where = f"{path}/{name}"
            if name not in after:
                out.add("MESSAGE_REMOVED", where)
            elif name not in before:
                out.add("MESSAGE_ADDED", where)
            else:
                (index, original), (position, update) = before[name], after[name]
                inner = (within(scopes[0], name), within(scopes[1], name))
                self._message(original, update, inner, where, out)
                if index != position:
                    out.add("MESSAGE_MOVED", where)

    def _message(
        self,
        original: MessageElement,
        update: MessageElement,
        scopes: tuple[str, str],
        path: str,
        out: Differences,
    ) -> None:
        def compare(inner: Differences) -> None:
            self._fields(original, update, scopes, inner)
            self._types(original.messages, update.messages, scopes, "", inner)
            _enums(original.enums, update.enums, "", inner)

        self._pairs.compare(original, update, path, out, compare)

    def _fields(
        self, original: MessageElement, update: MessageElement, scopes: tuple[str, str], out: Differences
    ) -> None:
        before, after = _members(original, scopes[0]), _members(update, scopes[1])
        _compare_oneofs(original, update, before, after, out)
        deleted = _deleted_oneofs(original, update, after)
        for number in sorted(before.keys() | after.keys()):
            old, new = before.get(number), after.get(number)
            if new is None:
                assert old is not None
                if not old.oneof:
                    rule = "REQUIRED_FIELD_REMOVED" if old.field.label == "required" else "FIELD_REMOVED"
                    out.add(rule, old.path(""), name=old.field.name)
                elif old.oneof not in deleted:
                    out.add("ONEOF_FIELD_REMOVED", old.path(""), name=old.field.name)
            elif old is None:
                required = new.field.label == "required"
                rule = "ONEOF_FIELD_ADDED" if new.oneof else "REQUIRED_FIELD_ADDED" if required else "FIELD_ADDED"
                out.add(rule, new.path(""), name=new.field.name)
            else:
                if old.oneof and not new.oneof:
                    out.add("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", new.path(""), name=new.field.name)
                self._field(old, new, scopes, out)

    def _field(self, old: _Member, new: _Member, scopes: tuple[str, str], out: Differences) -> None:
        path, name = new.path(""), new.field.name
        if old.field.name != name:
            out.add("FIELD_NAME_CHANGED", path, original=old.field.name, update=name)
        original = _type_of(self._original, old.field.type, scopes[0], group=old.group)
        update = _type_of(self._update, new.field.type, scopes[1], group=new.group)
        self._compare_types(original, update, path, name, out)
        labels = old.field.label, new.field.label
        # A field without a label, as proto3 allows it, may get any.
        if original.scalar and original.scalar == update.scalar and all(labels) and labels[0] != labels[1]:
            string = original.scalar == STRING
            rule = "FIELD_STRING_OR_BYTES_LABEL_CHANGED" if string else "FIELD_NUMERIC_LABEL_CHANGED"
            out.add(rule, path, name=name, original=labels[0], update=labels[1])

    def _compare_types(self, original: _Type, update: _Type, path: str, name: str, out: Differences) -> None:
        texts = {"name": name, "original": original.text, "update": update.text}
        if original.kind != update.kind:
            out.add("FIELD_KIND_CHANGED", path, **texts)
        elif original.kind == "scalar":
            if original.scalar != update.scalar:
                out.add("FIELD_SCALAR_KIND_CHANGED", path, **texts)
        elif original.map and update.map:
            for before, after in ((original.map.key, update.map.key), (original.map.value, update.map.value)):
                # Names in them are resolved already, so no scope is needed.
                types = _type_of(self._original, before, ""), _type_of(self._update, after, "")
                self._compare_types(*types, path, name, out)
        elif original.definition and update.definition:
            self._compare_messages(original.definition, update.definition, path, texts, out)

    def _compare_messages(
        self, original: Definition, update: Definition, path: str, texts: dict[str, str], out: Differences
    ) -> None:
        if original.local_name != update.local_name:
            out.add("FIELD_NAMED_TYPE_CHANGED", path, **texts)
            return
        before, after = original.element, update.element
        if before is after or not isinstance(before, MessageElement) or not isinstance(after, MessageElement):
            return
        scopes = (original.full_name, update.full_name)
        inner = self._pairs.trial(out, lambda trial: self._message(before, after, scopes, "", trial))
        out.add_all((found for found in inner.found if found.rule.breaks), path)
        if not inner.compatible:
            out.add("FIELD_NAMED_TYPE_CHANGED", path, **texts)


def _members(message: MessageElement, scope: str) -> dict[int, _Member]:
    members = [_Member(field, "") for field in message.fields]
    members += [_Member(field, oneof.name) for oneof in message.oneofs for field in oneof.fields]
    groups = [("", group) for group in message.groups]
    groups += [(oneof.name, group) for oneof in message.oneofs for group in oneof.groups]
    for oneof_name, group in groups:
        kind = f".{within(scope, group.message.name)}"
        field = FieldElement(group.message.name.lower(), group.number, kind, group.label)
        members.append(_Member(field, oneof_name, group=True))
    return {member.field.number: member for member in members}


def _compare_oneofs(
    original: MessageElement,
    update: MessageElement,
    before: dict[int, _Member],
    after: dict[int, _Member],
    out: Differences,
) -> None:
    old_names = {oneof.name for oneof in original.oneofs}
    new_names = {oneof.name for oneof in update.oneofs}
    known_in: dict[str, list[_Member]] = {}
    for number, member in after.items():
        if member.oneof and number in before:
            known_in.setdefault(member.oneof, []).append(before[number])
    for name, known in sorted(known_in.items()):
        # Fields exclude each other now. They did before only if they come from one oneof; new ones are in no data.
        origins = {member.oneof or member.field.number for member in known}
        if len(origins) > 1:
            alone = sum(not member.oneof for member in known)
            out.add("MULTIPLE_FIELDS_MOVED_TO_ONEOF" if alone > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF", f"/{name}")
    for name in sorted(old_names - new_names):
        out.add("ONEOF_REMOVED", f"/{name}")
    for name in sorted(new_names - old_names):
        out.add("ONEOF_ADDED", f"/{name}")


def _deleted_oneofs(original: MessageElement, update: MessageElement, after: dict[int, _Member]) -> set[str]:
    """Oneofs that are gone with all their fields, which is as harmless as the removal of a field."""
    kept = {oneof.name for oneof in update.oneofs}
    return {
        oneof.name
        for oneof in original.oneofs
        if oneof.name not in kept
        and not any(number in after for number in [field.number for field in oneof.fields])
        and not any(group.number in after for group in oneof.groups)
    }


def _type_of(linked: Linked, kind: str | MapType, scope: str, *, group: bool = False) -> _Type:
    if isinstance(kind, MapType):
        value = linked.resolve(kind.value, scope)
        resolved = f".{value.full_name}" if value else kind.value
        return _Type("map", type_text(kind), map=MapType(kind.key, resolved))
    if kind in SCALAR_KINDS:
        return _Type("scalar", kind, SCALAR_KINDS[kind])
    definition = linked.resolve(kind, scope)
    if definition is not None and isinstance(definition.element, EnumElement):
        return _Type("scalar", kind, "general number")
    return _Type("group" if group else "message", kind, definition=definition)


def _enums(originals: Iterable[EnumElement], updates: Iterable[EnumElement], path: str, out: Differences) -> None:
    before = {enum.name: enum for enum in originals}
    after = {enum.name: enum for enum in updates}
    for name in before | after:
        if name not in after:
            out.add("ENUM_REMOVED", f"{path}/{name}")
        elif name not in before:
            out.add("ENUM_ADDED", f"{path}/{name}")
        else:
            _enum_values(before[name], after[name], f"{path}/{name}", out)


def _enum_values(original: EnumElement, update: EnumElement, path: str, out: Differences) -> None:
    before = {value.number: value.name for value in original.values}
    after = {value.number: value.name for value in update.values}
    for number in sorted(before.keys() | after.keys()):
        where = f"{path}/{number}"
        if number not in after:
            out.add("ENUM_CONST_REMOVED", where, name=before[number])
        elif number not in before:
            out.add("ENUM_CONST_ADDED", where, name=after[number])
        elif before[number] != after[number]:
            out.add("ENUM_CONST_CHANGED", where, original=before[number], update=after[number])
