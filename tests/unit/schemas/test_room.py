"""The room of schemas from outside: what importing it costs, levels and directions, references in normal form."""

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from moldau.schemas import (
    CompatibilityLevel,
    ParsedSchema,
    Reference,
    SchemaType,
    check_compatibility,
    normalized_references,
    parse,
)
from moldau.schemas.pairs import MAX_COMPARISONS, MAX_DEPTH
from moldau.schemas.rules import MAX_DIFFERENCES, TOO_COMPLEX

HEAVY = ("google.protobuf", "jsonschema_rs", "fastavro", "avro")
PARSE = "from moldau.schemas import SchemaType, parse; parse(SchemaType.{}, {!r}); "


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import moldau.schemas; ", set()),
        (PARSE.format("AVRO", '"int"'), set()),
        (PARSE.format("JSON", "{}"), {"jsonschema_rs"}),
        (PARSE.format("PROTOBUF", 'syntax = "proto3";'), {"google.protobuf"}),
    ],
)
def test_a_format_loads_only_what_it_needs(code: str, loaded: set[str]) -> None:
    show = f"import sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code + show], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([name for name in HEAVY if name in loaded])


def record(*fields: str) -> ParsedSchema:
    """A record of ints; fields that end with = have a default."""
    described = [
        {"name": name.rstrip("="), "type": "int"} | ({"default": 0} if name.endswith("=") else {}) for name in fields
    ]
    return parse(SchemaType.AVRO, json.dumps({"type": "record", "name": "R", "fields": described}))


NONE, A, AB, AB_DEFAULT = record(), record("a"), record("a", "b"), record("a", "b=")


@pytest.mark.parametrize(
    ("level", "new", "earlier", "compatible"),
    [
        (CompatibilityLevel.NONE, AB, [A], True),
        (CompatibilityLevel.BACKWARD, A, [], True),
        (CompatibilityLevel.BACKWARD, A, [AB], True),
        (CompatibilityLevel.BACKWARD, AB, [A], False),
        (CompatibilityLevel.BACKWARD, AB_DEFAULT, [A], True),
        (CompatibilityLevel.BACKWARD, AB, [A, AB], True),
        (CompatibilityLevel.BACKWARD_TRANSITIVE, AB, [A, AB], False),
        (CompatibilityLevel.FORWARD, AB, [A], True),
        (CompatibilityLevel.FORWARD, A, [AB], False),
        (CompatibilityLevel.FORWARD, A, [AB_DEFAULT], True),
        (CompatibilityLevel.FORWARD, A, [AB, A], True),
        (CompatibilityLevel.FORWARD_TRANSITIVE, A, [AB, A], False),
        (CompatibilityLevel.FULL, AB, [A], False),
        (CompatibilityLevel.FULL, A, [AB], False),
        (CompatibilityLevel.FULL, AB_DEFAULT, [A], True),
        (CompatibilityLevel.FULL, A, [AB_DEFAULT], True),
        (CompatibilityLevel.FULL, A, [AB, AB_DEFAULT], True),
        (CompatibilityLevel.FULL_TRANSITIVE, A, [AB, AB_DEFAULT], False),
        (CompatibilityLevel.FULL_TRANSITIVE, A, [AB_DEFAULT, A], True),
    ],
)
def test_levels(
    level: CompatibilityLevel, new: ParsedSchema, earlier: Sequence[ParsedSchema], compatible: bool
) -> None:
    assert (not check_compatibility(level, new, earlier)) is compatible


def test_the_newest_incompatible_schema_is_told() -> None:
    found = check_compatibility(CompatibilityLevel.BACKWARD_TRANSITIVE, AB, [NONE, A])
    assert [fault.path for fault in found] == ["/fields/1"]


def test_types_of_schemas_are_not_mixed() -> None:
    (found,) = check_compatibility(CompatibilityLevel.FULL, parse(SchemaType.JSON, "{}"), [A])
    assert found.rule == "SCHEMA_TYPE_CHANGED"
    assert "JSON" in found.message
    assert not check_compatibility(CompatibilityLevel.NONE, parse(SchemaType.JSON, "{}"), [A])


def test_references_in_normal_form() -> None:
    one, two, three = Reference("a", "s", 1), Reference("a", "s", 2), Reference("b", "a", 1)
    assert normalized_references([three, two, one, two]) == (one, two, three)


def test_comparisons_are_bounded() -> None:
    deep = "".join(
        f'"d{index}":{{"properties":{{"x":{{"$ref":"#/definitions/d{index + 1}"}}}}}},' for index in range(500)
    )
    chain = f'{{"$ref":"#/definitions/d0","definitions":{{{deep}"d500":{{}}}}}}'
    schemas = [parse(SchemaType.JSON, chain), parse(SchemaType.JSON, chain)]
    found = check_compatibility(CompatibilityLevel.BACKWARD, schemas[0], schemas[1:])
    assert [fault.rule for fault in found] == [TOO_COMPLEX, TOO_COMPLEX]
    assert [fault.path.count("/properties/") for fault in found] == [0, MAX_DEPTH]


def test_wide_combinations_are_bounded() -> None:
    side = int(MAX_COMPARISONS**0.5) + 10
    before, after = (
        parse(SchemaType.JSON, '{"oneOf":[' + ",".join(f'{{"const":"{letter}{i}"}}' for i in range(side)) + "]}")
        for letter in "ab"
    )
    found = check_compatibility(CompatibilityLevel.BACKWARD, after, [before])
    assert [fault.rule for fault in found] == [TOO_COMPLEX, "COMBINED_TYPE_SUBSCHEMAS_CHANGED"]


def test_differences_are_bounded() -> None:
    many = ",".join(f'"p{index}":{{"type":"string"}}' for index in range(MAX_DIFFERENCES + 10))
    before = parse(SchemaType.JSON, f'{{"additionalProperties":false,"properties":{{{many}}}}}')
    after = parse(SchemaType.JSON, '{"additionalProperties":false,"type":"object"}')
    assert len(check_compatibility(CompatibilityLevel.BACKWARD, after, [before])) == MAX_DIFFERENCES


def test_large_schemas_are_compared_in_bounded_work() -> None:
    """Each of these would take minutes if every part were compared with every other."""
    fixed = [{"type": "fixed", "name": f"F{index}", "size": 1} for index in range(3_000)]
    values = {"enum": list(range(30_000))}
    for schema_type, schema in ((SchemaType.AVRO, fixed), (SchemaType.JSON, values)):
        one, other = (parse(schema_type, json.dumps(schema)) for _ in range(2))
        assert not check_compatibility(CompatibilityLevel.FULL, one, [other])
