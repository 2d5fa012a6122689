"""What the names in .proto files mean: definitions of a file and its imports, and the rules that hold between them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from moldau.schemas.protobuf.elements import (
    Constant,
    EnumElement,
    ExtendElement,
    FieldElement,
    FileElement,
    MapType,
    MessageElement,
    Range,
)
from moldau.schemas.schema import InvalidSchema

SCALARS = frozenset(
    [
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
        "bool",
        "string",
        "bytes",
    ]
)
MAP_KEYS = SCALARS - {"double", "float", "bytes"}
ROOT = "schema.proto"  # the name of the file that has none


@dataclass(frozen=True, slots=True)
class Definition:
    """A message or enum with its full name, and the file that defines it."""

    full_name: str
    element: MessageElement | EnumElement
    package: str
    file: str

    @property
    def local_name(self) -> str:
        """The name without the package."""
        return self.full_name[len(self.package) + 1 :] if self.package else self.full_name


class Linked:
    """A file and all it imports. `files` has each after those that it imports, the root last."""

    def __init__(self, files: Mapping[str, FileElement]) -> None:
        self.files = files
        self.root = files[ROOT]
        self.definitions: dict[str, Definition] = {}
        for name, file in files.items():
            for full, element in definitions_of(file):
                if full in self.definitions:
                    raise InvalidSchema(f"{full} is defined twice, in {self.definitions[full].file} and {name}")
                self.definitions[full] = Definition(full, element, file.package, name)

    def resolve(self, name: str, scope: str) -> Definition | None:
        """The definition that `name` means inside `scope`: the innermost that fits."""
        if name.startswith("."):
            return self.definitions.get(name[1:])
        while scope:
            found = self.definitions.get(f"{scope}.{name}")
            if found is not None:
                return found
            scope = scope.rpartition(".")[0]
        return self.definitions.get(name)

    def check(self) -> None:
        """Raise InvalidSchema for what no compiler of Protobuf takes."""
        for name, file in self.files.items():
            try:
                _Check(self, name, file).run()
            except InvalidSchema as error:
                raise error if name == ROOT else InvalidSchema(f"import {name}: {error}") from None

    def visible(self, name: str) -> set[str]:
        """The files whose definitions a file may use: itself, its imports, and what those import publicly."""
        seen = {name}
        file = self.files[name]
        waiting = [*file.imports, *file.public_imports]
        while waiting:
            imported = waiting.pop()
            if imported not in seen:
                seen.add(imported)
                waiting += self.files[imported].public_imports
        return seen


def definitions_of(file: FileElement) -> Iterator[tuple[str, MessageElement | EnumElement]]:
    """All messages and enums of a file with their full names, outer ones first."""
    yield from _inside(file.package, (*file.messages, *_group_messages(file.extends)), file.enums)


def _inside(
    scope: str, messages: Iterable[MessageElement], enums: Iterable[EnumElement]
) -> Iterator[tuple[str, MessageElement | EnumElement]]:
    for enum in enums:
        yield within(scope, enum.name), enum
    for message in messages:
        full = within(scope, message.name)
        yield full, message
        yield from _inside(full, message.all_messages(), message.enums)


def _group_messages(extends: Iterable[ExtendElement]) -> Iterator[MessageElement]:
    for extend in extends:
        for group in extend.groups:
            yield group.message


def within(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


class _Check:
    def __init__(self, linked: Linked, name: str, file: FileElement) -> None:
        self._linked = linked
        self._file = file
        self._visible = linked.visible(name)

    def run(self) -> None:
        for full, element in definitions_of(self._file):
            if isinstance(element, EnumElement):
                self._enum(full, element)
            else:
                self._message(full, element)
        for extend in self._file.extends:
            self._extend(extend, self._file.package)
        for service in self._file.services:
            for rpc in service.rpcs:
                for name in (rpc.request, rpc.response):
                    found = self._resolve(name, within(self._file.package, service.name), 0)
                    if not isinstance(found.element, MessageElement):
                        raise InvalidSchema(f"{service.name}.{rpc.name}: {name} is no message")

    def _message(self, full: str, message: MessageElement) -> None:
        fields = list(message.all_fields())
        groups = list(message.all_groups())
        numbers = [(field.number, field.name, field.line) for field in fields]
        numbers += [(group.number, group.message.name, group.message.line) for group in groups]
        names = [field.name for field in fields] + [group.message.name.lower() for group in groups]
        names += [oneof.name for oneof in message.oneofs]
        names += [inner.name for inner in message.all_messages()] + [enum.name for enum in message.enums]
        for name, count in Counter(names).items():
            if count > 1:
                raise InvalidSchema(f"line {message.line}: {full} has the name {name} twice")
        used: dict[int, str] = {}
        reserved = _Reserved(value for element in message.reserved for value in element.values)
        for number, name, line in numbers:
            if number in used:
                raise InvalidSchema(f"line {line}: {full} gives the number {number} to {used[number]} and {name}")
            used[number] = name
            if reserved.has(number, name):
                raise InvalidSchema(f"line {line}: {name} = {number} of {full} is reserved")
        for oneof in message.oneofs:
            if not oneof.fields and not oneof.groups:
                raise InvalidSchema(f"line {oneof.line}: the oneof {oneof.name} of {full} has no field")
            for field in oneof.fields:
                if isinstance(field.type, MapType):
                    raise InvalidSchema(f"line {field.line}: the map {field.name} cannot be in a oneof")
        if self._file.proto3 and (message.extensions or groups):
            raise InvalidSchema(f"line {message.line}: {full} has groups or extensions, which proto3 does not know")
        for field in message.fields:
            self._field(full, field)
        for oneof in message.oneofs:
            for field in oneof.fields:
                self._field(full, field, in_oneof=True)
        for extend in message.extends:
            self._extend(extend, full)

    def _field(self, scope: str, field: FieldElement, *, in_oneof: bool = False) -> None:
        where = f"line {field.line}: {within(scope, field.name)}"
        if self._file.proto3:
            if field.label == "required":
                raise InvalidSchema(f"{where}: proto3 has no required fields")
            if field.option("default") is not None:
                raise InvalidSchema(f"{where}: proto3 has no explicit defaults")
        elif not field.label and not in_oneof and not isinstance(field.type, MapType):
            raise InvalidSchema(f"{where}: a field of proto2 needs optional, required or repeated")
        if isinstance(field.type, MapType):
            if field.label:
                raise InvalidSchema(f"{where}: a map has no label {field.label}")
            if field.type.key not in MAP_KEYS:
                raise InvalidSchema(f"{where}: {field.type.key} cannot be the key of a map")
            kind = field.type.value
        else:
            kind = field.type
        if kind not in SCALARS:
            self._resolve(kind, scope, field.line)

    def _extend(self, extend: ExtendElement, scope: str) -> None:
        line = extend.fields[0].line if extend.fields else 0
        found = self._resolve(extend.name, scope, line)
        if not isinstance(found.element, MessageElement):
            raise InvalidSchema(f"line {line}: {extend.name} is no message and cannot be extended")
        ranges = _Reserved(item for extensions in found.element.extensions for item in extensions.ranges)
        for field in extend.fields:
            self._field(scope, field, in_oneof=self._file.proto3)
            if not ranges.has(field.number, ""):
                raise InvalidSchema(f"line {field.line}: {found.full_name} has no extension number {field.number}")

    def _enum(self, full: str, enum: EnumElement) -> None:
        where = f"line {enum.line}: the enum {full}"
        if not enum.values:
            raise InvalidSchema(f"{where} has no values")
        if self._file.proto3 and enum.values[0].number != 0:
            raise InvalidSchema(f"{where} must begin with the number 0, as proto3 requires")
        alias = next((option.value for option in enum.options if option.name == "allow_alias"), None)
        numbers: dict[int, str] = {}
        reserved = _Reserved(value for element in enum.reserved for value in element.values)
        for value in enum.values:
            if value.number in numbers and not (isinstance(alias, Constant) and alias.text == "true"):
                raise InvalidSchema(f"{where} gives {value.number} to {numbers[value.number]} and {value.name}")
            numbers[value.number] = value.name
            if reserved.has(value.number, value.name):
                raise InvalidSchema(f"{where}: {value.name} = {value.number} is reserved")
        if len({value.name for value in enum.values}) < len(enum.values):
            raise InvalidSchema(f"{where} has a name twice")

    def _resolve(self, name: str, scope: str, line: int) -> Definition:
        found = self._linked.resolve(name, scope)
        if found is None:
            raise InvalidSchema(f"line {line}: the type {name} is not defined; import the file that defines it")
        if found.file not in self._visible:
            raise InvalidSchema(f"line {line}: the type {name} is defined in {found.file}, which is not imported")
        return found


class _Reserved:
    """Numbers and names that are set apart, looked up in no more steps than there are digits in their count."""

    def __init__(self, values: Iterable[Range | str]) -> None:
        self._names: set[str] = set()
        self._ends: list[int] = []  # of disjoint ranges, in order
        self._starts: list[int] = []
        ranges = []
        for value in values:
            if isinstance(value, Range):
                ranges.append((value.first, value.last))
            else:
                self._names.add(value)
        for first, last in sorted(ranges):
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], last)
            else:
                self._starts.append(first)
                self._ends.append(last)

    def has(self, number: int, name: str) -> bool:
        index = bisect_left(self._ends, number)
        return name in self._names or (index < len(self._ends) and self._starts[index] <= number)
