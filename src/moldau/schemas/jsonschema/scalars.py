"""Differences between subschemas of strings, numbers, enums and constants, and between bounds of any kind."""

from fractions import Fraction

from moldau.schemas.json_text import Json, write_json
from moldau.schemas.jsonschema.drafts import Draft
from moldau.schemas.jsonschema.model import Node, json_key
from moldau.schemas.jsonschema.rules import BOUNDS
from moldau.schemas.rules import Differences

_EXCLUSIVE = {"maximum": "exclusiveMaximum", "minimum": "exclusiveMinimum"}


def compare_strings(original: Node, update: Node, out: Differences) -> None:
    compare_bounds(("minLength", "maxLength"), original, update, out)
    before, after = original.source.get("pattern"), update.source.get("pattern")
    if before != after:
        change = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
        out.add(f"PATTERN_{change}", "/pattern", original=before, update=after)


def compare_numbers(original: Node, update: Node, out: Differences) -> None:
    compare_bounds(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), original, update, out)
    before, after = original.number("multipleOf"), update.number("multipleOf")
    if before != after:
        change = _factor_change(before, after)
        out.add(f"MULTIPLE_OF_{change}", "/multipleOf", original=before, update=after)
    if original.integer != update.integer:
        out.add("TYPE_EXTENDED" if original.integer else "TYPE_NARROWED", "")


def compare_enums(original: Node, update: Node, out: Differences) -> None:
    before, after = _values(original), _values(update)
    gone = _without(before, after)
    new = _without(after, before)
    if gone:
        values = ", ".join(map(write_json, gone[:10]))
        out.add("ENUM_ARRAY_CHANGED" if new else "ENUM_ARRAY_NARROWED", "/enum", values=values)
    elif new:
        out.add("ENUM_ARRAY_EXTENDED", "/enum")


def compare_consts(original: Node, update: Node, out: Differences) -> None:
    before = original.source.get("const")
    if json_key(before) != json_key(update.source.get("const")):
        out.add("ENUM_ARRAY_CHANGED", "/const", values=write_json(before))


def compare_bounds(keywords: tuple[str, ...], original: Node, update: Node, out: Differences) -> None:
    for keyword in keywords:
        before, after = _bound(original, keyword), _bound(update, keyword)
        if before == after:
            continue
        if before is None or after is None:
            change = "ADDED" if before is None else "REMOVED"
        else:
            change = "INCREASED" if before < after else "DECREASED"
        out.add(f"{BOUNDS[keyword]}_{change}", f"/{keyword}", original=before, update=after)


def _bound(node: Node, keyword: str) -> int | float | None:
    """The value of a bound. In draft 4 `exclusiveMaximum` is a flag beside `maximum`."""
    if node.side.draft is Draft.DRAFT_4:
        for inclusive, exclusive in _EXCLUSIVE.items():
            if keyword in (inclusive, exclusive):
                flag = node.source.get(exclusive) is True
                return node.number(inclusive) if flag == (keyword == exclusive) else None
    return node.number(keyword)


def _factor_change(before: int | float | None, after: int | float | None) -> str:
    if before is None or after is None:
        return "ADDED" if before is None else "REMOVED"
    old, new = Fraction(str(before)), Fraction(str(after))
    if old and new % old == 0:
        return "EXPANDED"
    if new and old % new == 0:
        return "REDUCED"
    return "CHANGED"


def _values(node: Node) -> list[Json]:
    values = node.source.get("enum")
    return values if isinstance(values, list) else []


def _without(values: list[Json], others: list[Json]) -> list[Json]:
    known = {json_key(other) for other in others}
    return [value for value in values if json_key(value) not in known]
