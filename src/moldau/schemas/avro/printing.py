"""Texts of Avro types: canonical as registries store it, and the normal form, in which order and notation are fixed."""

from moldau.schemas.avro.types import (
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    NamedType,
    Primitive,
    Record,
    Union,
)
from moldau.schemas.json_text import Json, JsonObject, write_json, write_sorted_json


def canonical_json(schema: AvroType, known: set[str]) -> Json:
    """The schema with the attributes in the order of Avro's Java library, and names relative to their namespace.

    Types whose full names are in `known` are referenced types: only their names are written.
    """
    return _canonical(schema, "", set(known))


def _canonical(schema: AvroType, space: str, known: set[str]) -> Json:
    match schema:
        case Primitive():
            return {"type": schema.kind, **schema.props} if schema.props else schema.kind
        case Union():
            return [_canonical(branch, space, known) for branch in schema.branches]
        case Array():
            return {"type": "array", "items": _canonical(schema.items, space, known), **schema.props}
        case Map():
            return {"type": "map", "values": _canonical(schema.values, space, known), **schema.props}
    if schema.full_name in known:
        return _relative(schema, space)
    known.add(schema.full_name)
    body: JsonObject = {"type": schema.kind, "name": schema.name}
    if schema.namespace != space:
        body["namespace"] = schema.namespace
    if schema.doc is not None:
        body["doc"] = schema.doc
    match schema:
        case Record():
            body["fields"] = [_canonical_field(field, schema.namespace, known) for field in schema.fields]
        case Enum():
            body["symbols"] = list(schema.symbols)
            if schema.default is not None:
                body["default"] = schema.default
        case Fixed():
            body["size"] = schema.size
    body |= schema.props
    if schema.aliases:
        prefix = f"{schema.namespace}."
        body["aliases"] = [
            alias[len(prefix) :] if schema.namespace and alias.rpartition(".")[0] == schema.namespace else alias
            for alias in schema.aliases
        ]
    return body


def _canonical_field(field: Field, space: str, known: set[str]) -> JsonObject:
    body: JsonObject = {"name": field.name, "type": _canonical(field.type, space, known)}
    if field.doc is not None:
        body["doc"] = field.doc
    if field.has_default:
        body["default"] = field.default
    if field.order != "ascending":
        body["order"] = field.order
    if field.aliases:
        body["aliases"] = list(field.aliases)
    return body | field.props


def _relative(schema: NamedType, space: str) -> str:
    if schema.namespace == space and schema.name not in PRIMITIVES:
        return schema.name
    return schema.full_name


def normal_text(schema: AvroType, known: set[str]) -> str:
    """The normal form: full names everywhere, attributes in a fixed order, those of users sorted."""
    return _Normal(known).text(schema, "")


class _Normal:
    def __init__(self, known: set[str]) -> None:
        self._known = set(known)

    def text(self, schema: AvroType, space: str) -> str:
        match schema:
            case Primitive():
                if not schema.props:
                    return write_json(schema.kind)
                return "{" + ",".join([_pair("type", schema.kind), *_props(schema.props)]) + "}"
            case Union():
                return "[" + ",".join(self.text(branch, space) for branch in schema.branches) + "]"
            case Array():
                return self._container(schema, "items", schema.items, space)
            case Map():
                return self._container(schema, "values", schema.values, space)
        if schema.full_name in self._known:
            return write_json(schema.full_name)
        self._known.add(schema.full_name)
        return self._definition(schema, space)

    def _container(self, schema: Array | Map, key: str, inner: AvroType, space: str) -> str:
        parts = [_pair("type", schema.kind), f'"{key}":{self.text(inner, space)}', *_props(schema.props)]
        return "{" + ",".join(parts) + "}"

    def _definition(self, schema: NamedType, space: str) -> str:
        parts = [_pair("name", schema.full_name)]
        if space and not schema.namespace:  # else the full name would be taken as one of the enclosing namespace
            parts.append(_pair("namespace", ""))
        parts.append(_pair("type", schema.kind))
        match schema:
            case Record():
                fields = (self._field(field, schema.namespace) for field in schema.fields)
                parts.append('"fields":[' + ",".join(fields) + "]")
            case Enum():
                parts.append(f'"symbols":{write_json(list(schema.symbols))}')
            case Fixed():
                parts.append(f'"size":{schema.size}')
        logical, others = _split_logical(schema.props)
        parts += logical
        if schema.doc:
            parts.append(_pair("doc", schema.doc))
        if schema.aliases:
            parts.append(_pair("aliases", [*sorted(schema.aliases)]))
        if isinstance(schema, Enum) and schema.default is not None:
            parts.append(_pair("default", schema.default))
        return "{" + ",".join([*parts, *others]) + "}"

    def _field(self, field: Field, space: str) -> str:
        kind = self.text(field.type, space)
        parts = [_pair("name", field.name), f'"type":{kind}', _pair("order", field.order)]
        if field.doc is not None:
            parts.append(_pair("doc", field.doc))
        if field.aliases:
            parts.append(_pair("aliases", [*sorted(field.aliases)]))
        if field.has_default:
            parts.append(_pair("default", field.default))
        return "{" + ",".join([*parts, *_props(field.props)]) + "}"


def _pair(key: str, value: Json) -> str:
    return f"{write_json(key)}:{write_sorted_json(value)}"


def _props(props: JsonObject) -> list[str]:
    logical, others = _split_logical(props)
    return logical + others


def _split_logical(props: JsonObject) -> tuple[list[str], list[str]]:
    """The attributes of a logical type, which come first, and the others, sorted."""
    first = [key for key in ("logicalType", "precision", "scale") if "logicalType" in props and key in props]
    rest = sorted(key for key in props if key not in first)
    return [_pair(key, props[key]) for key in first], [_pair(key, props[key]) for key in rest]
