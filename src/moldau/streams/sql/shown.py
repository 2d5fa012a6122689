"""Expressions as people write them, for descriptions of topologies."""

from datetime import date, datetime
from typing import Final

from moldau.streams.sql.expressions import Aggregation, Call, Case, Cast, Column, Expression, Literal, SparkText

COMPARED: Final = ("=", "<>", "<", "<=", ">", ">=", "like", "in", "is null")
BINDS: Final = {  # how strongly
    **dict.fromkeys(["or"], 1),
    **dict.fromkeys(["and"], 2),
    **dict.fromkeys(["not"], 3),
    **dict.fromkeys(COMPARED, 4),
    **dict.fromkeys(["+", "-", "||"], 5),
    **dict.fromkeys(["*", "/", "%"], 6),
    "negative": 7,
}


def shown(expression: Expression) -> str:
    match expression:
        case Literal(value, _):
            return _literal(value)
        case Column(path, _):
            return ".".join(path[1:] if path[0] in ("value", "aggregates") and len(path) > 1 else path)
        case Cast(argument, kind):
            return f"cast({shown(argument)} as {kind})"
        case Case(arms, otherwise, _):
            whens = " ".join(f"when {shown(test)} then {shown(result)}" for test, result in arms)
            return f"case {whens} else {shown(otherwise)} end"
        case Call("not", (Call("is null", (argument,), _),), _):
            return f"{_within('is null', argument)} is not null"
        case Call("is null", (argument,), _):
            return f"{_within('is null', argument)} is null"
        case Call("not", (argument,), _):
            return f"not {_within('not', argument)}"
        case Call("negative", (argument,), _):
            return f"-{_within('negative', argument)}"
        case Call("in", (value, *others), _):
            return f"{_within('in', value)} in ({', '.join(map(shown, others))})"
        case Call(name, (one, other), _) if name in BINDS:
            return f"{_within(name, one)} {name} {_within(name, other, right=True)}"
        case Call(name, arguments, _):
            return f"{name}({', '.join(map(shown, arguments))})"
        case SparkText(text, _):
            return text


def shown_aggregation(aggregation: Aggregation) -> str:
    """`sum(amount) / count(*)`."""
    calls = [
        f"{call.function}({'*' if call.argument is None else shown(_uncast(call.argument))})"
        for call in aggregation.calls
    ]
    if isinstance(aggregation.result, Column):
        return calls[0]
    return f"{shown(aggregation.result)} of {', '.join(calls)}"


def _within(outer: str, expression: Expression, *, right: bool = False) -> str:
    """With parentheses, if it binds less than what it is in."""
    bare = _uncast(expression)
    binds = BINDS.get(bare.function, 9) if isinstance(bare, Call) else 9
    alike = right and outer in ("-", "/", "%")
    return f"({shown(bare)})" if binds < BINDS[outer] or (alike and binds == BINDS[outer]) else shown(bare)


def _uncast(expression: Expression) -> Expression:
    """Casts inside operators are not shown: most of them nobody wrote."""
    if isinstance(expression, Cast) and not isinstance(expression.argument, Literal):
        return expression.argument
    return expression


def _literal(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case float():
            return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case datetime() | date():
            return f"'{value.isoformat()}'"
        case _:
            return str(value)
