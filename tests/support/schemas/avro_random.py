"""Random Avro schemas, most of them valid, and random changes to them."""

import copy
from collections.abc import Callable
from random import Random

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMES = ("A", "B", "C", "n.A", "n.B")
DEFAULTS = {
    "int": 1,
    "long": 2,
    "float": 0.5,
    "double": 1.5,
    "boolean": True,
    "string": "s",
    "bytes": "b",
    "null": None,
}

Schema = object


def random_schema(choice: Random, depth: int = 3) -> Schema:
    makers: list[Callable[[Random, int], Schema]] = [_record, _record, _enum, _fixed, _array, _map, _union]
    if depth == 0 or choice.random() < 0.3:
        return choice.choice(PRIMITIVES)
    return choice.choice(makers)(choice, depth - 1)


def changed(schema: Schema, choice: Random) -> Schema:
    """The schema with a few changes anywhere in it."""
    result = [copy.deepcopy(schema)]
    for _ in range(choice.randrange(4)):
        places = list(_places(result))
        holder, key = choice.choice(places)
        _change(holder, key, choice)
    return result[0]


def _record(choice: Random, depth: int) -> Schema:
    fields = []
    for name in choice.sample(("a", "b", "c", "d"), choice.randrange(4)):
        kind = random_schema(choice, depth)
        field = {"name": name, "type": kind}
        if isinstance(kind, str) and kind in DEFAULTS and choice.random() < 0.5:
            field["default"] = DEFAULTS[kind]
        if choice.random() < 0.2:
            field["aliases"] = [choice.choice("ef")]  # a name that only a change can bring
        fields.append(field)
    return _named(choice, {"type": "record", "fields": fields})


def _enum(choice: Random, depth: int) -> Schema:
    symbols = choice.sample(("X", "Y", "Z"), choice.randrange(1, 4))
    enum: dict[str, object] = {"type": "enum", "symbols": symbols}
    if choice.random() < 0.3:
        enum["default"] = symbols[0]
    return _named(choice, enum)


def _fixed(choice: Random, depth: int) -> Schema:
    return _named(choice, {"type": "fixed", "size": choice.randrange(1, 4)})


def _array(choice: Random, depth: int) -> Schema:
    return {"type": "array", "items": random_schema(choice, depth)}


def _map(choice: Random, depth: int) -> Schema:
    return {"type": "map", "values": random_schema(choice, depth)}


def _union(choice: Random, depth: int) -> Schema:
    return [random_schema(choice, depth) for _ in range(choice.randrange(1, 4))]


def _named(choice: Random, schema: dict[str, object]) -> Schema:
    schema["name"] = choice.choice(NAMES) + str(choice.randrange(30))  # seldom the same
    if choice.random() < 0.2:
        schema["aliases"] = [choice.choice(NAMES) + str(choice.randrange(30))]
    if choice.random() < 0.2:
        schema["namespace"] = choice.choice(("n", "m", ""))
    return schema


def _places(holder: object) -> list[tuple[object, object]]:
    """Where schemas are in a schema: the container and the key of each."""
    places: list[tuple[object, object]] = []
    if isinstance(holder, list):
        for index, item in enumerate(holder):
            places += [(holder, index), *_places(item)]
    elif isinstance(holder, dict):
        for key in ("items", "values"):
            if key in holder:
                places += [(holder, key), *_places(holder[key])]
        for field in holder.get("fields", ()):
            places += [(field, "type"), *_places(field["type"])]
    return places


def _change(holder: object, key: object, choice: Random) -> None:
    schema = holder[key]  # type: ignore[index]
    if isinstance(schema, dict) and "fields" in schema and choice.random() < 0.7:
        fields = schema["fields"]
        if fields and choice.random() < 0.5:
            fields.pop(choice.randrange(len(fields)))
        else:
            fields.append({"name": choice.choice("abcdef"), "type": random_schema(choice, 1)})
    elif isinstance(schema, dict) and "symbols" in schema and choice.random() < 0.7:
        schema["symbols"] = choice.sample(("X", "Y", "Z"), choice.randrange(1, 4))
        schema.pop("default", None)
    elif isinstance(schema, dict) and "name" in schema and choice.random() < 0.5:
        schema["name"] = choice.choice(NAMES) + str(choice.randrange(30))
    elif isinstance(schema, list) and schema and choice.random() < 0.7:
        choice.shuffle(schema)
        schema.pop()
    elif choice.random() < 0.5:
        holder[key] = ["null", schema]  # type: ignore[index]
    else:
        holder[key] = random_schema(choice, 1)  # type: ignore[index]
