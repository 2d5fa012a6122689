"""Laws of schemas: of compatibility, of canonical texts and normal forms, and what compatible means for data."""

import io
import json
from collections.abc import Callable
from contextlib import suppress
from random import Random

import fastavro
import fastavro.utils
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.schemas import (
    CompatibilityLevel,
    InvalidSchema,
    ParsedSchema,
    SchemaType,
    check_compatibility,
    checker,
    parse,
)
from support.schemas.avro_random import changed, random_schema
from support.schemas.json_random import changed_json_schema, random_json_schema, random_value
from support.schemas.protobuf_random import changed_model, random_model, written

CHOICES = st.randoms(use_true_random=False)


def avro_texts(choice: Random, count: int) -> list[str]:
    schema = random_schema(choice)
    texts = [schema]
    for _ in range(count - 1):
        texts.append(changed(texts[-1], choice))
    return [json.dumps(text) for text in texts]


def json_texts(choice: Random, count: int) -> list[str]:
    texts = [random_json_schema(choice)]
    for _ in range(count - 1):
        texts.append(changed_json_schema(texts[-1], choice))
    return [json.dumps(text) for text in texts]


def protobuf_texts(choice: Random, count: int) -> list[str]:
    models = [random_model(choice)]
    for _ in range(count - 1):
        models.append(changed_model(models[-1], choice))
    return [written(model) for model in models]


# A schema and changes of it, each of the one before.
FORMATS: dict[SchemaType, Callable[[Random, int], list[str]]] = {
    SchemaType.AVRO: avro_texts,
    SchemaType.JSON: json_texts,
    SchemaType.PROTOBUF: protobuf_texts,
}
formats = pytest.mark.parametrize("schema_type", FORMATS)


def schemas(schema_type: SchemaType, choice: Random, count: int) -> list[ParsedSchema]:
    """Those of some random texts that are valid."""
    found = []
    for text in FORMATS[schema_type](choice, count):
        try:
            found.append(parse(schema_type, text))
        except InvalidSchema:
            continue
    return found


def allowed(level: CompatibilityLevel, new: ParsedSchema, *earlier: ParsedSchema) -> bool:
    return not check_compatibility(level, new, earlier)


@formats
@given(choice=CHOICES)
def test_a_schema_is_compatible_with_itself(schema_type: SchemaType, choice: Random) -> None:
    for schema in schemas(schema_type, choice, 1):
        again = parse(schema_type, schema.text)
        normal = parse(schema_type, schema.normalized)
        assert allowed(CompatibilityLevel.FULL_TRANSITIVE, again, schema, normal)


@formats
@given(choice=CHOICES)
def test_canonical_text_and_normal_form_are_stable(schema_type: SchemaType, choice: Random) -> None:
    for schema in schemas(schema_type, choice, 1):
        assert parse(schema_type, schema.text).text == schema.text
        normal = parse(schema_type, schema.normalized)
        assert normal.normalized == schema.normalized == parse(schema_type, schema.text).normalized
        assert normal.full_name == schema.full_name


@formats
@given(choice=CHOICES)
def test_full_is_backward_and_forward(schema_type: SchemaType, choice: Random) -> None:
    found = schemas(schema_type, choice, 2)
    if len(found) == 2:
        old, new = found
        backward = allowed(CompatibilityLevel.BACKWARD, new, old)
        assert backward is allowed(CompatibilityLevel.FORWARD, old, new)
        both = backward and allowed(CompatibilityLevel.FORWARD, new, old)
        assert allowed(CompatibilityLevel.FULL, new, old) is both


@formats
@given(choice=CHOICES)
def test_transitive_is_all_the_earlier_ones(schema_type: SchemaType, choice: Random) -> None:
    *earlier, new = schemas(schema_type, choice, 4) or [parse(SchemaType.AVRO, '"int"')]
    for plain in ("BACKWARD", "FORWARD", "FULL"):
        level, transitive = CompatibilityLevel(plain), CompatibilityLevel(f"{plain}_TRANSITIVE")
        each = [allowed(level, new, old) for old in earlier]
        assert allowed(transitive, new, *earlier) is all(each)
        assert allowed(level, new, *earlier) is (not each or each[-1])


@given(choice=CHOICES)
@settings(max_examples=300)
def test_json_that_fitted_fits_a_compatible_schema(choice: Random) -> None:
    """But for oneOf and patternProperties, which registries do not look into: see docs/compatibility.md."""
    found = schemas(SchemaType.JSON, choice, 2)
    if len(found) < 2 or any(word in schema.text for schema in found for word in ("oneOf", "patternProperties")):
        return
    old, new = found
    if allowed(CompatibilityLevel.BACKWARD, new, old):
        values = [json.dumps(random_value(choice)).encode() for _ in range(20)]
        refused_before, refused_after = checker(old).check(values), checker(new).check(values)
        assert not refused_after.keys() - refused_before.keys()


@given(choice=CHOICES)
@settings(max_examples=300)
def test_avro_of_a_compatible_schema_is_read_and_checked(choice: Random) -> None:
    found = schemas(SchemaType.AVRO, choice, 2)
    if len(found) < 2:
        return
    old, new = (json.loads(schema.text) for schema in found)
    written_by = fastavro.parse_schema(old)
    for value in fastavro.utils.generate_many(written_by, 3):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, written_by, value)
        assert checker(found[0]).check([out.getvalue()]) == {}
        if allowed(CompatibilityLevel.BACKWARD, found[1], found[0]):
            fastavro.schemaless_reader(io.BytesIO(out.getvalue()), written_by, fastavro.parse_schema(new))


@formats
@given(choice=CHOICES, payloads=st.lists(st.binary(max_size=40), max_size=5))
def test_checkers_never_raise(schema_type: SchemaType, choice: Random, payloads: list[bytes]) -> None:
    for schema in schemas(schema_type, choice, 1):
        assert set(checker(schema).check(payloads)) <= set(range(len(payloads)))


@formats
@given(text=st.text(max_size=60))
def test_any_text_is_a_schema_or_refused(schema_type: SchemaType, text: str) -> None:
    with suppress(InvalidSchema):
        parse(schema_type, text)


@formats
@given(choice=CHOICES)
def test_a_broken_text_is_a_schema_or_refused(schema_type: SchemaType, choice: Random) -> None:
    text = FORMATS[schema_type](choice, 1)[0]
    start = choice.randrange(len(text) + 1)
    cut = (
        text[:start]
        + choice.choice(("", "}", "{", '"', "1", "\ud800", "message"))
        + text[start + choice.randrange(4) :]
    )
    with suppress(InvalidSchema):
        parse(schema_type, cut)
