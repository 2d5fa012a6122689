"""Differences between subschemas of arrays: the items at fixed places, those after them, and all."""

from dataclasses import dataclass

from moldau.schemas.jsonschema.contents import Comparing, compare_rest, compare_unevaluated, unevaluated
from moldau.schemas.jsonschema.drafts import Draft
from moldau.schemas.jsonschema.model import Kind, Node
from moldau.schemas.jsonschema.scalars import compare_bounds
from moldau.schemas.rules import Differences


@dataclass(frozen=True, slots=True)
class _Items:
    """The items of an array, whatever keywords its draft has for them."""

    every: Node | None  # the schema of all items
    places: tuple[Node, ...]  # those of the first ones
    rest: Node | None  # of those after them; None if anything is allowed
    unevaluated: Node | None

    @property
    def open(self) -> bool:
        return self.rest is None and (self.unevaluated is None or self.unevaluated.kind is Kind.ANYTHING)

    @property
    def partial(self) -> Node | None:
        """What an item after those with places must fit, if it is neither anything nor nothing."""
        found = self.rest or self.unevaluated
        return None if found is None or found.kind in (Kind.ANYTHING, Kind.NOTHING) else found


def compare_arrays(comparison: Comparing, original: Node, update: Node, out: Differences) -> None:
    before, after = _items(original), _items(update)
    comparison.compare_optional(before.every, after.every, "/items", out)
    _compare_places(comparison, before, after, out)
    compare_rest(comparison, before.rest, after.rest, "additionalItems", out)
    compare_unevaluated(comparison, before.unevaluated, after.unevaluated, "unevaluatedItems", out)
    compare_bounds(("minItems", "maxItems", "minContains", "maxContains"), original, update, out)
    unique = original.source.get("uniqueItems") is True, update.source.get("uniqueItems") is True
    if unique[0] != unique[1]:
        out.add("UNIQUE_ITEMS_REMOVED" if unique[0] else "UNIQUE_ITEMS_ADDED", "/uniqueItems")


def _items(node: Node) -> _Items:
    keyword, rest = ("prefixItems", "items") if node.side.draft is Draft.DRAFT_2020_12 else ("items", "additionalItems")
    listed = node.source.get(keyword)
    places = (
        tuple(node.side.node(item) for item in listed if isinstance(item, dict | bool))
        if isinstance(listed, list)
        else ()
    )
    rests = unevaluated(node, "unevaluatedItems")
    if places:
        return _Items(None, places, _not_open(node.sub(rest)), rests)
    return _Items(_not_open(node.sub("items")), (), None, rests)


def _not_open(node: Node | None) -> Node | None:
    return None if node is None or node.kind is Kind.ANYTHING else node


def _compare_places(comparison: Comparing, before: _Items, after: _Items, out: Differences) -> None:
    for index, (original, update) in enumerate(zip(before.places, after.places, strict=False)):
        comparison.compare(original, update, f"/items/{index}", out)
    common = min(len(before.places), len(after.places))
    for index, original in enumerate(before.places[common:], common):
        _removed(comparison, original, after, f"/items/{index}", out)
    for index, update in enumerate(after.places[common:], common):
        _added(comparison, update, before, f"/items/{index}", out)


def _removed(comparison: Comparing, schema: Node, after: _Items, path: str, out: Differences) -> None:
    if after.open:
        out.add("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", path)
    elif after.partial is not None:
        trial = comparison.trial(schema, after.partial, path, out)
        out.add_all(trial.found)
        covered = "IS" if trial.compatible else "NOT"
        out.add(f"ITEM_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
    elif schema.kind is Kind.NOTHING:
        out.add("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
    else:
        out.add("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)


def _added(comparison: Comparing, schema: Node, before: _Items, path: str, out: Differences) -> None:
    if before.open:
        anything = schema.kind is Kind.ANYTHING
        out.add(f"ITEM_{'WITH_EMPTY_SCHEMA_' if anything else ''}ADDED_TO_OPEN_CONTENT_MODEL", path)
    elif before.partial is not None:
        trial = comparison.trial(before.partial, schema, path, out)
        out.add_all(trial.found)
        covered = "IS" if trial.compatible else "NOT"
        out.add(f"ITEM_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
    else:
        out.add("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", path)
