"""Differences between subschemas of objects: properties, what others are allowed, and which depend on which."""

from moldau.schemas.json_text import Json
from moldau.schemas.jsonschema.contents import Comparing, compare_rest, compare_unevaluated, unevaluated
from moldau.schemas.jsonschema.model import Kind, Node
from moldau.schemas.jsonschema.scalars import compare_bounds
from moldau.schemas.jsonschema.validators import matches
from moldau.schemas.rules import Differences


def compare_objects(comparison: Comparing, original: Node, update: Node, out: Differences) -> None:
    _compare_required(original, update, out)
    _compare_properties(comparison, original, update, out)
    _compare_dependencies(comparison, original, update, out)
    compare_rest(comparison, _rest(original), _rest(update), "additionalProperties", out)
    unevaluated_on_sides = unevaluated(original, "unevaluatedProperties"), unevaluated(update, "unevaluatedProperties")
    compare_unevaluated(comparison, *unevaluated_on_sides, "unevaluatedProperties", out)
    compare_bounds(("minProperties", "maxProperties"), original, update, out)


def _rest(node: Node) -> Node | None:
    """The schema of additional properties; None if any are allowed."""
    found = node.sub("additionalProperties")
    return None if found is None or found.kind is Kind.ANYTHING else found


def _is_open(node: Node) -> bool:
    if _rest(node) is not None or node.source.get("patternProperties"):
        return False
    rest = unevaluated(node, "unevaluatedProperties")
    return rest is None or rest.kind is Kind.ANYTHING


def _partial(node: Node, name: str) -> Node | None:
    """The schema that a property must fit which an object names only by a pattern or not at all."""
    for pattern, schema in node.subs("patternProperties").items():
        if matches(pattern, name):
            return schema
    rest = _rest(node)
    if rest is not None:
        return None if rest.kind is Kind.NOTHING else rest
    rest = unevaluated(node, "unevaluatedProperties")
    return None if rest is None or rest.kind in (Kind.NOTHING, Kind.ANYTHING) else rest


def _required(node: Node) -> set[str]:
    names = node.source.get("required")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _has_default(node: Node, name: str) -> bool:
    properties = node.source.get("properties")
    described = properties.get(name) if isinstance(properties, dict) else None
    return isinstance(described, dict) and "default" in described


def _compare_required(original: Node, update: Node, out: Differences) -> None:
    before, after = _required(original), _required(update)
    described = update.subs("properties")
    for name in original.subs("properties"):
        if name not in described:
            continue
        if name in before and name not in after:
            out.add("REQUIRED_ATTRIBUTE_REMOVED", f"/required/{name}")
        elif name in after and name not in before:
            suffix = "WITH_DEFAULT_ADDED" if _has_default(update, name) else "ADDED"
            out.add(f"REQUIRED_ATTRIBUTE_{suffix}", f"/required/{name}")


def _compare_properties(comparison: Comparing, original: Node, update: Node, out: Differences) -> None:
    before, after = original.subs("properties"), update.subs("properties")
    required = _required(update)
    for name in before | after:
        path = f"/properties/{name}"
        if name not in after:
            _removed(comparison, before[name], name, update, path, out)
        elif name not in before:
            word = "OPTIONAL_PROPERTY"
            if name in required:
                word = "REQUIRED_PROPERTY_WITH_DEFAULT" if _has_default(update, name) else "REQUIRED_PROPERTY"
            _added(comparison, after[name], name, word, original, path, out)
        else:
            comparison.compare(before[name], after[name], path, out)


def _removed(comparison: Comparing, schema: Node, name: str, update: Node, path: str, out: Differences) -> None:
    if _is_open(update):
        out.add("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", path)
        return
    partial = _partial(update, name)
    if partial is not None:
        trial = comparison.trial(schema, partial, path, out)
        out.add_all(trial.found)
        covered = "IS" if trial.compatible else "NOT"
        out.add(f"PROPERTY_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
    elif schema.kind is Kind.NOTHING:
        out.add("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
    else:
        out.add("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)


def _added(
    comparison: Comparing, schema: Node, name: str, kind: str, original: Node, path: str, out: Differences
) -> None:
    if _is_open(original):
        if schema.kind is Kind.ANYTHING:
            out.add("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", path)
        else:
            out.add(f"{kind}_ADDED_TO_OPEN_CONTENT_MODEL", path)
        return
    partial = _partial(original, name)
    if partial is not None:
        trial = comparison.trial(partial, schema, path, out)
        out.add_all(trial.found)
        covered = "IS" if trial.compatible else "NOT"
        out.add(f"PROPERTY_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
    out.add(f"{kind}_ADDED_TO_UNOPEN_CONTENT_MODEL", path)


def _compare_dependencies(comparison: Comparing, original: Node, update: Node, out: Differences) -> None:
    before, after = _needed(original), _needed(update)
    for name in before | after:
        path = f"/dependencies/{name}"
        if name not in after:
            out.add("DEPENDENCY_ARRAY_REMOVED", path)
        elif name not in before:
            out.add("DEPENDENCY_ARRAY_ADDED", path)
        elif before[name] != after[name]:
            wider, narrower = after[name] > before[name], after[name] < before[name]
            change = "EXTENDED" if wider else "NARROWED" if narrower else "CHANGED"
            out.add(f"DEPENDENCY_ARRAY_{change}", path)
    old, new = _dependent_schemas(original), _dependent_schemas(update)
    for name in old | new:
        path = f"/dependencies/{name}"
        if name not in new:
            out.add("DEPENDENCY_SCHEMA_REMOVED", path)
        elif name not in old:
            out.add("DEPENDENCY_SCHEMA_ADDED", path)
        else:
            comparison.compare(old[name], new[name], path, out)


def _needed(node: Node) -> dict[str, set[Json]]:
    """The names that each property needs beside it."""
    found: dict[str, set[Json]] = {}
    for keyword in ("dependencies", "dependentRequired"):
        value = node.source.get(keyword)
        if isinstance(value, dict):
            found |= {name: {str(item) for item in names} for name, names in value.items() if isinstance(names, list)}
    return found


def _dependent_schemas(node: Node) -> dict[str, Node]:
    return node.subs("dependencies") | node.subs("dependentSchemas")
