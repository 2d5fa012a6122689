"""The cases of JSON Schema's compatibility, and what incompatibilities say."""

import json

import pytest

from moldau.schemas import CompatibilityLevel, SchemaType, check_compatibility, parse
from moldau.schemas.jsonschema.rules import RULES
from moldau.schemas.rules import TOO_COMPLEX
from support.schemas.json_cases import CASES, Case, I, S, arr, closed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_a_change(case: Case) -> None:
    new, old = (parse(SchemaType.JSON, json.dumps(schema)) for schema in (case.update, case.original))
    found = check_compatibility(CompatibilityLevel.BACKWARD, new, [old])
    assert all(fault.path in fault.message for fault in found)
    assert tuple(fault.rule for fault in found) == case.rules, case.why


def test_there_are_cases_enough_and_each_rule_that_breaks_has_some() -> None:
    assert len(CASES) >= 150
    breaking = {rule.id for rule in RULES.values() if rule.breaks and rule.id != TOO_COMPLEX}
    assert breaking == {rule for case in CASES for rule in case.rules}


def test_messages_name_the_place() -> None:
    old, new = (
        parse(SchemaType.JSON, json.dumps(closed(a=arr(items=closed(b={"oneOf": [kind, I]}))))) for kind in (S, I)
    )
    (fault,) = check_compatibility(CompatibilityLevel.BACKWARD, new, [old])
    assert fault.rule == "SUM_TYPE_NARROWED"
    assert fault.path == "#/properties/a/items/properties/b"
    assert fault.message == "#/properties/a/items/properties/b: fewer schemas may fit"
