"""Whether a JSON value can be the default of an Avro type. A union takes the default of any of its branches."""

from moldau.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, Record, Union
from moldau.schemas.json_text import Json

_INTEGERS = {"int": 2**31, "long": 2**63}


def default_fault(value: Json, schema: AvroType) -> str:
    """What is wrong with the default; empty if it is valid."""
    match schema:
        case Union():
            if any(not default_fault(value, branch) for branch in schema.branches):
                return ""
            return "fits no branch of its union"
        case Record():
            return _record_fault(value, schema)
        case Array():
            if not isinstance(value, list):
                return "is no array"
            return next((fault for item in value if (fault := default_fault(item, schema.items))), "")
        case Map():
            if not isinstance(value, dict):
                return "is no object"
            return next((fault for item in value.values() if (fault := default_fault(item, schema.values))), "")
        case Enum():
            return "" if isinstance(value, str) and value in schema.symbols else "is not a symbol of its enum"
        case Fixed():
            return "" if _is_bytes(value) else "is no string of characters up to U+00FF"
    return _primitive_fault(value, schema.kind)


def _primitive_fault(value: Json, kind: str) -> str:
    match kind:
        case "null":
            good = value is None
        case "boolean":
            good = isinstance(value, bool)
        case "int" | "long":
            limit = _INTEGERS[kind]
            good = isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
        case "float" | "double":
            good = isinstance(value, int | float) and not isinstance(value, bool)
        case "bytes":
            return "" if _is_bytes(value) else "is no string of characters up to U+00FF"
        case _:
            good = isinstance(value, str)
    return "" if good else f"is no {kind}"


def _record_fault(value: Json, schema: Record) -> str:
    if not isinstance(value, dict):
        return "is no object"
    for field in schema.fields:
        if field.name not in value and not field.has_default:
            return f"lacks the field {field.name}"
        if field.name in value and (fault := default_fault(value[field.name], field.type)):
            return f"has a field {field.name} that {fault}"
    return ""


def _is_bytes(value: Json) -> bool:
    return isinstance(value, str) and all(ord(character) < 256 for character in value)
