"""Parsing of JSON Schemas: drafts, canonical text, normal form, references, and what is refused with its path."""

import json

import pytest

from moldau.schemas import InvalidSchema, ParsedSchema, SchemaType, checker, parse
from moldau.schemas.jsonschema.documents import MAX_PATTERNS
from moldau.schemas.jsonschema.drafts import Draft, draft_of
from moldau.schemas.jsonschema.schema import JsonSchema


def schema(document: object, **references: object) -> ParsedSchema:
    texts = {name: json.dumps(referenced) for name, referenced in references.items()}
    return parse(SchemaType.JSON, json.dumps(document), texts)


def fits(parsed: ParsedSchema, value: object) -> bool:
    return not checker(parsed).check([json.dumps(value).encode()])


def test_canonical_text_and_normal_form() -> None:
    parsed = parse(SchemaType.JSON, '{ "type" : "string",\n "minLength": 1.0, "default":"ž", "$id":"a" }')
    assert parsed.text == '{"type":"string","minLength":1.0,"default":"ž","$id":"a"}'
    assert parsed.normalized == '{"$id":"a","default":"ž","minLength":1.0,"type":"string"}'
    assert parsed.full_name is None
    assert schema({"title": "Order"}).full_name == "Order"
    assert parsed.formatted("resolved") == parsed.text
    assert schema(True).text == "true"


@pytest.mark.parametrize(
    ("uri", "draft"),
    [
        ("http://json-schema.org/draft-04/schema#", Draft.DRAFT_4),
        ("http://json-schema.org/draft-06/schema#", Draft.DRAFT_6),
        ("http://json-schema.org/draft-07/schema", Draft.DRAFT_7),
        ("https://json-schema.org/draft/2019-09/schema", Draft.DRAFT_2019_09),
        ("https://json-schema.org/draft/2020-12/schema#", Draft.DRAFT_2020_12),
        ("http://json-schema.org/schema#", Draft.DRAFT_7),
        ("http://example.com/own", Draft.DRAFT_7),
    ],
)
def test_drafts(uri: str, draft: Draft) -> None:
    assert draft_of({"$schema": uri}) is draft
    parsed = schema({"$schema": uri, "type": "string"})
    assert isinstance(parsed, JsonSchema)
    assert parsed.draft is draft
    assert fits(parsed, "x")
    assert not fits(parsed, 1)


def test_without_a_schema_it_is_draft_7() -> None:
    assert draft_of({}) is draft_of(True) is Draft.DRAFT_7
    assert fits(schema({"$ref": "#/definitions/a", "maxLength": 0, "definitions": {"a": {"type": "string"}}}), "long")


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ([], "#: a JSON Schema is an object or a boolean"),
        ("x", "#: a JSON Schema is an object or a boolean"),
        ({"type": "strin"}, "#/type: "),
        ({"properties": {"a": {"minLength": -1}}}, "#/properties/a/minLength: "),
        ({"properties": {"a": {"pattern": "("}}}, '#/properties/a/pattern: "(" is not a "regex"'),
        ({"pattern": "(a{1000}){1000}"}, '#/pattern: "(a{1000}){1000}" is not a "regex"'),
        ({"required": "a"}, "#/required: "),
        ({"allOf": []}, "#/allOf: "),
        ({"$ref": "#/definitions/x"}, "#/$ref: #/definitions/x is not in the schema nor among its references"),
        ({"items": {"$ref": "item.json"}}, "#/items/$ref: item.json is not in the schema nor among its references"),
        ({"items": {"$ref": "http://127.0.0.1:1/x.json"}}, "remote schemas are not fetched"),
        ({"$ref": "file:///etc/passwd"}, "remote schemas are not fetched"),
        ({"default": "\ud800"}, "surrogates not allowed"),
        (
            {"items": {"patternProperties": {f"^{index}": {} for index in range(MAX_PATTERNS + 1)}}},
            f"#/items/patternProperties: 101 patterns; at most {MAX_PATTERNS}",
        ),
    ],
)
def test_what_is_refused(document: object, fault: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        schema(document)
    assert fault in str(refused.value)


def test_schemas_that_are_nested_too_deeply_are_refused() -> None:
    with pytest.raises(InvalidSchema, match="nested deeper than"):
        parse(SchemaType.JSON, '{"items":' * 5_000 + "{}" + "}" * 5_000)


def test_references_by_name() -> None:
    order = {
        "type": "object",
        "properties": {"item": {"$ref": "item.json"}, "n": {"$ref": "./item.json#/properties/n"}},
    }
    item = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    parsed = parse(SchemaType.JSON, json.dumps(order), {"item.json": json.dumps(item)})
    assert fits(parsed, {"item": {"n": 1}, "n": 2})
    assert not fits(parsed, {"item": {}})
    assert not fits(parsed, {"n": "x"})


def test_references_of_references() -> None:
    texts = {
        "c.json": '{"definitions":{"n":{"type":"integer"}}}',
        "b.json": '{"$id":"http://example.com/deep/b.json","items":{"$ref":"c.json#/definitions/n"}}',
    }
    parsed = parse(SchemaType.JSON, '{"properties":{"b":{"$ref":"b.json"}}}', texts)
    assert fits(parsed, {"b": [1]})
    assert not fits(parsed, {"b": ["x"]})


def test_references_by_id_and_anchor() -> None:
    document = {
        "$id": "http://example.com/root.json",
        "definitions": {"a": {"$id": "a.json", "type": "integer"}, "b": {"$id": "#b", "type": "string"}},
        "properties": {
            "a": {"$ref": "http://example.com/a.json"},
            "b": {"$ref": "#b"},
            "c": {"$ref": "a.json"},
        },
    }
    parsed = schema(document)
    assert fits(parsed, {"a": 1, "b": "x", "c": 2})
    for wrong in ({"a": "x"}, {"b": 1}, {"c": "x"}):
        assert not fits(parsed, wrong)


def test_pointers_are_unescaped() -> None:
    document = {"definitions": {"a/b~c d": {"type": "integer"}}, "items": {"$ref": "#/definitions/a~1b~0c%20d"}}
    assert not fits(schema(document), ["x"])


def test_a_ref_in_data_is_no_reference() -> None:
    assert fits(schema({"enum": [{"$ref": "nowhere.json"}]}), {"$ref": "nowhere.json"})
    assert schema({"default": {"$ref": "nowhere.json"}, "examples": [{"$ref": "x"}], "const": {"$ref": "y"}})


def test_a_property_may_be_named_as_a_keyword() -> None:
    names = ("default", "enum", "const", "examples", "$ref", "$id", "properties")
    item = {"definitions": {"n": {"type": "integer"}}}
    document = {"properties": {name: {"$ref": "item.json#/definitions/n"} for name in names}}
    parsed = parse(SchemaType.JSON, json.dumps(document), {"item.json": json.dumps(item)})
    for name in names:
        assert fits(parsed, {name: 1})
        assert not fits(parsed, {name: "x"})


def test_faults_of_references_name_them() -> None:
    with pytest.raises(InvalidSchema, match=r"reference a\.json: line 1, column 2"):
        parse(SchemaType.JSON, '{"$ref":"a.json"}', {"a.json": "{"})
