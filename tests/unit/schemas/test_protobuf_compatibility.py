"""The cases of Protobuf's compatibility, and what incompatibilities say."""

import pytest

from moldau.schemas import CompatibilityLevel, ParsedSchema, SchemaType, check_compatibility, parse
from moldau.schemas.protobuf.rules import RULES
from moldau.schemas.rules import TOO_COMPLEX
from support.schemas.protobuf_cases import CASES, Case

IMPORTS = 'import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto"; '


def schema(body: str, syntax: str = "proto3") -> ParsedSchema:
    head = f'syntax = "{syntax}"; ' + (IMPORTS if "google.protobuf" in body else "")
    return parse(SchemaType.PROTOBUF, head + body)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_a_change(case: Case) -> None:
    new, old = schema(case.update, case.syntax), schema(case.original, case.syntax)
    found = check_compatibility(CompatibilityLevel.BACKWARD, new, [old])
    assert all(fault.path in fault.message for fault in found)
    assert tuple(fault.rule for fault in found) == case.rules, case.why


def test_there_are_cases_enough_and_each_rule_that_breaks_has_some() -> None:
    assert len(CASES) >= 150
    breaking = {rule.id for rule in RULES.values() if rule.breaks and rule.id != TOO_COMPLEX}
    assert breaking == {rule for case in CASES for rule in case.rules}


def test_messages_name_the_place() -> None:
    old = schema("message A { message B { oneof o { int32 x = 7; } } }")
    new = schema("message A { message B { oneof o { string z = 7; } } }")
    (fault,) = check_compatibility(CompatibilityLevel.BACKWARD, new, [old])
    assert fault.path == "#/A/B/o/7"
    assert fault.message == "#/A/B/o/7: the field z changed from int32 to string, which is written differently"
