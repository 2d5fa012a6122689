"""The cases of Avro's schema resolution, and what incompatibilities say. Java's Avro agrees: see test_avro_java."""

import json

import pytest

from moldau.schemas import CompatibilityLevel, SchemaType, check_compatibility, parse
from moldau.schemas.avro.rules import RULES
from moldau.schemas.rules import TOO_COMPLEX
from support.schemas.avro_cases import CASES, Case, array, field, record


def rules_of(reader: object, writer: object) -> tuple[str, ...]:
    new, old = (parse(SchemaType.AVRO, json.dumps(schema)) for schema in (reader, writer))
    found = check_compatibility(CompatibilityLevel.BACKWARD, new, [old])
    assert all(fault.path in fault.message for fault in found)
    return tuple(fault.rule for fault in found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_a_reader_and_a_writer(case: Case) -> None:
    assert rules_of(case.reader, case.writer) == case.rules, case.why


def test_there_are_cases_enough_and_each_rule_has_some() -> None:
    assert len(CASES) >= 150
    assert {rule for case in CASES for rule in case.rules} == {name for name in RULES if name != TOO_COMPLEX}


def test_messages_name_the_place() -> None:
    reader = record(field("s", record(field("x", array(["null", "int"])), name="S")))
    writer = record(field("s", record(field("x", array(["null", "string"])), name="S")))
    new, old = (parse(SchemaType.AVRO, json.dumps(schema)) for schema in (reader, writer))
    (fault,) = check_compatibility(CompatibilityLevel.BACKWARD, new, [old])
    assert fault.path == "/fields/0/type/fields/0/type/items/1"
    assert fault.message == f"{fault.path}: the reader's union has no branch for the writer's string"
