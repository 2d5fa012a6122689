"""Changes of JSON Schemas, case by case: the rules that forbid a reader with the new one, and why."""

from typing import NamedTuple

D2020 = "https://json-schema.org/draft/2020-12/schema"
D2019 = "https://json-schema.org/draft/2019-09/schema"
D4 = "http://json-schema.org/draft-04/schema#"

S, N, I, B, NULL = ({"type": name} for name in ("string", "number", "integer", "boolean", "null"))  # noqa: E741


class Case(NamedTuple):
    original: object
    update: object
    rules: tuple[str, ...]
    why: str


def s(**more: object) -> dict[str, object]:
    return {"type": "string", **more}


def n(**more: object) -> dict[str, object]:
    return {"type": "number", **more}


def arr(**more: object) -> dict[str, object]:
    return {"type": "array", **more}


def obj(more: object = None, /, **properties: object) -> dict[str, object]:
    """An object with these properties, which may have others as `more` says: anything if it is not given."""
    schema: dict[str, object] = {"type": "object"}
    if properties:
        schema["properties"] = properties
    if more is not None:
        schema["additionalProperties"] = more
    return schema


def closed(**properties: object) -> dict[str, object]:
    return obj(False, **properties)


def need(schema: dict[str, object], *names: str) -> dict[str, object]:
    return {**schema, "required": list(names)}


def modern(schema: dict[str, object], draft: str = D2020) -> dict[str, object]:
    return {"$schema": draft, **schema}


TYPES = [
    Case(S, S, (), "the same type"),
    Case(S, I, ("TYPE_CHANGED",), "a string is no integer"),
    Case(I, N, (), "an integer is a number"),
    Case(N, I, ("TYPE_NARROWED",), "a number need not be an integer"),
    Case(B, S, ("TYPE_CHANGED",), "a boolean is no string"),
    Case(NULL, S, ("TYPE_CHANGED",), "null is no string"),
    Case(S, {}, (), "everything fits"),
    Case({}, S, ("TYPE_CHANGED",), "anything was allowed"),
    Case(True, {}, (), "true and {} are the same"),
    Case({}, True, (), "and the other way round"),
    Case(S, True, (), "everything fits true"),
    Case(True, S, ("TYPE_CHANGED",), "true was anything"),
    Case(False, S, (), "no data was allowed, so all of it fits"),
    Case(S, False, ("TYPE_CHANGED",), "nothing fits false"),
    Case(False, False, (), "nothing was allowed, and nothing is"),
    Case(arr(), obj(), ("TYPE_CHANGED",), "an array is no object"),
    Case(S, {"type": ["string", "null"]}, (), "null is allowed too"),
    Case({"type": ["string", "null"]}, S, ("TYPE_CHANGED",), "null may come"),
    Case({"type": ["string"]}, S, (), "a list of one type"),
    Case(S, {"type": ["string"]}, (), "and the other way round"),
    Case({"type": ["string", "null"]}, {"type": ["null", "string"]}, (), "the order of types means nothing"),
    Case({"type": ["string", "null"]}, {"type": ["string", "null", "integer"]}, (), "a third type"),
    Case({"type": ["string", "null", "integer"]}, {"type": ["string", "null"]}, ("SUM_TYPE_NARROWED",), "a type less"),
    Case(
        {"type": ["string", "null"]},
        {"type": ["integer", "null"]},
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",),
        "string became integer among the types",
    ),
    Case({"type": ["integer", "null"]}, {"type": ["number", "null"]}, (), "integer became number among the types"),
    Case(s(title="a"), s(title="b"), (), "a title says nothing about data"),
    Case(s(description="a"), s(description="b"), (), "nor does a description"),
    Case(s(default="a"), s(default="b"), (), "nor a default"),
    Case({**S, "$id": "http://x/a"}, {**S, "$id": "http://x/b"}, (), "nor an id"),
    Case(s(format="date"), s(format="email"), (), "formats are annotations"),
    Case(s(foo=1), s(foo=2), (), "unknown keywords are annotations"),
    Case({**I, "connect.type": "bytes"}, {**S, "connect.type": "bytes"}, (), "Connect's bytes may be written anew"),
]

STRINGS = [
    Case(S, s(maxLength=5), ("MAX_LENGTH_ADDED",), "longer strings were allowed"),
    Case(s(maxLength=5), S, (), "longer strings are allowed"),
    Case(s(maxLength=5), s(maxLength=6), (), "one character more"),
    Case(s(maxLength=6), s(maxLength=5), ("MAX_LENGTH_DECREASED",), "one character less"),
    Case(S, s(minLength=1), ("MIN_LENGTH_ADDED",), "empty strings were allowed"),
    Case(s(minLength=1), S, (), "empty strings are allowed"),
    Case(s(minLength=2), s(minLength=1), (), "shorter strings are allowed"),
    Case(s(minLength=1), s(minLength=2), ("MIN_LENGTH_INCREASED",), "shorter strings were allowed"),
    Case(S, s(pattern="^a"), ("PATTERN_ADDED",), "other strings were allowed"),
    Case(s(pattern="^a"), S, (), "other strings are allowed"),
    Case(s(pattern="^a"), s(pattern="^b"), ("PATTERN_CHANGED",), "nobody knows what both match"),
    Case(s(pattern="^a"), s(pattern="^a"), (), "the same pattern"),
    Case(
        s(minLength=1, maxLength=9), s(minLength=2, maxLength=8), ("MIN_LENGTH_INCREASED", "MAX_LENGTH_DECREASED"),
        "both bounds moved in",
    ),
    Case({"minLength": 1}, {"minLength": 2}, ("MIN_LENGTH_INCREASED",), "keywords count without a type"),
]  # fmt: skip

NUMBERS = [
    Case(N, n(maximum=5), ("MAXIMUM_ADDED",), "larger numbers were allowed"),
    Case(n(maximum=5), N, (), "larger numbers are allowed"),
    Case(n(maximum=5), n(maximum=5.5), (), "the bound moved out"),
    Case(n(maximum=5.5), n(maximum=5), ("MAXIMUM_DECREASED",), "the bound moved in"),
    Case(n(maximum=5), n(maximum=5.0), (), "5 and 5.0 are one number"),
    Case(N, n(minimum=5), ("MINIMUM_ADDED",), "smaller numbers were allowed"),
    Case(n(minimum=5), N, (), "smaller numbers are allowed"),
    Case(n(minimum=5), n(minimum=4), (), "the lower bound moved out"),
    Case(n(minimum=4), n(minimum=5), ("MINIMUM_INCREASED",), "the lower bound moved in"),
    Case(N, n(exclusiveMaximum=5), ("EXCLUSIVE_MAXIMUM_ADDED",), "5 and larger were allowed"),
    Case(n(exclusiveMaximum=5), N, (), "5 and larger are allowed"),
    Case(n(exclusiveMaximum=5), n(exclusiveMaximum=6), (), "the exclusive bound moved out"),
    Case(
        n(exclusiveMaximum=6), n(exclusiveMaximum=5), ("EXCLUSIVE_MAXIMUM_DECREASED",), "the exclusive bound moved in"
    ),
    Case(N, n(exclusiveMinimum=5), ("EXCLUSIVE_MINIMUM_ADDED",), "5 and smaller were allowed"),
    Case(n(exclusiveMinimum=5), N, (), "5 and smaller are allowed"),
    Case(n(exclusiveMinimum=5), n(exclusiveMinimum=4), (), "the exclusive lower bound moved out"),
    Case(n(exclusiveMinimum=4), n(exclusiveMinimum=5), ("EXCLUSIVE_MINIMUM_INCREASED",), "and in"),
    Case(N, n(multipleOf=2), ("MULTIPLE_OF_ADDED",), "odd numbers were allowed"),
    Case(n(multipleOf=2), N, (), "odd numbers are allowed"),
    Case(n(multipleOf=2), n(multipleOf=4), ("MULTIPLE_OF_EXPANDED",), "2 is no multiple of 4"),
    Case(n(multipleOf=4), n(multipleOf=2), (), "every multiple of 4 is one of 2"),
    Case(n(multipleOf=2), n(multipleOf=3), ("MULTIPLE_OF_CHANGED",), "neither divides the other"),
    Case(n(multipleOf=0.5), n(multipleOf=0.1), (), "0.1 divides 0.5, in decimal"),
    Case(n(multipleOf=0.1), n(multipleOf=0.5), ("MULTIPLE_OF_EXPANDED",), "and not the other way round"),
    Case({**I, "maximum": 5}, n(maximum=6), (), "integer became number and the bound moved out"),
    Case(n(maximum=6), {**I, "maximum": 5}, ("MAXIMUM_DECREASED", "TYPE_NARROWED"), "both are told"),
    Case(
        {"$schema": D4, **n(maximum=5)},
        {"$schema": D4, **n(maximum=5, exclusiveMaximum=True)},
        ("EXCLUSIVE_MAXIMUM_ADDED",),
        "in draft 4 a flag excludes the bound",
    ),
    Case(
        {"$schema": D4, **n(minimum=5, exclusiveMinimum=True)},
        {"$schema": D4, **n(minimum=4, exclusiveMinimum=True)},
        (),
        "a bound with a flag moved out",
    ),
]

ENUMS = [
    Case({"enum": [1, 2]}, {"enum": [2, 1]}, (), "the order of values means nothing"),
    Case({"enum": [1]}, {"enum": [1, 2]}, (), "a value more"),
    Case({"enum": [1, 2]}, {"enum": [1]}, ("ENUM_ARRAY_NARROWED",), "a value less"),
    Case({"enum": [1, 2]}, {"enum": [1, 3]}, ("ENUM_ARRAY_CHANGED",), "another value"),
    Case({"enum": [1]}, {"enum": [True]}, ("ENUM_ARRAY_CHANGED",), "true is not 1"),
    Case({"enum": [1]}, {"enum": [1.0]}, (), "1.0 is 1"),
    Case({"enum": [None]}, {"enum": [None, 0]}, (), "null is a value"),
    Case({"enum": [{"a": [1]}]}, {"enum": [{"a": [1]}]}, (), "objects are values"),
    Case(s(enum=["a"]), s(enum=["a", "b"]), (), "a value more, beside a type"),
    Case(
        s(enum=["a", "b"]),
        s(enum=["a"]),
        ("ENUM_ARRAY_NARROWED", "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
        "a value less, beside a type",
    ),
    Case(S, s(enum=["a"]), ("TYPE_CHANGED",), "any string was allowed"),
    Case(s(enum=["a"]), S, (), "any string is allowed"),
    Case({"enum": ["a"]}, S, ("TYPE_CHANGED",), "registries do not look into values"),
    Case({"const": 1}, {"const": 1}, (), "the same constant"),
    Case({"const": 1}, {"const": 2}, ("ENUM_ARRAY_CHANGED",), "another constant"),
    Case({"const": 1}, {"enum": [1]}, ("TYPE_CHANGED",), "a constant is no enum to registries"),
    Case({"const": {"a": 1}}, {"const": {"a": 1.0}}, (), "constants are compared as JSON"),
    Case({"const": None}, {"const": None}, (), "null is a constant"),
]

PROPERTIES = [
    Case(obj(), obj(a=S), ("OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",), "a may have been anything"),
    Case(obj(), obj(a={}), (), "a may still be anything"),
    Case(obj(), obj(a=True), (), "as it may here"),
    Case(
        obj(),
        need(obj(a=S), "a"),
        ("REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",),
        "a may be missing, or anything",
    ),
    Case(
        obj(),
        need(obj(a=s(default="")), "a"),
        ("REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",),
        "a may have been anything",
    ),
    Case(obj(a=S), obj(), (), "a is one of those that may be anything"),
    Case(need(obj(a=S), "a"), obj(), (), "even if it was required"),
    Case(closed(), closed(a=S), (), "no data has a"),
    Case(
        closed(),
        need(closed(a=S), "a"),
        ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",),
        "no data has a, and it must",
    ),
    Case(closed(), need(closed(a=s(default="")), "a"), (), "the default stands for it"),
    Case(closed(a=S), closed(), ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",), "data with a does not fit"),
    Case(closed(a=False), closed(), (), "no data had a"),
    Case(closed(a=S), obj(), (), "everything is allowed"),
    Case(
        obj(a=S),
        closed(a=S),
        ("ADDITIONAL_PROPERTIES_REMOVED",),
        "others may have come (an extra field broke a Java client)",
    ),
    Case(closed(a=S), obj(a=S), (), "others may come"),
    Case(closed(a=S), closed(a=I), ("TYPE_CHANGED",), "the type of a property"),
    Case(closed(a=I), closed(a=N), (), "the type of a property became wider"),
    Case(closed(a=closed(b=S)), closed(a=closed(b=I)), ("TYPE_CHANGED",), "two levels down"),
    Case(closed(a=S), need(closed(a=S), "a"), ("REQUIRED_ATTRIBUTE_ADDED",), "a may be missing"),
    Case(closed(a=S), need(closed(a=s(default="")), "a"), (), "the default stands for it"),
    Case(need(closed(a=S), "a"), closed(a=S), (), "it is still there"),
    Case(need(closed(a=S), "a"), need(closed(a=S), "a"), (), "required before and after"),
    Case(closed(a=S, b=S), closed(b=S, a=S), (), "the order of properties means nothing"),
    Case(
        closed(a=S),
        closed(b=S),
        ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",),
        "a renamed property is one that is gone",
    ),
    Case(obj(S), obj(I), ("TYPE_CHANGED",), "the schema of additional properties"),
    Case(obj(I), obj(N), (), "additional properties became wider"),
    Case(obj(), obj(S), ("ADDITIONAL_PROPERTIES_NARROWED",), "they may have been anything"),
    Case(obj(S), obj(), (), "they may be anything"),
    Case(obj(S), obj(True), (), "true is anything"),
    Case(closed(), obj(S), (), "none were allowed"),
    Case(obj(S), closed(), ("ADDITIONAL_PROPERTIES_REMOVED",), "some were allowed"),
    Case(obj(S), obj(S, a=S), (), "a was a string already"),
    Case(
        obj(S),
        obj(S, a=I),
        ("TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        "a was a string",
    ),
    Case(obj(I), obj(I, a=N), (), "a number takes the integers that were there"),
    Case(
        obj(S),
        need(obj(S, a=S), "a"),
        ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",),
        "a may be missing",
    ),
    Case(obj(S), need(obj(S, a=s(default="x")), "a"), (), "the default stands for it"),
    Case(obj(S, a=S), obj(S), (), "a is one of the strings"),
    Case(
        obj(S, a=I),
        obj(S),
        ("TYPE_CHANGED", "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        "a is no string",
    ),
    Case(
        {**closed(), "patternProperties": {"^a": S}},
        {**closed(a=S), "patternProperties": {"^a": S}},
        (),
        "a matched the pattern and was a string",
    ),
    Case(
        {**closed(), "patternProperties": {"^a": S}},
        {**closed(a=I), "patternProperties": {"^a": S}},
        ("TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        "a matched the pattern and was a string, not an integer",
    ),
    Case(
        {**closed(), "patternProperties": {"^b": S}},
        {**closed(a=I), "patternProperties": {"^b": S}},
        (),
        "a matched no pattern, so no data has it",
    ),
    Case(
        {**closed(a=S), "patternProperties": {"^a": S}},
        {**closed(), "patternProperties": {"^a": S}},
        (),
        "a still matches the pattern",
    ),
    Case(
        {**closed(a=S), "patternProperties": {"^(?=b)": S}},
        {**closed(), "patternProperties": {"^(?=b)": S}},
        ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",),
        "a pattern with look-ahead does not match a",
    ),
    Case(obj(), {**obj(), "maxProperties": 2}, ("MAX_PROPERTIES_ADDED",), "more were allowed"),
    Case({**obj(), "maxProperties": 2}, obj(), (), "more are allowed"),
    Case({**obj(), "maxProperties": 2}, {**obj(), "maxProperties": 3}, (), "one more"),
    Case({**obj(), "maxProperties": 3}, {**obj(), "maxProperties": 2}, ("MAX_PROPERTIES_DECREASED",), "one less"),
    Case(obj(), {**obj(), "minProperties": 2}, ("MIN_PROPERTIES_ADDED",), "fewer were allowed"),
    Case({**obj(), "minProperties": 2}, obj(), (), "fewer are allowed"),
    Case({**obj(), "minProperties": 2}, {**obj(), "minProperties": 1}, (), "one fewer"),
    Case(
        {**obj(), "minProperties": 1}, {**obj(), "minProperties": 2}, ("MIN_PROPERTIES_INCREASED",), "one more needed"
    ),
    Case({"properties": {"a": S}}, {"properties": {"a": I}}, ("TYPE_CHANGED",), "properties count without a type"),
]

DEPENDENCIES = [
    Case(obj(), {**obj(), "dependencies": {"a": ["b"]}}, ("DEPENDENCY_ARRAY_ADDED",), "a could stand alone"),
    Case({**obj(), "dependencies": {"a": ["b"]}}, obj(), (), "a may stand alone"),
    Case(
        {**obj(), "dependencies": {"a": ["b"]}},
        {**obj(), "dependencies": {"a": ["b", "c"]}},
        ("DEPENDENCY_ARRAY_EXTENDED",),
        "c is needed too",
    ),
    Case({**obj(), "dependencies": {"a": ["b", "c"]}}, {**obj(), "dependencies": {"a": ["b"]}}, (), "c is not needed"),
    Case(
        {**obj(), "dependencies": {"a": ["b"]}},
        {**obj(), "dependencies": {"a": ["c"]}},
        ("DEPENDENCY_ARRAY_CHANGED",),
        "c is needed and not b",
    ),
    Case(
        {**obj(), "dependencies": {"a": ["b", "c"]}},
        {**obj(), "dependencies": {"a": ["c", "b"]}},
        (),
        "the order of needs means nothing",
    ),
    Case(
        obj(), {**obj(), "dependencies": {"a": need(obj(), "b")}}, ("DEPENDENCY_SCHEMA_ADDED",), "a now needs a schema"
    ),
    Case({**obj(), "dependencies": {"a": need(obj(), "b")}}, obj(), (), "a needs none"),
    Case(
        {**obj(), "dependencies": {"a": closed(b=S)}},
        {**obj(), "dependencies": {"a": closed(b=I)}},
        ("TYPE_CHANGED",),
        "the schema that a needs changed",
    ),
    Case(
        modern(obj()),
        modern({**obj(), "dependentRequired": {"a": ["b"]}}),
        ("DEPENDENCY_ARRAY_ADDED",),
        "the modern keyword for needs",
    ),
    Case(
        modern({**obj(), "dependentRequired": {"a": ["b"]}}),
        modern({**obj(), "dependencies": {"a": ["b"]}}),
        (),
        "old and new keyword mean the same",
    ),
    Case(
        modern(obj()),
        modern({**obj(), "dependentSchemas": {"a": closed()}}),
        ("DEPENDENCY_SCHEMA_ADDED",),
        "the modern keyword for schemas that are needed",
    ),
]  # fmt: skip

ARRAYS = [
    Case(arr(items=S), arr(items=S), (), "the same items"),
    Case(arr(items=I), arr(items=N), (), "items became wider"),
    Case(arr(items=N), arr(items=I), ("TYPE_NARROWED",), "items became narrower"),
    Case(arr(items=S), arr(items=I), ("TYPE_CHANGED",), "items of another type"),
    Case(arr(), arr(items=S), ("SCHEMA_ADDED",), "items were anything"),
    Case(arr(items=S), arr(), (), "items are anything"),
    Case(arr(items={}), arr(), (), "items were and are anything"),
    Case(arr(items=arr(items=S)), arr(items=arr(items=I)), ("TYPE_CHANGED",), "items of items"),
    Case(arr(), arr(maxItems=2), ("MAX_ITEMS_ADDED",), "more were allowed"),
    Case(arr(maxItems=2), arr(), (), "more are allowed"),
    Case(arr(maxItems=2), arr(maxItems=3), (), "one more"),
    Case(arr(maxItems=3), arr(maxItems=2), ("MAX_ITEMS_DECREASED",), "one less"),
    Case(arr(), arr(minItems=2), ("MIN_ITEMS_ADDED",), "fewer were allowed"),
    Case(arr(minItems=2), arr(), (), "fewer are allowed"),
    Case(arr(minItems=2), arr(minItems=1), (), "one fewer"),
    Case(arr(minItems=1), arr(minItems=2), ("MIN_ITEMS_INCREASED",), "one more needed"),
    Case(arr(), arr(uniqueItems=True), ("UNIQUE_ITEMS_ADDED",), "items could be equal"),
    Case(arr(uniqueItems=True), arr(), (), "items may be equal"),
    Case(arr(uniqueItems=False), arr(), (), "false is as good as none"),
    Case(arr(), arr(items=[S]), ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL",), "the first item was anything"),
    Case(arr(), arr(items=[{}]), (), "the first item may still be anything"),
    Case(arr(items=[S]), arr(), (), "the first item may be anything"),
    Case(arr(items=[S]), arr(items=[I]), ("TYPE_CHANGED",), "the first item is of another type"),
    Case(arr(items=[S, I]), arr(items=[S, N]), (), "the second item became wider"),
    Case(
        arr(items=[S], additionalItems=False),
        arr(items=[S, I], additionalItems=False),
        (),
        "no data has a second item",
    ),
    Case(
        arr(items=[S, I], additionalItems=False),
        arr(items=[S], additionalItems=False),
        ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",),
        "data with two items does not fit",
    ),
    Case(
        arr(items=[S, False], additionalItems=False),
        arr(items=[S], additionalItems=False),
        (),
        "no data had a second item",
    ),
    Case(
        arr(items=[S], additionalItems=S),
        arr(items=[S, I], additionalItems=S),
        ("TYPE_CHANGED", "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        "the second item was a string",
    ),
    Case(arr(items=[S], additionalItems=I), arr(items=[S, N], additionalItems=I), (), "a number takes the integer"),
    Case(
        arr(items=[S, I], additionalItems=S),
        arr(items=[S], additionalItems=S),
        ("TYPE_CHANGED", "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        "the second item is no string",
    ),
    Case(arr(items=[S, S], additionalItems=S), arr(items=[S], additionalItems=S), (), "the second item is a string"),
    Case(
        arr(items=[S]),
        arr(items=[S], additionalItems=False),
        ("ADDITIONAL_ITEMS_REMOVED",),
        "others may have come",
    ),
    Case(arr(items=[S], additionalItems=False), arr(items=[S]), (), "others may come"),
    Case(arr(items=[S]), arr(items=[S], additionalItems=S), ("ADDITIONAL_ITEMS_NARROWED",), "they were anything"),
    Case(arr(items=[S], additionalItems=S), arr(items=[S]), (), "they may be anything"),
    Case(arr(items=[S], additionalItems=I), arr(items=[S], additionalItems=N), (), "they became wider"),
    Case(modern(arr(prefixItems=[S])), modern(arr(prefixItems=[I])), ("TYPE_CHANGED",), "the modern keyword"),
    Case(
        modern(arr(prefixItems=[S], items=False)),
        modern(arr(prefixItems=[S, I], items=False)),
        (),
        "modern items are for those after the first ones",
    ),
    Case(
        modern(arr(prefixItems=[S])),
        modern(arr(prefixItems=[S], items=False)),
        ("ADDITIONAL_ITEMS_REMOVED",),
        "modern items forbid others",
    ),
    Case(
        modern(arr(contains=S)),
        modern(arr(contains=S, maxContains=2)),
        ("MAX_CONTAINS_ADDED",),
        "more could be contained",
    ),
    Case(
        modern(arr(contains=S, maxContains=3)),
        modern(arr(contains=S, maxContains=2)),
        ("MAX_CONTAINS_DECREASED",),
        "one less may be contained",
    ),
    Case(modern(arr(contains=S, maxContains=2)), modern(arr(contains=S)), (), "more may be contained"),
    Case(
        modern(arr(contains=S)),
        modern(arr(contains=S, minContains=2)),
        ("MIN_CONTAINS_ADDED",),
        "fewer could be contained",
    ),
    Case(
        modern(arr(contains=S, minContains=1)),
        modern(arr(contains=S, minContains=2)),
        ("MIN_CONTAINS_INCREASED",),
        "one more must be contained",
    ),
]

UNEVALUATED = [
    Case(
        modern(obj()),
        modern({**obj(), "unevaluatedProperties": False}),
        ("UNEVALUATED_PROPERTIES_REMOVED",),
        "others were allowed",
    ),
    Case(modern({**obj(), "unevaluatedProperties": False}), modern(obj()), (), "others are allowed"),
    Case(
        modern(obj()),
        modern({**obj(), "unevaluatedProperties": S}),
        ("UNEVALUATED_PROPERTIES_NARROWED",),
        "others were anything",
    ),
    Case(modern({**obj(), "unevaluatedProperties": S}), modern(obj()), (), "others may be anything"),
    Case(
        modern({**obj(), "unevaluatedProperties": S}),
        modern({**obj(), "unevaluatedProperties": I}),
        ("TYPE_CHANGED",),
        "others are of another type",
    ),
    Case(modern({**obj(), "unevaluatedProperties": True}), modern(obj()), (), "true is as good as none"),
    Case(
        modern({**obj(), "unevaluatedProperties": False}),
        modern({**obj(a=S), "unevaluatedProperties": False}),
        (),
        "no data has a",
    ),
    Case(
        modern({**obj(a=S), "unevaluatedProperties": False}),
        modern({**obj(), "unevaluatedProperties": False}),
        ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",),
        "data with a does not fit",
    ),
    Case(
        modern({**obj(), "unevaluatedProperties": S}),
        modern({**obj(a=S), "unevaluatedProperties": S}),
        (),
        "a was a string already",
    ),
    Case(
        modern(arr()),
        modern(arr(unevaluatedItems=False)),
        ("UNEVALUATED_ITEMS_REMOVED",),
        "other items were allowed",
    ),
    Case(modern(arr(unevaluatedItems=False)), modern(arr()), (), "other items are allowed"),
    Case(modern(arr()), modern(arr(unevaluatedItems=S)), ("UNEVALUATED_ITEMS_NARROWED",), "they were anything"),
    Case(modern(arr(unevaluatedItems=S)), modern(arr()), (), "they may be anything"),
    Case(
        {**obj(), "unevaluatedProperties": S},
        {**obj(), "unevaluatedProperties": False},
        (),
        "draft 7 does not know the keyword",
    ),
    Case(
        modern(obj(), D2019),
        modern({**obj(), "unevaluatedProperties": False}, D2019),
        ("UNEVALUATED_PROPERTIES_REMOVED",),
        "draft 2019-09 does",
    ),
]

COMBINATIONS = [
    Case({"oneOf": [S, I]}, {"oneOf": [I, S]}, (), "the order means nothing"),
    Case({"oneOf": [S]}, {"oneOf": [S, I]}, (), "one more"),
    Case({"oneOf": [S, I]}, {"oneOf": [S]}, ("SUM_TYPE_NARROWED",), "one less"),
    Case({"oneOf": [S, I]}, {"oneOf": [S, B]}, ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",), "integer became boolean"),
    Case({"oneOf": [S, I]}, {"oneOf": [S, N]}, (), "integer became number"),
    Case({"oneOf": [S, I]}, {"oneOf": [N, I]}, ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",), "nothing takes the strings"),
    Case(
        {"oneOf": [I, {**I, "maximum": 5}]},
        {"oneOf": [N, S]},
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",),
        "two need two counterparts",
    ),
    Case({"anyOf": [I, I]}, {"anyOf": [I]}, (), "one that stands twice is one"),
    Case({"anyOf": [I, S]}, {"anyOf": [I, I]}, ("SUM_TYPE_NARROWED",), "on both sides"),
    Case(S, {"oneOf": [S, I]}, (), "the string is one of them"),
    Case(S, {"oneOf": [I, B]}, ("TYPE_CHANGED",), "the string is none of them"),
    Case({"oneOf": [S, I]}, S, ("TYPE_CHANGED",), "an integer may come"),
    Case({"oneOf": [S]}, S, (), "one of one"),
    Case(S, {"oneOf": [S]}, (), "and the other way round"),
    Case({"anyOf": [S, I]}, {"anyOf": [S, I, B]}, (), "one more may fit"),
    Case({"anyOf": [S, I, B]}, {"anyOf": [S, I]}, ("SUM_TYPE_NARROWED",), "one less may fit"),
    Case(S, {"anyOf": [S, I]}, (), "a string fits any of them"),
    Case({"allOf": [S, s(maxLength=5)]}, {"allOf": [S]}, (), "one less must fit"),
    Case(
        {"allOf": [S]}, {"allOf": [S, s(maxLength=5)]}, ("PRODUCT_TYPE_EXTENDED",), "one more must fit"
    ),
    Case({"allOf": [S, s(maxLength=5)]}, S, (), "what fitted both fits one"),
    Case(S, {"allOf": [S, s(maxLength=5)]}, ("TYPE_CHANGED",), "a string that is longer fits not both"),
    Case({"allOf": [S]}, S, (), "all of one"),
    Case({"oneOf": [S, I]}, {"anyOf": [S, I]}, (), "any of them takes what one of them took"),
    Case({"anyOf": [S, I]}, {"oneOf": [S, I]}, ("COMBINED_TYPE_CHANGED",), "two of them may have fitted"),
    Case({"allOf": [S, I]}, {"anyOf": [S, I]}, (), "what fitted all fits any"),
    Case({"anyOf": [S, I]}, {"allOf": [S, I]}, ("COMBINED_TYPE_CHANGED",), "what fitted one need not fit all"),
    Case({"allOf": [S, I]}, {"oneOf": [S, I]}, ("COMBINED_TYPE_CHANGED",), "what fitted all fits more than one"),
    Case({"anyOf": [S]}, {"oneOf": [S]}, (), "one of one is any of one"),
    Case({"oneOf": [S]}, {"allOf": [S]}, (), "and all of one"),
    Case(
        {"oneOf": [closed(a=S), closed(b=S)]},
        {"oneOf": [closed(a=S, c=I), closed(b=S)]},
        (),
        "a property is new in one of them",
    ),
    Case(
        {"oneOf": [closed(a=S), closed(b=S)]},
        {"oneOf": [closed(a=I), closed(b=S)]},
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",),
        "a property changed in one of them",
    ),
    Case(closed(a={"oneOf": [S, NULL]}), closed(a=S), ("TYPE_CHANGED",), "a property could be null"),
    Case(closed(a=S), closed(a={"oneOf": [S, NULL]}), (), "a property may be null"),
    Case({"not": S}, {"not": S}, (), "the same is excluded"),
    Case({"not": N}, {"not": I}, (), "less is excluded"),
    Case({"not": I}, {"not": N}, ("NOT_TYPE_EXTENDED",), "more is excluded"),
    Case({"not": S}, S, ("TYPE_CHANGED",), "what was excluded is asked for"),
    Case({"if": S, "then": s(maxLength=5)}, {"if": S, "then": s(maxLength=4)}, (), "registries do not compare these"),
]  # fmt: skip

DEFS = {"definitions": {"a": S, "b": I, "c": N}}
KIDS = arr(items={"$ref": "#"})
TREE = closed(kids=KIDS)
LINKED = {"oneOf": [NULL, closed(next={"$ref": "#"}, value=I)]}

REFERENCES = [
    Case({**DEFS, "$ref": "#/definitions/a"}, S, (), "a reference is what it refers to"),
    Case(S, {**DEFS, "$ref": "#/definitions/a"}, (), "and the other way round"),
    Case({**DEFS, "$ref": "#/definitions/a"}, {**DEFS, "$ref": "#/definitions/b"}, ("TYPE_CHANGED",), "to another"),
    Case({**DEFS, "$ref": "#/definitions/b"}, {**DEFS, "$ref": "#/definitions/c"}, (), "to a wider one"),
    Case(
        {**DEFS, **closed(x={"$ref": "#/definitions/a"})},
        {**DEFS, **closed(x={"$ref": "#/definitions/b"})},
        ("TYPE_CHANGED",),
        "in a property",
    ),
    Case({"definitions": {"x": S}, **I}, {"definitions": {"x": I}, **I}, (), "what nothing uses means nothing"),
    Case(TREE, TREE, (), "a tree is the same tree"),
    Case(TREE, closed(kids=KIDS, x=S), (), "a tree gets a property"),
    Case(
        closed(kids=KIDS, x=S),
        TREE,
        ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",),
        "a tree loses a property",
    ),
    Case(LINKED, LINKED, (), "a list is the same list"),
    Case(
        LINKED,
        {"oneOf": [NULL, closed(next={"$ref": "#"}, value=S)]},
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",),
        "the values of a list changed",
    ),
    Case(LINKED, {"oneOf": [NULL, closed(next={"$ref": "#"}, value=N)]}, (), "the values of a list became wider"),
    Case({"$ref": "#"}, {"$ref": "#"}, (), "what refers to itself is anything"),
    Case({"$ref": "#"}, S, ("TYPE_CHANGED",), "and no string"),
    Case(
        modern({"$defs": {"a": closed(x=S)}, "$ref": "#/$defs/a", "maxProperties": 2}),
        modern({"$defs": {"a": closed(x=I)}, "$ref": "#/$defs/a", "maxProperties": 2}),
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",),
        "beside a modern reference other keywords count",
    ),
    Case(
        {"definitions": {"a": S}, "$ref": "#/definitions/a", "maxLength": 1},
        {"definitions": {"a": S}, "$ref": "#/definitions/a", "maxLength": 0},
        (),
        "in draft 7 they do not",
    ),
    Case(
        closed(a={"$ref": "#/properties/b"}, b=S),
        closed(a={"$ref": "#/properties/b"}, b=I),
        ("TYPE_CHANGED", "TYPE_CHANGED"),
        "both places are told",
    ),
    Case(
        {"definitions": {"x": {"$id": "#x", **S}}, **closed(a={"$ref": "#x"})},
        closed(a=S),
        (),
        "an anchor as draft 7 writes it",
    ),
    Case(
        modern({"$defs": {"x": {"$anchor": "x", **S}}, **closed(a={"$ref": "#x"})}), closed(a=I), ("TYPE_CHANGED",),
        "an anchor as drafts since 2019-09 write it",
    ),
]  # fmt: skip

CASES = [
    *TYPES, *STRINGS, *NUMBERS, *ENUMS, *PROPERTIES, *DEPENDENCIES, *ARRAYS, *UNEVALUATED, *COMBINATIONS, *REFERENCES,
]  # fmt: skip
