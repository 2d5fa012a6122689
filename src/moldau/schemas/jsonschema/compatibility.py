"""Differences between two JSON Schemas, as a reader with the one sees data of the other."""

from moldau.schemas.compatibility import Incompatibility
from moldau.schemas.jsonschema.arrays import compare_arrays
from moldau.schemas.jsonschema.matching import largest_matching
from moldau.schemas.jsonschema.model import Kind, Node, Side
from moldau.schemas.jsonschema.objects import compare_objects
from moldau.schemas.jsonschema.rules import RULES
from moldau.schemas.jsonschema.scalars import compare_consts, compare_enums, compare_numbers, compare_strings
from moldau.schemas.jsonschema.schema import JsonSchema
from moldau.schemas.pairs import Pairs
from moldau.schemas.rules import Differences
from moldau.schemas.schema import ParsedSchema

_NOTED = {"title": "TITLE_CHANGED", "description": "DESCRIPTION_CHANGED", "default": "DEFAULT_CHANGED"}
_SCALARS = {
    Kind.STRING: compare_strings,
    Kind.NUMBER: compare_numbers,
    Kind.ENUM: compare_enums,
    Kind.CONST: compare_consts,
}


def compare_json_schemas(reader: ParsedSchema, writer: ParsedSchema) -> tuple[Incompatibility, ...]:
    return json_schema_differences(reader, writer).incompatibilities("#")


def json_schema_differences(reader: ParsedSchema, writer: ParsedSchema) -> Differences:
    """All differences from the writer's to the reader's schema, harmless ones included."""
    assert isinstance(reader, JsonSchema)
    assert isinstance(writer, JsonSchema)
    out = Differences(RULES)
    comparison = Comparison()
    comparison.compare(Side(writer.documents).root(), Side(reader.documents).root(), "", out)
    comparison.pairs.finish(out)
    return out


class Comparison:
    """From `original`, which data fits, to `update`, which it has to fit."""

    def __init__(self) -> None:
        self.pairs = Pairs()

    def compare(self, original: Node, update: Node, path: str, out: Differences) -> None:
        self.pairs.compare(original, update, path, out, lambda inner: self._compare(original, update, inner))

    def compare_optional(self, original: Node | None, update: Node | None, path: str, out: Differences) -> None:
        """As `compare`, where a schema may be missing on either side."""
        if original is not None and update is not None:
            self.compare(original, update, path, out)
        elif update is not None:
            out.add("SCHEMA_ADDED", path)
        elif original is not None:
            out.add("SCHEMA_REMOVED", path)

    def trial(self, original: Node, update: Node, path: str, out: Differences) -> Differences:
        """What the comparison finds, without adding it to `out`."""
        return self.pairs.trial(out, lambda trial: self.compare(original, update, path, trial))

    def _compare(self, original: Node, update: Node, out: Differences) -> None:
        if original.kind is not update.kind:
            if not self._fits_a_member(original, update, out):
                self._compare_kinds(original, update, out)
            return
        _note(original, update, out)
        if original.kind in _SCALARS:
            _SCALARS[original.kind](original, update, out)
        match original.kind:
            case Kind.OBJECT:
                compare_objects(self, original, update, out)
            case Kind.ARRAY:
                compare_arrays(self, original, update, out)
            case Kind.NOT:
                self._compare_nots(original, update, out)
            case Kind.COMBINED:
                self._compare_combinations(original, update, out)

    def _compare_kinds(self, original: Node, update: Node, out: Differences) -> None:
        bytes_on_both = original.source.get("connect.type") == update.source.get("connect.type") == "bytes"
        if original.kind is not Kind.NOTHING and update.kind is not Kind.ANYTHING and not bytes_on_both:
            out.add("TYPE_CHANGED", "", original=original.name, update=update.name)

    def _fits_a_member(self, original: Node, update: Node, out: Differences) -> bool:
        """Whether one side is a combination that takes the other in."""
        if update.kind is Kind.COMBINED:
            if len(update.members) > 1 and update.criterion == "allOf":
                return False
            candidates, rule = [(original, member) for member in update.members], "SUM_TYPE_EXTENDED"
            single = len(update.members) == 1
        elif original.kind is Kind.COMBINED:
            if len(original.members) > 1 and original.criterion != "allOf":
                return False
            candidates, rule = [(member, update) for member in original.members], "PRODUCT_TYPE_NARROWED"
            single = len(original.members) == 1
        else:
            return False
        for before, after in candidates:
            if self.pairs.exhausted:
                return False
            trial = self.trial(before, after, "", out)
            if trial.compatible:
                out.add_all(trial.found)
                if not single:
                    out.add(rule, "")
                return True
        return False

    def _compare_nots(self, original: Node, update: Node, out: Differences) -> None:
        before, after = original.sub("not"), update.sub("not")
        if before is not None and after is not None:
            # What is excluded: data fits still if all that is excluded now was excluded before.
            compatible = self.trial(after, before, "", out).compatible
            out.add("NOT_TYPE_NARROWED" if compatible else "NOT_TYPE_EXTENDED", "/not")

    def _compare_combinations(self, original: Node, update: Node, out: Differences) -> None:
        if not _compare_criteria(original, update, out):
            return
        befores, afters = _distinct(original.members), _distinct(update.members)
        product = original.criterion == "allOf" if len(befores) > len(afters) else update.criterion == "allOf"
        if len(befores) < len(afters):
            out.add("PRODUCT_TYPE_EXTENDED" if product else "SUM_TYPE_EXTENDED", "")
        elif len(befores) > len(afters):
            out.add("PRODUCT_TYPE_NARROWED" if product else "SUM_TYPE_NARROWED", "")
        path = "" if original.generated else f"/{original.criterion}"
        edges: dict[int, dict[int, Differences]] = {}
        failures: list[tuple[Kind, Kind, Differences]] = []
        for index, before in enumerate(befores):
            edges[index] = {}
            for position, after in enumerate(afters):
                if self.pairs.exhausted:
                    break
                where = "" if original.generated else f"{path}/{index}"
                trial = self.trial(before, after, where, out)
                if trial.compatible:
                    edges[index][position] = trial
                else:
                    failures.append((before.kind, after.kind, trial))
        matching = largest_matching({index: list(found) for index, found in edges.items()})
        for index, position in sorted(matching.items()):
            out.add_all(edges[index][position].found)
        if len(matching) < min(len(befores), len(afters)):
            if original.generated and update.generated:
                for before_kind, after_kind, failure in failures:
                    if before_kind is after_kind and _is_alone(before_kind, befores) and _is_alone(after_kind, afters):
                        out.add_all(failure.found)  # of keywords that are each other's counterparts
            out.add("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path, original=original.name, update=update.name)


def _compare_criteria(original: Node, update: Node, out: Differences) -> bool:
    """Whether the combinations can be compared member by member."""
    before, after = original.criterion, update.criterion
    if before == after:
        return True
    singles = len(original.members) == 1, len(update.members) == 1
    extended = (
        after == "anyOf" or all(singles) or (singles[0] and after == "oneOf") or (singles[1] and before == "allOf")
    )
    out.add("COMBINED_TYPE_EXTENDED" if extended else "COMBINED_TYPE_CHANGED", "", original=before, update=after)
    return extended


def _distinct(members: tuple[Node, ...]) -> list[Node]:
    """The members without those that say the same as another."""
    return list({member.identity: member for member in members}.values())


def _is_alone(kind: Kind, members: list[Node]) -> bool:
    return sum(member.kind is kind for member in members) == 1


def _note(original: Node, update: Node, out: Differences) -> None:
    if original.source.get(original.side.draft.id_keyword) != update.source.get(update.side.draft.id_keyword):
        out.add("ID_CHANGED", "")
    for keyword, rule in _NOTED.items():
        if original.source.get(keyword) != update.source.get(keyword):
            out.add(rule, "")
