"""Our Avro beside Avro's Java library: which schemas are valid, their canonical text, and what is compatible."""

import base64
import importlib.util
import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from moldau.schemas import CompatibilityLevel, InvalidSchema, SchemaType, check_compatibility, parse
from support.kafka import jvm
from support.schemas.avro_cases import CASES
from support.schemas.avro_random import changed, random_schema

PROGRAM = Path(__file__).parent / "AvroByJava.java"
PAIRS = 1_500

VALID = [
    '"string"',
    '{"type":"string"}',
    '{"type":"string","avro.java.string":"String"}',
    '{"type":"int","logicalType":"date"}',
    '{"type":"bytes","scale":2,"precision":4,"logicalType":"decimal"}',
    '{"name":"A","type":"record","namespace":"x.y","fields":[]}',
    '{"type":"record","name":"x.y.A","doc":"d","aliases":["B","z.C","x.y.D"],"fields":[],"p":{"q":[1,2.5,null]}}',
    '{"type":"record","name":"A","fields":[{"default":1,"doc":"d","order":"descending","aliases":["b"],'
    '"type":"int","name":"a","p":1}]}',
    '{"type":"record","name":"n.A","fields":[{"name":"a","type":{"type":"enum","name":"E","symbols":["X"]}},'
    '{"name":"b","type":"E"},{"name":"c","type":"n.E"}]}',
    '{"type":"record","name":"n.A","fields":[{"name":"a","type":{"type":"enum","name":"m.E","symbols":["X"]}},'
    '{"name":"b","type":"m.E"}]}',
    '{"type":"record","name":"n.A","fields":[{"name":"a","type":{"type":"fixed","name":"F","namespace":"","size":1}},'
    '{"name":"b","type":["null","F"]}]}',
    '{"type":"enum","name":"E","symbols":["A","B"],"default":"A","doc":"d","aliases":["D"]}',
    '{"type":"fixed","name":"F","size":3,"aliases":["G"],"p":true}',
    '["null",{"type":"array","items":{"type":"map","values":"long"}}]',
    '{"type":"array","items":"int","p":1}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":["int","null"],"default":null}]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":"double","default":1}]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":"bytes","default":"\\u00ff"}]}',
    '{"type":"error","name":"A","fields":[]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":{"type":"record","name":"B","fields":'
    '[{"name":"x","type":"int","default":1}]},"default":{}}]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":{"type":"long","logicalType":"timestamp-millis"}}]}',
]
INVALID = [
    "",
    "{}",
    '"nothing"',
    '{"type":"record"}',
    '{"type":"record","name":"A"}',
    '{"type":"record","name":"1A","fields":[]}',
    '{"type":"record","name":"A-B","fields":[]}',
    '{"type":"record","name":"Ä","fields":[]}',
    '{"type":"record","name":"int","fields":[]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
    '{"type":"record","name":"A","fields":[{"name":"a"}]}',
    '{"type":"record","name":"A","fields":[{"name":"a b","type":"int"}]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":"B"}]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":"int","default":"x"}]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":"int","default":1.5}]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":"int","default":2147483648}]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":["null","int"],"default":"x"}]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":{"type":"array","items":"int"},"default":[null]}]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":"int","order":"upwards"}]}',
    '{"type":"record","name":"A","fields":[{"name":"a","type":{"type":"record","name":"A","fields":[]}}]}',
    '{"type":"enum","name":"E","symbols":["A","A"]}',
    '{"type":"enum","name":"E","symbols":["A-B"]}',
    '{"type":"enum","name":"E"}',
    '{"type":"enum","name":"E","symbols":["A"],"default":"B"}',
    '{"type":"fixed","name":"F"}',
    '{"type":"fixed","name":"F","size":-1}',
    '{"type":"array"}',
    '{"type":"map"}',
    '["int","int"]',
    '["int",["null"]]',
    '{"type":"record","name":"A","fields":{}}',
    "[",
]


def ask_java(pairs: Sequence[tuple[str, str]]) -> list[str]:
    java = jvm.java()
    spark = importlib.util.find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        pytest.skip("Avro's Java library comes with pyspark: pip install moldau[spark]")
    jars = Path(spark.origin).parent / "jars"
    found = [str(jar) for name in ("avro-[0-9]*", "jackson-*", "slf4j-api*") for jar in jars.glob(f"{name}.jar")]
    lines = "".join(f"{_packed(reader)} {_packed(writer)}\n" for reader, writer in pairs)
    done = subprocess.run(
        [str(java), "-cp", ":".join(found), "-Dstdout.encoding=UTF-8", str(PROGRAM)],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "="


def ours(reader: str, writer: str) -> str:
    try:
        new, old = parse(SchemaType.AVRO, reader), parse(SchemaType.AVRO, writer)
    except InvalidSchema:
        return "ERROR"
    found = check_compatibility(CompatibilityLevel.BACKWARD, new, [old])
    return ",".join(sorted({fault.rule for fault in found})) + "\t" + new.text


def same(ours: str, theirs: str) -> bool:
    """Whether both refuse a schema, or give it one text and one verdict.

    Java throws at a field that is ambiguous, and compares a missing field whose enum has a default with a record.
    """
    if theirs == "ERROR":
        return ours == "ERROR" or not ours.startswith("\t")
    (our_rules, _, our_text), (their_rules, _, their_text) = ours.partition("\t"), theirs.partition("\t")
    return our_text == their_text and bool(our_rules) == bool(their_rules)


def test_java_agrees() -> None:
    choice = random.Random(20)
    pairs = [(json.dumps(case.reader), json.dumps(case.writer)) for case in CASES]
    pairs += [(text, text) for text in (*VALID, *INVALID)]
    for _ in range(PAIRS):
        schema = random_schema(choice)
        pairs.append((json.dumps(changed(schema, choice)), json.dumps(schema)))
    differ = [
        f"{reader}\n{writer}\nJava: {theirs}\nours: {mine}"
        for (reader, writer), theirs in zip(pairs, ask_java(pairs), strict=True)
        if not same(mine := ours(reader, writer), theirs)
    ]
    assert not differ, "\n\n".join(differ[:10])
    assert all(ours(text, text).startswith("\t") for text in VALID)
    assert all(ours(text, text) == "ERROR" for text in INVALID)
