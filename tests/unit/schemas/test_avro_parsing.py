"""Parsing of Avro schemas: canonical text, normal form, references, and what is refused with its path.

Which schemas are valid and what their canonical text is, Java's Avro says too: see test_avro_java.
"""

import json

import pytest

from moldau.schemas import InvalidSchema, ParsedSchema, SchemaType, parse
from moldau.schemas.json_text import MAX_JSON_NESTING
from moldau.schemas.schema import MAX_NESTING, MAX_REFERENCED_BYTES, MAX_SCHEMA_BYTES


def avro(text: str, **references: str) -> ParsedSchema:
    return parse(SchemaType.AVRO, text, references)


def nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + '"int"' + "}" * depth


@pytest.mark.parametrize(
    ("text", "canonical", "normal", "name"),
    [
        ('{"type":"string"}', '"string"', '"string"', "string"),
        ("string", '"string"', '"string"', "string"),
        ('{"type":{"type":"int"}}', '"int"', '"int"', "int"),
        (
            '{"fields":[],"name":"A","type":"record","namespace":"x"}',
            '{"type":"record","name":"A","namespace":"x","fields":[]}',
            '{"name":"x.A","type":"record","fields":[]}',
            "x.A",
        ),
        (
            '{"type":"record","name":"x.y.A","fields":[{"name":"a","type":{"type":"string"},"doc":"d","z":1,"b":2}]}',
            '{"type":"record","name":"A","namespace":"x.y","fields":'
            '[{"name":"a","type":"string","doc":"d","z":1,"b":2}]}',
            '{"name":"x.y.A","type":"record","fields":'
            '[{"name":"a","type":"string","order":"ascending","doc":"d","b":2,"z":1}]}',
            "x.y.A",
        ),
        (
            '{"type":"bytes","scale":2,"precision":4,"logicalType":"decimal"}',
            '{"type":"bytes","scale":2,"precision":4,"logicalType":"decimal"}',
            '{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}',
            "bytes",
        ),
        (
            '{"type":"enum","name":"E","symbols":["B","A"],"doc":"","aliases":["D","C"],"default":"A"}',
            '{"type":"enum","name":"E","doc":"","symbols":["B","A"],"default":"A","aliases":["D","C"]}',
            '{"name":"E","type":"enum","symbols":["B","A"],"aliases":["C","D"],"default":"A"}',
            "E",
        ),
        (
            '[{"type":"fixed","name":"n.F","size":2},{"type":"map","values":"n.F"}]',
            '[{"type":"fixed","name":"F","namespace":"n","size":2},{"type":"map","values":"n.F"}]',
            '[{"name":"n.F","type":"fixed","size":2},{"type":"map","values":"n.F"}]',
            "union",
        ),
        (  # a type without a namespace inside of one: its full name alone would be taken as n.A
            '{"type":"record","name":"n.R","fields":[{"name":"f","type":{"type":"fixed","name":"A","namespace":"","size":2}}]}',
            '{"type":"record","name":"R","namespace":"n","fields":'
            '[{"name":"f","type":{"type":"fixed","name":"A","namespace":"","size":2}}]}',
            '{"name":"n.R","type":"record","fields":'
            '[{"name":"f","type":{"name":"A","namespace":"","type":"fixed","size":2},"order":"ascending"}]}',
            "n.R",
        ),
    ],
)  # fmt: skip
def test_canonical_text_and_normal_form(text: str, canonical: str, normal: str, name: str) -> None:
    schema = avro(text)
    assert (schema.text, schema.normalized, schema.full_name) == (canonical, normal, name)
    assert avro(schema.text).text == schema.text
    assert avro(schema.normalized).normalized == schema.normalized


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"type":', "Avro schema: line 1, column 9"),
        ('{"type":"int",\n"x":NaN}', "NaN is not a JSON number"),
        ('{"type":"int","x":1e999}', "1e999 is too large"),
        ('{"type":"int","x":' + "9" * 5000 + "}", "Avro schema: Exceeds the limit"),
        ("[" * 257 + "]" * 257, f"nested deeper than {MAX_JSON_NESTING} brackets"),
        ("[" * 100_000, f"nested deeper than {MAX_JSON_NESTING} brackets"),
        ("1", "/: 1 is no type"),
        ("null2", "/: the type null2 is not defined"),
        ('{"name":"A"}', "/: the object has no type"),
        ('{"type":"array"}', "/: items is missing"),
        ('{"type":"map","values":["int","int"]}', "/values/1: the union has int twice"),
        ('["int",["null"]]', "/1: a union must not contain a union"),
        ('{"type":"record","name":"A"}', "/: a record needs an array of fields"),
        ('{"type":"record","fields":[]}', "/: a record needs a name"),
        ('{"type":"record","name":"A","fields":[1]}', "/fields/0: a field is an object"),
        ('{"type":"record","name":"A","fields":[{"type":"int"}]}', "/fields/0: a name is missing"),
        ('{"type":"record","name":"A","fields":[{"name":"a"}]}', "/fields/0: type is missing"),
        ('{"type":"record","name":"A","fields":[{"name":"a-b","type":"int"}]}', "/fields/0: 'a-b' is no name"),
        ('{"type":"record","name":"A","fields":[{"name":"a","type":"B"}]}', "/fields/0/type: the type B is not"),
        ('{"type":"record","name":"n.A","fields":[{"name":"a","type":"B"}]}', "the type n.B is not defined"),
        (
            '{"type":"record","name":"A","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "/fields/1: the record has the field a twice",
        ),
        (
            '{"type":"record","name":"A","fields":[{"name":"a","type":{"type":"enum","name":"A","symbols":[]}}]}',
            "/fields/0/type: the type A is defined twice",
        ),
        ('{"type":"record","name":"A","fields":[{"name":"a","type":"int","default":"1"}]}', "default of a is no int"),
        (
            '{"type":"record","name":"A","fields":[{"name":"a","type":["null","int"],"default":"x"}]}',
            "/fields/0: the default of a fits no branch of its union",
        ),
        ('{"type":"record","name":"A","fields":[{"name":"a","type":"int","order":"up"}]}', "/fields/0/order: up is"),
        ('{"type":"record","name":"A","aliases":"B","fields":[]}', "/aliases: expected an array of names"),
        ('{"type":"record","name":"A","doc":1,"fields":[]}', "/doc: expected a string"),
        ('{"type":"record","name":"A","namespace":1,"fields":[]}', "/namespace: expected a string"),
        ('{"type":"record","name":"long","fields":[]}', "/: long is the name of a primitive type"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "/symbols: the enum has the symbol A twice"),
        ('{"type":"enum","name":"E","symbols":["1"]}', "/symbols/0: '1' is no name"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "/default: B is not a symbol"),
        ('{"type":"enum","name":"E"}', "/: an enum needs an array of symbols"),
        ('{"type":"fixed","name":"F","size":"1"}', "/size: a fixed needs a size"),
        (nested(MAX_NESTING + 1), f"types are nested deeper than {MAX_NESTING}"),
        ('"' + "x" * MAX_SCHEMA_BYTES + '"', f"larger than {MAX_SCHEMA_BYTES} bytes"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        avro(text)
    assert fault in str(refused.value)


def test_references_by_full_name() -> None:
    item = '{"type":"record","name":"shop.Item","fields":[{"name":"n","type":"int"}]}'
    order = '{"type":"record","name":"shop.Order","fields":[{"name":"items","type":{"type":"array","items":"Item"}}]}'
    schema = avro('{"type":"map","values":"shop.Order"}', item=item, order=order)
    assert schema.text == '{"type":"map","values":"shop.Order"}'
    assert schema.normalized == '{"type":"map","values":"shop.Order"}'
    resolved = json.loads(schema.formatted("resolved"))
    assert resolved["values"]["fields"][0]["type"]["items"]["fields"][0]["name"] == "n"
    assert schema.formatted("unknown") == schema.text
    with pytest.raises(InvalidSchema, match=r"reference order: /fields/0/type/items: the type shop\.Item is"):
        avro('"shop.Order"', order=order, item=item)


def test_a_default_may_be_of_a_type_that_is_defined_later() -> None:
    avro(
        '{"type":"record","name":"A","fields":[{"name":"next","type":["null","A"],"default":null},'
        '{"name":"b","type":{"type":"record","name":"B","fields":[{"name":"x","type":"int"}]},"default":{"x":1}}]}'
    )


def test_nesting_counts_through_references() -> None:
    chain = {"r0": '{"type":"record","name":"R0","fields":[]}'}
    for index in range(1, MAX_NESTING + 2):
        chain[f"r{index}"] = json.dumps(
            {"type": "record", "name": f"R{index}", "fields": [{"name": "x", "type": f"R{index - 1}"}]}
        )
    with pytest.raises(InvalidSchema, match=f"types are nested deeper than {MAX_NESTING}"):
        avro('"R1"', **chain)


def test_large_references_are_refused() -> None:
    with pytest.raises(InvalidSchema, match=f"larger than {MAX_REFERENCED_BYTES} bytes together"):
        avro('"int"', **{f"r{index}": "x" * MAX_SCHEMA_BYTES for index in range(9)})
