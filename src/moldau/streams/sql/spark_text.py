"""Expressions as text of Spark SQL. Types are explicit, so that Spark widens nothing on its own."""

from datetime import date, datetime
from typing import Final

from moldau.streams.sql.expressions import AggregateCall, Call, Case, Cast, Column, Expression, Literal, SparkText
from moldau.streams.sql.functions import ALL
from moldau.streams.sql.types import BIGINT, DOUBLE, VOID, quoted, spelled

ESCAPED: Final = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def spark_text(expression: Expression) -> str:
    """The expression over the columns key, value, timestamp, window, left, right of a frame."""
    match expression:
        case Literal(value, kind):
            return _literal(value, str(spelled(kind)) if kind != VOID else "void")
        case Column(path, _):
            return ".".join(quoted(name) for name in path)
        case Cast(argument, kind):
            return f"CAST({spark_text(argument)} AS {spelled(kind)})"
        case Case(arms, otherwise, _):
            whens = " ".join(f"WHEN {spark_text(test)} THEN {spark_text(result)}" for test, result in arms)
            return f"(CASE {whens} ELSE {spark_text(otherwise)} END)"
        case Call("in", (value, *others), _):
            return f"({spark_text(value)} IN ({', '.join(map(spark_text, others))}))"
        case Call(name, arguments, kind):
            written = [spark_text(argument) for argument in arguments]
            spark = ALL[name].spark
            text = spark.format(*written) if spark else f"{name}({', '.join(written)})"
            return text if kind not in (BIGINT, DOUBLE) or spark else f"CAST({text} AS {kind})"
        case SparkText(text, kind):
            return f"CAST(({text}) AS {spelled(kind)})"


def spark_aggregate(call: AggregateCall) -> str:
    argument = "*" if call.argument is None else spark_text(call.argument)
    return f"CAST({call.function}({argument}) AS {spelled(call.type)})"


def text_literal(value: str) -> str:
    return "'" + "".join(ESCAPED.get(character, character) for character in value) + "'"


def _literal(value: object, kind: str) -> str:
    match value:
        case None:
            return "NULL" if kind == "void" else f"CAST(NULL AS {kind})"
        case bool():
            return "true" if value else "false"
        case str():
            return text_literal(value)
        case datetime():
            return f"TIMESTAMP {text_literal(value.isoformat())}"
        case date():
            return f"DATE {text_literal(value.isoformat())}"
        case float():
            return f"CAST({text_literal(repr(value))} AS double)"
        case _:
            return f"CAST({value} AS {kind})"
