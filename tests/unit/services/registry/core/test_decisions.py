"""What requests decide, step by step: each case is a list of requests with the answers or error codes expected."""

import json
from typing import Any

import pytest

from support.services.core import CoreRegistry

INT = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
LONG = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
TEXT = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
MORE = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]}
USES_R = {"type": "record", "name": "U", "fields": [{"name": "r", "type": "R"}]}


def body(schema: object, **more: object) -> dict[str, object]:
    return {"schema": json.dumps(schema), **more}


REFERS = body(USES_R, references=[{"name": "R", "subject": "r", "version": 1}])
ANYTHING = object()


TAGGED = '{"type":"record","name":"R","fields":[{"name":"a","type":"int","confluent:tags":["PII"]}]}'


class Id(int):
    """Of an answer only the id is compared."""


R = "/subjects/r/versions"
S = "/subjects/s/versions"
Step = tuple[str, str, Any, Any]

CASES: dict[str, list[Step]] = {
    "one content has one id in all subjects": [
        ("POST", R, body(INT), Id(1)),
        ("POST", S, body(INT), Id(1)),
        ("POST", S, body(LONG), Id(2)),
        ("GET", "/schemas/ids/1/subjects", None, ["r", "s"]),
        ("GET", "/schemas/ids/1/versions", None, [{"subject": "r", "version": 1}, {"subject": "s", "version": 1}]),
        ("GET", "/schemas/ids/3", None, 40403),
    ],
    "spacing makes no difference": [
        ("POST", R, {"schema": '{"type":"string"}'}, Id(1)),
        ("POST", R, {"schema": ' "string" '}, Id(1)),
        ("GET", "/schemas/ids/1/schema", None, '"string"'),
        ("GET", R, None, [1]),
    ],
    "each context counts its own ids": [
        ("POST", R, body(INT), Id(1)),
        ("POST", "/subjects/:.eu:r/versions", body(LONG), Id(1)),
        ("POST", "/subjects/:.eu:r/versions", body(INT), 40901),
        ("GET", "/contexts", None, [".", ".eu"]),
        ("GET", "/subjects", None, [":.eu:r", "r"]),
        ("GET", "/subjects?subjectPrefix=:.eu:", None, [":.eu:r"]),
        ("GET", "/contexts/.eu/subjects/r/versions", None, [1]),
        ("GET", "/contexts/eu/subjects/r/versions", None, [1]),
        ("GET", "/contexts/.eu/subjects", None, [":.eu:r"]),
        ("GET", "/contexts/.eu/schemas/ids/1/schema", None, json.dumps(LONG, separators=(",", ":"))),
        ("GET", "/contexts/.eu/schemas/ids/1/subjects", None, [":.eu:r"]),
        ("GET", "/contexts/.eu/schemas/ids/1/subjects?subject=x", None, []),
        ("POST", "/contexts/.eu/subjects/r", body(LONG), Id(1)),
        ("PUT", "/contexts/.eu/config", {"compatibility": "NONE"}, ANYTHING),
        ("GET", "/config/:.eu:", None, {"compatibilityLevel": "NONE"}),
        ("DELETE", "/contexts/.eu", None, 42211),
        ("DELETE", "/subjects/:.eu:r", None, [1]),
        ("DELETE", "/subjects/:.eu:r?permanent=true", None, [1]),
        ("DELETE", "/contexts/.eu", None, None),
        ("GET", "/contexts", None, ["."]),
        ("DELETE", "/contexts/.eu", None, 40401),
    ],
    "a name without context is found in the others": [
        ("POST", "/subjects/:.eu:r/versions", body(INT), Id(1)),
        ("GET", "/subjects/r/versions/1/schema", None, json.dumps(INT, separators=(",", ":"))),
        ("GET", "/schemas/ids/1?subject=r", None, ANYTHING),
        ("GET", "/schemas/ids/1", None, 40403),
    ],
    "deletion is soft first": [
        ("POST", R, body(INT), Id(1)),
        ("POST", R, body(LONG), Id(2)),
        ("DELETE", f"{R}/1?permanent=true", None, 40407),
        ("DELETE", f"{R}/1", None, 1),
        ("DELETE", f"{R}/1", None, 40406),
        ("GET", f"{R}/1", None, 40402),
        ("GET", f"{R}/1?deleted=true", None, ANYTHING),
        ("GET", f"{R}?deleted=true", None, [1, 2]),
        ("GET", f"{R}?deletedOnly=true", None, [1]),
        ("GET", f"{R}?deletedAsNegative=true", None, [-1, 2]),
        ("GET", "/schemas/ids/1", None, ANYTHING),
        ("DELETE", "/subjects/r?permanent=true", None, 40405),
        ("DELETE", "/subjects/r", None, [2]),
        ("DELETE", "/subjects/r", None, 40404),
        ("GET", R, None, 40401),
        ("GET", "/subjects?deletedOnly=true", None, ["r"]),
        ("DELETE", "/subjects/r?permanent=true", None, [1, 2]),
        ("DELETE", "/subjects/r", None, 40401),
        ("GET", "/schemas/ids/1", None, 40403),
    ],
    "a deleted schema comes back with its id": [
        ("POST", R, body(INT), Id(1)),
        ("DELETE", "/subjects/r", None, [1]),
        ("POST", R, body(INT), Id(1)),
        ("GET", f"{R}?deleted=true", None, [2]),
    ],
    "versions and ids that are none": [
        ("POST", R, body(INT), Id(1)),
        ("GET", f"{R}/0", None, 42202),
        ("GET", f"{R}/-2", None, 42202),
        ("GET", f"{R}/one", None, 42202),
        ("GET", f"{R}/99999999999", None, 42202),
        ("GET", f"{R}/2", None, 40402),
        ("GET", f"{R}/latest/schema", None, json.dumps(INT, separators=(",", ":"))),
        ("GET", f"{R}/-1/schema", None, json.dumps(INT, separators=(",", ":"))),
        ("DELETE", f"{R}/7", None, 40402),
        ("DELETE", "/subjects/x/versions/7", None, 40401),
        ("GET", "/schemas/guids/xyz", None, 40403),
    ],
    "schemas that are none": [
        ("POST", R, {"schema": "{"}, 42201),
        ("POST", R, {"schema": 7}, 42201),
        ("POST", R, {}, 42201),
        ("POST", R, [], 42201),
        ("POST", R, body(INT, schemaType="XML"), 42201),
        ("POST", R, body(INT, schemaType=7), 42201),
        ("POST", R, body(INT, references="r"), 42201),
        ("POST", R, body(INT, references=[{"name": "x"}]), 42201),
        ("POST", R, body(INT, id="7"), 42201),
        ("POST", R, body(INT, version=2), 42201),
        ("POST", R, REFERS, 42201),
        ("POST", "/subjects/__GLOBAL/versions", body(INT), 42208),
        ("POST", "/subjects/a%09b/versions", body(INT), 42208),
        ("POST", "/subjects/:.__GLOBAL:a/versions", body(INT), 42208),
    ],
    "references": [
        ("POST", R, body(INT), Id(1)),
        ("POST", S, REFERS, Id(2)),
        ("GET", f"{R}/1/referencedby", None, [2]),
        ("DELETE", f"{R}/1", None, 42206),
        ("DELETE", "/subjects/r", None, 42206),
        ("DELETE", "/subjects/s", None, [1]),
        ("GET", f"{R}/1/referencedby", None, []),
        ("GET", f"{R}/1/referencedby?deleted=true", None, [2]),
        ("DELETE", "/subjects/r", None, [1]),
        ("DELETE", "/subjects/r?permanent=true", None, 42206),
        ("DELETE", "/subjects/s?permanent=true", None, [1]),
        ("DELETE", "/subjects/r?permanent=true", None, [1]),
    ],
    "compatibility by level": [
        ("POST", R, body(INT), Id(1)),
        ("POST", R, body(TEXT), 40901),
        ("POST", f"{R}?force=true", body(TEXT), Id(2)),
        ("POST", "/compatibility/subjects/r/versions", body(INT), {"is_compatible": False}),
        ("POST", "/compatibility/subjects/r/versions/1", body(LONG), {"is_compatible": True}),
        ("POST", "/compatibility/subjects/r/versions/latest", body(LONG), {"is_compatible": False}),
        ("POST", "/compatibility/subjects/r/versions/9", body(LONG), 40402),
        ("POST", "/compatibility/subjects/x/versions/1", body(LONG), 40401),
        ("POST", "/compatibility/subjects/x/versions", body(LONG), {"is_compatible": True}),
        ("PUT", "/config/r", {"compatibility": "none"}, {"compatibility": "NONE"}),
        ("POST", R, body(MORE), Id(3)),
        ("PUT", "/config/r", {"compatibility": "BACKWARD_TRANSITIVE"}, ANYTHING),
        ("POST", R, body(LONG), 40901),
    ],
    "compatibility within groups": [
        ("PUT", "/config/r", {"compatibilityGroup": "major"}, {"compatibilityGroup": "major"}),
        ("POST", R, body(INT, metadata={"properties": {"major": "1"}}), Id(1)),
        ("POST", R, body(TEXT, metadata={"properties": {"major": "1"}}), 40901),
        ("POST", R, body(TEXT, metadata={"properties": {"major": "2"}}), Id(2)),
        ("POST", R, body(LONG, metadata={"properties": {"major": "1"}}), Id(3)),
    ],
    "config": [
        ("GET", "/config", None, {"compatibilityLevel": "BACKWARD"}),
        ("GET", "/config/r", None, 40408),
        ("GET", "/config/r?defaultToGlobal=true", None, {"compatibilityLevel": "BACKWARD"}),
        ("PUT", "/config", {"compatibility": "FULL"}, {"compatibility": "FULL"}),
        ("GET", "/config/r?defaultToGlobal=true", None, {"compatibilityLevel": "FULL"}),
        ("GET", "/config/:.eu:r?defaultToGlobal=true", None, {"compatibilityLevel": "BACKWARD"}),
        ("PUT", "/config/:.__GLOBAL:", {"compatibility": "FORWARD"}, ANYTHING),
        ("GET", "/config/:.eu:r?defaultToGlobal=true", None, {"compatibilityLevel": "FORWARD"}),
        ("PUT", "/config/:.eu:", {"compatibility": "NONE"}, ANYTHING),
        ("GET", "/config/:.eu:r?defaultToGlobal=true", None, {"compatibilityLevel": "NONE"}),
        ("PUT", "/config/r", {"normalize": True}, {"normalize": True}),
        ("GET", "/config/r?defaultToGlobal=true", None, {"compatibilityLevel": "FULL", "normalize": True}),
        ("PUT", "/config/r", {"compatibility": "NONE"}, {"compatibility": "NONE", "normalize": True}),
        ("PUT", "/config/r", {"normalize": None}, {"compatibility": "NONE"}),
        ("DELETE", "/config/r", None, {"compatibilityLevel": "NONE"}),
        ("DELETE", "/config/r", None, 40401),
        ("DELETE", "/config", None, {"compatibilityLevel": "FULL"}),
        ("GET", "/config", None, {"compatibilityLevel": "BACKWARD"}),
        ("PUT", "/config", {"compatibility": "SOMETIMES"}, 42203),
        ("PUT", "/config", {"normalize": "yes"}, 42203),
        ("PUT", "/config/__EMPTY", {"compatibility": "NONE"}, 42208),
        ("PUT", "/config", {"defaultRuleSet": {"domainRules": [{"name": "x"}]}}, 42210),
    ],
    "aliases": [
        ("POST", R, body(INT), Id(1)),
        ("PUT", "/config/short", {"alias": "r"}, {"alias": "r"}),
        ("GET", "/subjects/short/versions", None, [1]),
        ("POST", "/subjects/short/versions", body(LONG), Id(2)),
        ("GET", R, None, [1, 2]),
    ],
    "modes": [
        ("GET", "/mode", None, {"mode": "READWRITE"}),
        ("GET", "/mode/r", None, 40409),
        ("PUT", "/mode/r", {"mode": "readonly"}, {"mode": "READONLY"}),
        ("POST", R, body(INT), 42205),
        ("DELETE", "/subjects/r", None, 40401),
        ("PUT", "/config/r", {"compatibility": "NONE"}, 42205),
        ("DELETE", "/mode/r", None, {"mode": "READONLY"}),
        ("DELETE", "/mode/r", None, 40401),
        ("POST", R, body(INT), Id(1)),
        ("PUT", "/mode", {"mode": "READONLY_OVERRIDE"}, ANYTHING),
        ("PUT", "/mode/r", {"mode": "READWRITE"}, ANYTHING),
        ("DELETE", "/subjects/r", None, 42205),
        ("DELETE", "/mode", None, {"mode": "READONLY_OVERRIDE"}),
        ("DELETE", "/subjects/r", None, [1]),
        ("PUT", "/mode", {"mode": "SLOW"}, 42204),
        ("PUT", "/mode/r", {"mode": "FORWARD"}, 42204),
        ("PUT", "/mode/:.__GLOBAL:", {"mode": "FORWARD"}, {"mode": "FORWARD"}),
        ("POST", "/subjects/:.eu:r/versions", body(INT), 42205),
        ("POST", "/subjects/:.eu:r/versions", body(INT, id=7, version=3), Id(7)),
    ],
    "a mode of a context and those of its subjects": [
        ("PUT", "/mode/:.eu:", {"mode": "READONLY"}, ANYTHING),
        ("PUT", "/mode/:.eu:r", {"mode": "READWRITE"}, ANYTHING),
        ("POST", "/subjects/:.eu:s/versions", body(INT), 42205),
        ("POST", "/subjects/:.eu:r/versions", body(INT), Id(1)),
        ("DELETE", "/mode/:.eu:?recursive=true", None, {"mode": "READONLY"}),
        ("GET", "/mode/:.eu:r", None, 40409),
        ("POST", "/subjects/:.eu:s/versions", body(INT), Id(1)),
    ],
    "import": [
        ("POST", R, body(INT), Id(1)),
        ("POST", R, body(INT, id=9), 42205),
        ("PUT", "/mode", {"mode": "IMPORT"}, 42205),
        ("DELETE", "/subjects/r", None, [1]),
        ("PUT", "/mode", {"mode": "IMPORT"}, {"mode": "IMPORT"}),
        ("GET", "/subjects?deleted=true", None, []),
        ("POST", R, body(INT), 42205),
        ("POST", R, body(INT, id=40, version=5), Id(40)),
        ("POST", R, body(TEXT, id=40, version=6), 42205),
        ("POST", R, body(TEXT, id=41, version=6), Id(41)),
        ("PUT", "/mode", {"mode": "READWRITE"}, ANYTHING),
        ("POST", S, body(LONG), Id(42)),
        ("GET", R, None, [5, 6]),
        ("PUT", "/mode/s?force=true", {"mode": "IMPORT"}, {"mode": "IMPORT"}),
        ("GET", "/schemas/ids/42?fetchMaxId=true&subject=s", None, ANYTHING),
    ],
    "metadata and rules that config adds": [
        ("PUT", "/config/r", {"defaultMetadata": {"properties": {"owner": "all", "kind": "x"}}}, ANYTHING),
        ("PUT", "/config/r", {"overrideMetadata": {"properties": {"kind": "y"}}}, ANYTHING),
        ("POST", R, body(INT, metadata={"properties": {"owner": "me"}}), Id(1)),
        ("GET", "/subjects/r/metadata?key=owner&value=me&key=kind&value=y", None, ANYTHING),
        ("GET", "/subjects/r/metadata?key=owner&value=all", None, 40403),
        ("POST", R, body(LONG), Id(2)),
        ("GET", "/subjects/r/metadata?key=owner&value=me", None, ANYTHING),
        ("POST", "/subjects/r", body(INT), ANYTHING),
    ],
    "look-ups": [
        ("POST", "/subjects/r", body(INT), 40401),
        ("POST", R, body(INT), Id(1)),
        ("POST", "/subjects/r", body(LONG), 40403),
        ("POST", "/subjects/r", {"schema": "{"}, 42201),
        ("POST", "/subjects/r", body(INT), Id(1)),
        ("DELETE", "/subjects/r", None, [1]),
        ("POST", "/subjects/r", body(INT), 40401),
        ("POST", "/subjects/r?deleted=true", body(INT), Id(1)),
    ],
    "an empty schema takes the latest text": [
        ("POST", R, body(INT), Id(1)),
        ("POST", R, {"schema": "", "metadata": {"properties": {"owner": "me"}}}, Id(2)),
        ("GET", f"{R}/2/schema", None, json.dumps(INT, separators=(",", ":"))),
    ],
    "tags": [
        ("POST", R, body(INT), Id(1)),
        ("POST", f"{R}/1/tags", {"tagsToAdd": [{"schemaEntity": {"entityPath": "R.a"}, "tags": ["PII"]}]}, Id(2)),
        ("GET", f"{R}/2/schema", None, TAGGED),
        ("POST", f"{R}/2/tags", {"tagsToAdd": [{"schemaEntity": {"entityPath": "R.a"}, "tags": ["PII"]}]}, Id(2)),
        ("POST", f"{R}/2/tags", {"tagsToRemove": [{"schemaEntity": {"entityPath": "R.a"}, "tags": ["PII"]}]}, Id(1)),
        ("POST", f"{R}/1/tags", {"tagsToAdd": [{"schemaEntity": {"entityPath": "R.x"}, "tags": ["PII"]}]}, 42201),
        ("POST", f"{R}/1/tags", {"tagsToAdd": [{"tags": ["PII"]}]}, 42201),
        ("POST", f"{R}/9/tags", {}, 40402),
        ("POST", f"{R}/1/tags", {"metadata": {"properties": {"owner": "me"}}}, Id(3)),
    ],
    "pages": [
        ("POST", R, body(INT), Id(1)),
        ("POST", S, body(INT), Id(1)),
        ("GET", "/subjects?offset=1", None, ["s"]),
        ("GET", "/subjects?limit=1", None, ["r"]),
        ("GET", "/subjects?limit=0", None, []),
        ("GET", "/subjects?offset=5", None, []),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_decisions(steps: list[Step]) -> None:
    registry = CoreRegistry()
    for number, (method, target, given, expected) in enumerate(steps, start=1):
        found = registry.ask(method, target, given)
        where = f"step {number}: {method} {target}"
        if isinstance(expected, Id):
            assert isinstance(found, dict), (where, found)
            assert found["id"] == expected, where
        elif expected is ANYTHING:
            assert isinstance(found, dict | list | str), (where, found)
        else:
            assert found == expected, where
    replayed = registry.replayed()
    for path in ("/schemas?deleted=true", "/contexts", "/config", "/mode", "/subjects"):
        assert replayed.ask("GET", path) == registry.ask("GET", path), "a registry that reads the topic says the same"


def test_the_answer_to_a_registration_has_no_other_fields() -> None:
    """Old Java clients refuse fields that they do not know (karapace#435)."""
    assert set(CoreRegistry().register("r", INT)) == {"id", "version", "guid"}


def test_normalized_references_and_texts_are_one_schema() -> None:
    registry = CoreRegistry()
    first = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    second = {"properties": {"b": {"type": "string"}, "a": {"type": "integer"}}, "type": "object"}
    one = registry.register("r", first, "?normalize=true", schemaType="JSON")
    assert registry.register("r", second, "?normalize=true", schemaType="JSON") == one
    assert registry.ask("POST", "/subjects/r", {"schema": json.dumps(second), "schemaType": "JSON"}) == 40403
    found = registry.ask("POST", "/subjects/r?normalize=true", {"schema": json.dumps(second), "schemaType": "JSON"})
    assert found["id"] == one["id"]
