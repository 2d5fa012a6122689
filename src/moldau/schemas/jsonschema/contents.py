"""Differences between what objects and arrays allow beyond what they name: additional and unevaluated content."""

from typing import Protocol

from moldau.schemas.jsonschema.model import Kind, Node
from moldau.schemas.rules import Differences

_RULES = {
    "additionalProperties": "ADDITIONAL_PROPERTIES",
    "additionalItems": "ADDITIONAL_ITEMS",
    "unevaluatedProperties": "UNEVALUATED_PROPERTIES",
    "unevaluatedItems": "UNEVALUATED_ITEMS",
}


class Comparing(Protocol):
    """The comparison that this is a part of."""

    def compare(self, original: Node, update: Node, path: str, out: Differences) -> None: ...

    def compare_optional(self, original: Node | None, update: Node | None, path: str, out: Differences) -> None: ...

    def trial(self, original: Node, update: Node, path: str, out: Differences) -> Differences: ...


def compare_rest(
    comparison: Comparing, before: Node | None, after: Node | None, keyword: str, out: Differences
) -> None:
    """`additionalProperties` or `additionalItems`: None if anything is allowed."""
    name, path = _RULES[keyword], f"/{keyword}"
    forbidden = _forbids(before), _forbids(after)
    if forbidden[0] != forbidden[1]:
        out.add(f"{name}_ADDED" if forbidden[0] else f"{name}_REMOVED", path)
    elif before is None and after is not None:
        out.add(f"{name}_NARROWED", path)
    elif before is not None and after is None:
        out.add(f"{name}_EXTENDED", path)
    elif before is not None and after is not None:
        comparison.compare(before, after, path, out)


def compare_unevaluated(
    comparison: Comparing, before: Node | None, after: Node | None, keyword: str, out: Differences
) -> None:
    """`unevaluatedProperties` or `unevaluatedItems`: true is as good as none."""
    before = None if before is not None and before.kind is Kind.ANYTHING else before
    after = None if after is not None and after.kind is Kind.ANYTHING else after
    compare_rest(comparison, before, after, keyword, out)


def unevaluated(node: Node, keyword: str) -> Node | None:
    """The schema of the keyword, in drafts that have it."""
    return node.sub(keyword) if node.side.modern else None


def _forbids(node: Node | None) -> bool:
    return node is not None and node.kind is Kind.NOTHING
