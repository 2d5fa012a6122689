"""Columns that the sink writes, and their types, as in Spark's Kafka sink. Other columns are ignored."""

from dataclasses import dataclass
from typing import Any

from moldau.base.settings import SettingError, SettingsRefused

TEXT = ("string", "binary")
STRUCT = "struct<"
TYPES = {
    "key": TEXT,
    "value": TEXT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Index of each column in a batch; None for an absent one."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None


def layout_of(schema: Any, topic: str | None, encode: str | None = None) -> Layout:
    """Layout of a Spark schema; raises SettingsRefused with all problems. The option `topic` overrides the column.

    With `encode` the values are structs.
    """
    types = {field.name: (index, field.dataType.simpleString()) for index, field in enumerate(schema.fields)}
    wanted = [name for name in TYPES if name in types and not (name == "topic" and topic)]
    problems = [
        f"the column {name} must be {' or '.join(TYPES[name])}, not {types[name][1]}"
        for name in wanted
        if types[name][1] not in TYPES[name] and not (name == "value" and encode)
    ]
    if encode and not types.get("value", ("", STRUCT))[1].startswith(STRUCT):
        problems.append(f"the column value must be a struct with encode={encode}, not {types['value'][1]}")
    if "value" not in types:
        problems.append(f"there must be a column value ({' or '.join(TEXT)}); there are: {', '.join(types) or 'none'}")
    if not topic and "topic" not in types:
        problems.append("either the option topic or a column topic (string) must name the topic")
    if problems:
        raise SettingsRefused([SettingError("schema", "these rows cannot be written: " + "; ".join(problems))])
    return Layout(**{name: types[name][0] for name in wanted})
