"""docs/compatibility.md, made from the tables of rules. `make docs` runs this file."""

import re
from collections.abc import Mapping

from moldau.schemas.avro.rules import RULES as AVRO
from moldau.schemas.jsonschema.rules import RULES as JSON
from moldau.schemas.protobuf.rules import RULES as PROTOBUF
from moldau.schemas.rules import Rule

HEAD = """# Compatibility of schemas

Made from the tables of rules in `src/moldau/schemas`; do not edit. The tests have cases for each format, each with its
reason.

A subject's level says with which earlier schemas a new one is compared, and in which direction.

| Level | A new schema must |
|---|---|
| `BACKWARD` | read data of the latest schema |
| `BACKWARD_TRANSITIVE` | read data of all earlier schemas |
| `FORWARD` | write data that the latest schema reads |
| `FORWARD_TRANSITIVE` | write data that all earlier schemas read |
| `FULL`, `FULL_TRANSITIVE` | both |
| `NONE` | nothing |

Each difference between two schemas is an instance of one rule. The names are those of Confluent's registry, and for
Avro those of its Java library; `SCHEMA_TOO_COMPLEX` and `READER_FIELD_AMBIGUOUS` are ours. Rules are told from the view
of a reader whose schema came after the writer's: for `FORWARD` the two change places.
"""
SECTIONS = (
    (
        "Avro",
        AVRO,
        """Schema resolution as Avro defines it. Names are compared without namespaces, aliases with them, logical types
not at all.""",
    ),
    (
        "JSON Schema",
        JSON,
        """All drafts from 4 on. As in Confluent's registry, with its strict policy, these keywords are not compared:
`if`, `then`, `else`, `contains`, `propertyNames`, `format`, and `patternProperties` but where a property comes or goes;
and nobody looks whether a value fits more schemas of `oneOf` than before.""",
    ),
    (
        "Protobuf",
        PROTOBUF,
        """Binary data: fields are matched by number, and their names may change. As in Confluent's registry a field
without a label may get any, and extensions and services are not compared.""",
    ),
)


def render() -> str:
    parts = [HEAD]
    for name, rules, note in SECTIONS:
        parts.append(f"\n## {name}\n\n{note}\n")
        parts += _table("Breaks readers", rules, breaks=True)
        parts += _table("Does not", rules, breaks=False)
    return "".join(parts)


def _table(head: str, rules: Mapping[str, Rule], *, breaks: bool) -> list[str]:
    rows = [f"| `{rule.id}` | {_meaning(rule)} |\n" for rule in rules.values() if rule.breaks is breaks]
    return [f"\n| {head} | Meaning |\n|---|---|\n", *rows] if rows else []


def _meaning(rule: Rule) -> str:
    return re.sub(r"\{(\w+)\}", r"*\1*", rule.text.removeprefix("{path}: "))


if __name__ == "__main__":
    print(render(), end="")
