"""Parser of Avro schemas: JSON to types, with the path of whatever is wrong. Strict about names and defaults."""

import re
from collections import Counter
from dataclasses import replace

from moldau.schemas.avro.defaults import default_fault
from moldau.schemas.avro.types import (
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    NamedType,
    Primitive,
    Record,
    Union,
    name_of,
)
from moldau.schemas.json_text import Json, JsonObject
from moldau.schemas.schema import MAX_NESTING, InvalidSchema

MAX_FIXED_SIZE = 2**31 - 1

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDERS = ("ascending", "descending", "ignore")
_NAMED_KEYS = {"type", "name", "namespace", "doc", "aliases"}
_RESERVED = {
    "record": _NAMED_KEYS | {"fields"},
    "error": _NAMED_KEYS | {"fields"},
    "enum": _NAMED_KEYS | {"symbols", "default"},
    "fixed": _NAMED_KEYS | {"size"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
_FIELD_KEYS = {"name", "type", "doc", "default", "order", "aliases"}


class Parser:
    """Parses one schema.

    `names` has the named types of referenced schemas, and gets those that it defines; `heights` says how deeply
    types are nested in each.
    """

    def __init__(self, names: dict[str, NamedType], heights: dict[str, int]) -> None:
        self.names = names
        self._heights = heights
        self._deepest = 0
        self._unchecked: list[tuple[Field, str]] = []

    def parse(self, value: Json, path: str = "/") -> AvroType:
        schema = self._type(value, "", path, 0)
        for field, where in self._unchecked:  # when all types are known
            if fault := default_fault(field.default, field.type):
                raise InvalidSchema(f"{where}: the default of {field.name} {fault}")
        self._unchecked.clear()
        return schema

    def _type(self, value: Json, namespace: str, path: str, depth: int) -> AvroType:
        self._reach(depth, path)
        if isinstance(value, str):
            return self._by_name(value, namespace, path, depth)
        if isinstance(value, list):
            return self._union(value, namespace, path, depth)
        if not isinstance(value, dict):
            raise InvalidSchema(f"{path}: {value!r} is no type: expected a name, an object or an array")
        kind = value.get("type")
        if isinstance(kind, dict | list):
            return self._type(kind, namespace, _at(path, "type"), depth + 1)
        if not isinstance(kind, str):
            raise InvalidSchema(f"{path}: the object has no type")
        props = {key: item for key, item in value.items() if key not in _RESERVED.get(kind, {"type"})}
        match kind:
            case "record" | "error" | "enum" | "fixed":
                return self._named(kind, value, props, namespace, path, depth)
            case "array":
                items = self._type(_required(value, "items", path), namespace, _at(path, "items"), depth + 1)
                return Array(items, props)
            case "map":
                values = self._type(_required(value, "values", path), namespace, _at(path, "values"), depth + 1)
                return Map(values, props)
        if kind in PRIMITIVES:
            return Primitive(kind, props)
        return self._by_name(kind, namespace, path, depth)

    def _reach(self, depth: int, path: str) -> None:
        self._deepest = max(self._deepest, depth)
        if depth > MAX_NESTING:
            raise InvalidSchema(f"{path}: types are nested deeper than {MAX_NESTING}")

    def _by_name(self, name: str, namespace: str, path: str, depth: int) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise InvalidSchema(f"{path}: the type {full} is not defined; define it before its use or refer to it")
        self._reach(depth + self._heights.get(found.full_name, 0), path)  # 0 inside its own definition
        return found

    def _union(self, value: list[Json], namespace: str, path: str, depth: int) -> Union:
        branches = []
        seen: set[str] = set()
        for index, item in enumerate(value):
            where = _at(path, str(index))
            branch = self._type(item, namespace, where, depth + 1)
            if isinstance(branch, Union):
                raise InvalidSchema(f"{where}: a union must not contain a union")
            if name_of(branch) in seen:
                raise InvalidSchema(f"{where}: the union has {name_of(branch)} twice")
            seen.add(name_of(branch))
            branches.append(branch)
        return Union(tuple(branches))

    def _named(
        self, kind: str, value: JsonObject, props: JsonObject, namespace: str, path: str, depth: int
    ) -> NamedType:
        head = _head(value, props, namespace, path)
        if head.full_name in self.names:
            raise InvalidSchema(f"{path}: the type {head.full_name} is defined twice")
        shared = (head.name, head.namespace, head.doc, head.aliases, head.props)
        match kind:
            case "enum":
                enum = Enum(*shared, *_symbols(value, path))
                self.names[head.full_name] = enum
                return enum
            case "fixed":
                size = value.get("size")
                if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_FIXED_SIZE:
                    raise InvalidSchema(f"{_at(path, 'size')}: a fixed needs a size of 0 to {MAX_FIXED_SIZE}")
                fixed = Fixed(*shared, size)
                self.names[head.full_name] = fixed
                return fixed
        record = Record(*shared, kind=kind)
        self.names[head.full_name] = record  # before its fields, which may contain it
        deepest, self._deepest = self._deepest, depth
        record.fields = self._fields(value, record.namespace, path, depth)
        self._heights[head.full_name] = self._deepest - depth
        self._deepest = max(deepest, self._deepest)
        return record

    def _fields(self, value: JsonObject, namespace: str, path: str, depth: int) -> tuple[Field, ...]:
        described = value.get("fields")
        if not isinstance(described, list):
            raise InvalidSchema(f"{path}: a record needs an array of fields")
        fields: dict[str, Field] = {}
        for index, item in enumerate(described):
            where = _at(path, f"fields/{index}")
            if not isinstance(item, dict):
                raise InvalidSchema(f"{where}: a field is an object")
            name = _name(item.get("name"), where)
            if name in fields:
                raise InvalidSchema(f"{where}: the record has the field {name} twice")
            fields[name] = self._field(name, item, namespace, where, depth)
        return tuple(fields.values())

    def _field(self, name: str, item: JsonObject, namespace: str, path: str, depth: int) -> Field:
        field = Field(
            name,
            self._type(_required(item, "type", path), namespace, _at(path, "type"), depth + 1),
            doc=_text(item, "doc", path),
            has_default="default" in item,
            default=item.get("default"),
            order=_order(item, path),
            aliases=_names(item, "aliases", path),
            props={key: value for key, value in item.items() if key not in _FIELD_KEYS},
        )
        if field.has_default:
            self._unchecked.append((field, path))
        return field


def _head(value: JsonObject, props: JsonObject, enclosing: str, path: str) -> Named:
    name = value.get("name")
    if not isinstance(name, str):
        raise InvalidSchema(f"{path}: a {value['type']} needs a name")
    given = value.get("namespace")
    if given is not None and not isinstance(given, str):
        raise InvalidSchema(f"{_at(path, 'namespace')}: expected a string")
    if "." in name:
        space, _, short = name.rpartition(".")
    else:
        space, short = enclosing if given is None else given, name
    for part in [*space.split("."), short] if space else [short]:
        _name(part, path)
    if short in PRIMITIVES:
        raise InvalidSchema(f"{path}: {short} is the name of a primitive type")
    head = Named(short, space, _text(value, "doc", path), props=props)
    aliases = tuple(
        alias if "." in alias or not space else f"{space}.{alias}" for alias in _names(value, "aliases", path)
    )
    return replace(head, aliases=aliases)


def _symbols(value: JsonObject, path: str) -> tuple[tuple[str, ...], str | None]:
    symbols = value.get("symbols")
    if not isinstance(symbols, list):
        raise InvalidSchema(f"{path}: an enum needs an array of symbols")
    names = tuple(_name(item, _at(path, f"symbols/{index}")) for index, item in enumerate(symbols))
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise InvalidSchema(f"{_at(path, 'symbols')}: the enum has the symbol {twice} twice")
    default = _text(value, "default", path)
    if default is not None and default not in names:
        raise InvalidSchema(f"{_at(path, 'default')}: {default} is not a symbol of the enum")
    return names, default


def _at(path: str, step: str) -> str:
    return f"/{step}" if path == "/" else f"{path}/{step}"


def _required(value: JsonObject, key: str, path: str) -> Json:
    if key not in value:
        raise InvalidSchema(f"{path}: {key} is missing")
    return value[key]


def _text(value: JsonObject, key: str, path: str) -> str | None:
    text = value.get(key)
    if text is not None and not isinstance(text, str):
        raise InvalidSchema(f"{_at(path, key)}: expected a string")
    return text


def _order(item: JsonObject, path: str) -> str:
    order = _text(item, "order", path)
    if order is None:
        return _ORDERS[0]
    if order.lower() not in _ORDERS:
        raise InvalidSchema(f"{_at(path, 'order')}: {order} is none of {', '.join(_ORDERS)}")
    return order.lower()


def _name(name: Json, path: str) -> str:
    if not isinstance(name, str):
        raise InvalidSchema(f"{path}: a name is missing")
    if not _NAME.fullmatch(name):
        raise InvalidSchema(f"{path}: {name!r} is no name: letters, digits and _, not beginning with a digit")
    return name


def _names(value: JsonObject, key: str, path: str) -> tuple[str, ...]:
    names = value.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidSchema(f"{_at(path, key)}: expected an array of names")
    return tuple(str(name) for name in names)
