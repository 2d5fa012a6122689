"""Random JSON Schemas of draft 7, and random values of which some fit them."""

from random import Random

Schema = object


def random_json_schema(choice: Random, depth: int = 3) -> Schema:
    kinds = [_string, _number, _enum, _boolean]
    if depth:
        kinds += [_object, _object, _array, _combination, _types]
    if choice.random() < 0.1:
        return choice.choice([{}, True, False, {"not": {"type": "string"}}])
    return choice.choice(kinds)(choice, depth - 1)


def random_value(choice: Random, depth: int = 3) -> object:
    kind = choice.randrange(7 if depth else 5)
    if kind == 5:
        return [random_value(choice, depth - 1) for _ in range(choice.randrange(4))]
    if kind == 6:
        return {name: random_value(choice, depth - 1) for name in "abc" if choice.random() < 0.6}
    return (None, choice.random() < 0.5, choice.randrange(-3, 9), choice.random() * 9, "x" * choice.randrange(6))[kind]


def _maybe(choice: Random, **bounds: int) -> dict[str, object]:
    return {name: choice.randrange(bound) for name, bound in bounds.items() if choice.random() < 0.3}


def _string(choice: Random, depth: int) -> Schema:
    return {"type": "string", **_maybe(choice, minLength=3, maxLength=6)}


def _number(choice: Random, depth: int) -> Schema:
    bounds = _maybe(choice, minimum=5, maximum=9, exclusiveMinimum=5, exclusiveMaximum=9)
    if choice.random() < 0.2:
        bounds["multipleOf"] = choice.randrange(1, 5)
    return {"type": choice.choice(("number", "integer")), **bounds}


def _enum(choice: Random, depth: int) -> Schema:
    return {"enum": choice.sample((None, True, 1, 2, "x", "xx", 0.5), choice.randrange(1, 4))}


def _boolean(choice: Random, depth: int) -> Schema:
    return {"type": choice.choice(("boolean", "null"))}


def _object(choice: Random, depth: int) -> Schema:
    names = choice.sample("abc", choice.randrange(4))
    schema: dict[str, object] = {
        "type": "object",
        "properties": {name: random_json_schema(choice, depth) for name in names},
        **_maybe(choice, minProperties=3, maxProperties=4),
    }
    if choice.random() < 0.4:
        schema["required"] = [name for name in names if choice.random() < 0.5]
    if choice.random() < 0.6:
        schema["additionalProperties"] = choice.choice((False, False, True, random_json_schema(choice, 0)))
    if choice.random() < 0.2:
        schema["patternProperties"] = {"^a": random_json_schema(choice, 0)}
    if choice.random() < 0.2:
        schema["dependencies"] = {"a": choice.sample("bc", choice.randrange(3))}
    return schema


def _array(choice: Random, depth: int) -> Schema:
    schema: dict[str, object] = {"type": "array", **_maybe(choice, minItems=3, maxItems=4)}
    if choice.random() < 0.4:
        schema["items"] = [random_json_schema(choice, depth) for _ in range(choice.randrange(1, 3))]
        if choice.random() < 0.6:
            schema["additionalItems"] = choice.choice((False, random_json_schema(choice, 0)))
    elif choice.random() < 0.7:
        schema["items"] = random_json_schema(choice, depth)
    if choice.random() < 0.2:
        schema["uniqueItems"] = True
    return schema


def _combination(choice: Random, depth: int) -> Schema:
    members = [random_json_schema(choice, depth) for _ in range(choice.randrange(1, 4))]
    return {choice.choice(("allOf", "anyOf", "oneOf")): members}


def _types(choice: Random, depth: int) -> Schema:
    names = ("string", "number", "boolean", "null", "array", "object")
    return {"type": choice.sample(names, choice.randrange(1, 4)), **_maybe(choice, maxLength=6, maximum=9)}


def changed_json_schema(schema: Schema, choice: Random) -> Schema:
    """The schema with one part of it made anew, or a keyword gone."""
    if not isinstance(schema, dict) or not schema or choice.random() < 0.15:
        return random_json_schema(choice, 1)
    keyword = choice.choice(list(schema))
    rest = {name: value for name, value in schema.items() if name != keyword}
    value = schema[keyword]
    if keyword in ("properties", "patternProperties") and isinstance(value, dict) and value:
        name = choice.choice(list(value))
        others = {other: inner for other, inner in value.items() if other != name}
        if choice.random() < 0.5:
            others[name] = changed_json_schema(value[name], choice)
        return {**rest, keyword: others}
    if keyword in ("allOf", "anyOf", "oneOf") and isinstance(value, list):
        index = choice.randrange(len(value))
        return {**rest, keyword: [*value[:index], changed_json_schema(value[index], choice), *value[index + 1 :]]}
    if isinstance(value, int) and not isinstance(value, bool) and keyword != "multipleOf":
        return {**rest, keyword: choice.randrange(9)}
    return rest if choice.random() < 0.5 or keyword == "type" else schema
