"""Expressions from text: `amount > 0 AND user IS NOT NULL`. Names and types are checked while it is read.

The language is a part of Spark SQL with the same meaning, and smaller: a number with a fraction is a double, names are
exact, functions are those of functions.py. Anything else is refused with the place in the text; `spark_sql("…", type)`
is for what only Spark understands.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.streams.sql.aggregates import AGGREGATE_FUNCTIONS, is_ordered
from moldau.streams.sql.errors import EvaluationFailed, SqlRefused, did_you_mean
from moldau.streams.sql.evaluate import castable, read_date, read_timestamp
from moldau.streams.sql.expressions import (
    AGGREGATES,
    AggregateCall,
    Aggregation,
    Call,
    Case,
    Cast,
    Column,
    Expression,
    Literal,
    SparkText,
    parts,
)
from moldau.streams.sql.functions import ALIASES, ALL, FUNCTIONS, Function, common_type, match
from moldau.streams.sql.types import (
    BIGINT,
    BITS,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    MAX_DEPTH,
    STRING,
    TIMESTAMP,
    VOID,
    Struct,
    Type,
    parse_type,
)

MAX_LENGTH: Final = 10_000  # characters of an expression
COMPARED: Final = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
KEYWORDS: Final = frozenset(
    {"and", "or", "not", "in", "like", "between", "is", "null", "true", "false", "case", "when", "then", "else", "end"}
    | {"cast", "as", "timestamp", "date", "distinct"}
)

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<name>[^\W\d]\w*)|`(?P<quoted>[^`]+)`
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<mark>\|\||<>|!=|<=|>=|==|[-+*/%=<>(),.])
    |(?P<wrong>\S))""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean: roots (`key`, `value`, …) with their types, and where bare names are looked up."""

    roots: Mapping[str, Type]
    within: tuple[str, ...] = ("value",)  # roots whose fields need no prefix
    grouped: frozenset[str] = field(default=frozenset(), kw_only=True)  # roots allowed outside of aggregates

    def fields(self) -> Iterable[str]:
        for root in self.within:
            kind = self.roots.get(root)
            if isinstance(kind, Struct):
                yield from kind.names


def parse(text: str | SparkText, scope: Scope) -> Expression:
    """An expression over one record."""
    if isinstance(text, SparkText):
        return text
    parser = _Parser(text, scope, aggregating=False)
    return parser.whole()


def parse_condition(text: str | SparkText, scope: Scope) -> Expression:
    read = parse(text, scope)
    if read.type not in (BOOLEAN, VOID):
        raise SqlRefused(f"a condition is true or false, and this is a {read.type}", str(getattr(text, "text", text)))
    return read


def parse_aggregation(text: str, scope: Scope) -> Aggregation:
    """An expression over the records of a group: `sum(amount) / count(*)`."""
    parser = _Parser(text, scope, aggregating=True)
    result = parser.whole()
    for part in parts(result):
        if isinstance(part, Column) and part.path[0] not in (AGGREGATES, *scope.grouped):
            name = ".".join(part.path).removeprefix("value.")
            raise SqlRefused(
                f"{name} has a value per record, not per group: use it in an aggregate, as in max({name})", text
            )
    return Aggregation(tuple(parser.calls), result)


class _Parser:
    """Recursive descent, one method per level of precedence."""

    def __init__(self, text: str, scope: Scope, *, aggregating: bool) -> None:
        if len(text) > MAX_LENGTH:
            raise SqlRefused(f"an expression has at most {MAX_LENGTH} characters, and this has {len(text)}")
        self.text = text
        self.scope = scope
        self.aggregating = aggregating
        self.calls: list[AggregateCall] = []
        self.depth = 0
        self.at = 0
        self.inside_aggregate = False
        self.tokens = [
            (str(found.lastgroup), found[str(found.lastgroup)], found.start(str(found.lastgroup)))
            for found in _TOKEN.finditer(text)
        ]

    def whole(self) -> Expression:
        if not self.tokens:
            raise SqlRefused("an expression is empty")
        read = self.expression()
        if self.at < len(self.tokens):
            raise self.refused(f"'{self.word()}' was not expected here")
        return read

    # Tokens

    def refused(self, reason: str, at: int | None = None) -> SqlRefused:
        index = self.at if at is None else at
        position = self.tokens[index][2] if index < len(self.tokens) else len(self.text)
        return SqlRefused(reason, self.text, position)

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else "end"

    def word(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, *words: str) -> str:
        """The next word, if it is one of these; else nothing."""
        word = self.word().lower()
        if self.kind() in ("name", "mark") and word in words:
            self.at += 1
            return word
        return ""

    def need(self, word: str) -> None:
        if not self.take(word):
            found = f", not '{self.word()}'" if self.word() else ""
            raise self.refused(f"'{word}' belongs here{found}")

    # Levels of precedence, from the weakest

    def expression(self) -> Expression:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.refused(f"parentheses are more than {MAX_DEPTH} deep")
        read = self.conjunction()
        while self.take("or"):
            read = self.operator("or", read, self.conjunction())
        self.depth -= 1
        return read

    def conjunction(self) -> Expression:
        read = self.negation()
        while self.take("and"):
            read = self.operator("and", read, self.negation())
        return read

    def negation(self) -> Expression:
        nots = 0
        while self.take("not"):
            nots += 1
        read = self.comparison()
        return self.operator("not", read) if nots % 2 else read

    def comparison(self) -> Expression:
        read = self.sum()
        while True:
            if sign := self.take(*COMPARED):
                read = self.operator(COMPARED[sign], *self.alike(read, self.sum()))
            elif self.take("is"):
                unless = self.take("not")
                self.need("null")
                test = self.operator("is null", read)
                read = self.operator("not", test) if unless else test
            elif self.kind() == "name" and self.word().lower() in ("not", "in", "like", "between"):
                read = self.membership(read)
            else:
                return read

    def membership(self, left: Expression) -> Expression:
        unless = self.take("not")
        if self.take("in"):
            self.need("(")
            others = self.arguments()
            if not others:
                raise self.refused("a value is missing")
            test = self.operator("in", *self.alike(left, *others))
        elif self.take("like"):
            test = self.operator("like", left, self.sum())
        elif self.take("between"):
            low = self.sum()
            self.need("and")
            high = self.sum()
            over, under = self.operator(">=", *self.alike(left, low)), self.operator("<=", *self.alike(left, high))
            test = self.operator("and", over, under)
        else:
            raise self.refused("'in', 'like' or 'between' belongs here")
        return self.operator("not", test) if unless else test

    def sum(self) -> Expression:
        read = self.product()
        while sign := self.take("+", "-", "||"):
            read = self.operator(sign, read, self.product())
        return read

    def product(self) -> Expression:
        read = self.signed()
        while sign := self.take("*", "/", "%"):
            read = self.operator(sign, read, self.signed())
        return read

    def signed(self) -> Expression:
        minus = 0
        while sign := self.take("-", "+"):
            minus += sign == "-"
        read = self.primary()
        if not minus % 2:
            return read
        if isinstance(read, Literal) and isinstance(read.value, int | float) and read.type != BOOLEAN:
            return Literal(-read.value, read.type)
        return self.operator("negative", read)

    # What has no operator

    def primary(self) -> Expression:
        kind, word = self.kind(), self.word()
        if kind == "number":
            self.at += 1
            return self.number(word)
        if kind == "text":
            self.at += 1
            return Literal(_unescaped(word), STRING)
        if self.take("("):
            read = self.expression()
            self.need(")")
            return read
        if kind == "name" and word.lower() in KEYWORDS:
            special = self.keyword(word.lower())
            if special is not None:
                return special
        if kind not in ("name", "quoted"):
            raise self.refused("a value is missing" if kind == "end" else f"'{word}' was not expected here")
        if kind == "name" and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1][1] == "(":
            return self.call()
        return self.column()

    def number(self, word: str) -> Literal:
        if not word.isdigit():
            return Literal(float(word), DOUBLE)
        value = int(word[:20])
        if value >= 1 << 63:
            self.at -= 1
            raise self.refused("a whole number is at most 9223372036854775807; write 1e20 for a double")
        return Literal(value, INT if value < 1 << BITS[INT] - 1 else BIGINT)

    def keyword(self, word: str) -> Expression | None:
        start = self.at
        self.at += 1
        if word in ("true", "false"):
            return Literal(word == "true", BOOLEAN)
        if word == "null":
            return Literal(None, VOID)
        if word == "case":
            return self.case()
        if word == "cast":
            self.need("(")
            argument = self.expression()
            self.need("as")
            kind = self.type_name()
            self.need(")")
            return self.cast(argument, kind, start)
        if word in ("timestamp", "date") and self.kind() == "text":
            text = _unescaped(self.word())
            self.at += 1
            return self.time(text, TIMESTAMP if word == "timestamp" else DATE, self.at - 1)
        self.at = start
        if word in ("timestamp", "date", "end", "distinct"):
            return None  # a column may have this name
        raise self.refused(f"'{word}' was not expected here")

    def case(self) -> Expression:
        arms = []
        while self.take("when"):
            place = self.at
            condition = self.expression()
            if condition.type not in (BOOLEAN, VOID):
                raise self.refused(f"a condition is true or false, and this is a {condition.type}", place)
            self.need("then")
            arms.append((condition, self.expression()))
        if not arms:
            raise self.refused("'when' belongs here")
        otherwise = self.expression() if self.take("else") else Literal(None, VOID)
        self.need("end")
        return self.chosen(arms, otherwise)

    def chosen(self, arms: list[tuple[Expression, Expression]], otherwise: Expression) -> Expression:
        results = [result for _, result in arms]
        kind = common_type([each.type for each in (*results, otherwise)])
        if kind is None:
            types = ", ".join(str(each.type) for each in (*results, otherwise))
            raise self.refused(f"the results have different types: {types}", self.at - 1)
        return Case(tuple((test, _cast(result, kind)) for test, result in arms), _cast(otherwise, kind), kind)

    def type_name(self) -> Type:
        start = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        depth = 0
        while self.at < len(self.tokens) and (depth or self.word() != ")"):
            depth += {"(": 1, ")": -1}.get(self.word(), 0)
            self.at += 1
        end = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        return parse_type(self.text[start:end])

    def cast(self, argument: Expression, kind: Type, place: int) -> Expression:
        if not castable(argument.type, kind):
            raise self.refused(f"a {argument.type} cannot become a {kind}", place)
        return Cast(argument, kind)

    def time(self, text: str, kind: Type, place: int) -> Literal:
        try:
            return Literal(read_timestamp(text) if kind == TIMESTAMP else read_date(text), kind)
        except EvaluationFailed as wrong:
            raise self.refused(str(wrong), place) from wrong

    def column(self) -> Expression:
        start = self.at
        names = [self.word()]
        self.at += 1
        while self.take("."):
            if self.kind() not in ("name", "quoted"):
                raise self.refused("the name of a field is missing")
            names.append(self.word())
            self.at += 1
        path, kind = self.root(names[0], start)
        for place, name in enumerate(names[1:], start=1):
            inner = kind.type_of(name) if isinstance(kind, Struct) else None
            if inner is None:
                known = kind.names if isinstance(kind, Struct) else ()
                whole = ".".join(names[:place])
                hint = did_you_mean(name, known) if known else f"; it is a {kind}"
                raise self.refused(f"{whole} has no field {name}{hint}", start + 2 * place)
            path, kind = (*path, name), inner
        return Column(path, kind)

    def root(self, name: str, place: int) -> tuple[tuple[str, ...], Type]:
        if name in self.scope.roots:
            return (name,), self.scope.roots[name]
        found = [
            (root, name)
            for root in self.scope.within
            if isinstance(kind := self.scope.roots.get(root), Struct) and name in kind.names
        ]
        if len(found) == 1:
            kind = self.scope.roots[found[0][0]]
            inner = kind.type_of(name) if isinstance(kind, Struct) else None
            if inner is not None:
                return found[0], inner
        if found:
            raise self.refused(f"{name} is a field of both sides: write left.{name} or right.{name}", place)
        known = [*self.scope.fields(), *self.scope.roots]
        raise self.refused(f"no field {name}{did_you_mean(name, known)}", place)

    # Calls

    def arguments(self) -> list[Expression]:
        """After the opening parenthesis, up to the closing one."""
        read: list[Expression] = []
        if self.take(")"):
            return read
        while True:
            read.append(self.expression())
            if self.take(")"):
                return read
            self.need(",")

    def call(self) -> Expression:
        start = self.at
        name = self.word().lower()
        self.at += 2
        name = ALIASES.get(name, name)
        if name in AGGREGATE_FUNCTIONS:
            return self.aggregate(name, start)
        if name == "if":
            given = self.arguments()
            if len(given) != 3 or given[0].type not in (BOOLEAN, VOID):
                raise self.refused("if takes a condition and two values", start)
            return self.chosen([(given[0], given[1])], given[2])
        if name not in FUNCTIONS:
            hint = did_you_mean(name, [*FUNCTIONS, *AGGREGATE_FUNCTIONS]) if len(name) > 2 else ""
            close = hint if hint.startswith("; did") else ""
            raise self.refused(f'no function {name}{close}; for functions of Spark: spark_sql("…", type)', start)
        return self.apply(name, FUNCTIONS[name], self.arguments(), start)

    def aggregate(self, name: str, start: int) -> Expression:
        if not self.aggregating:
            raise self.refused(f"{name} is over many records: group_by(…).aggregate(…) has it", start)
        if self.inside_aggregate:
            raise self.refused("an aggregate is inside another", start)
        if self.take("distinct"):
            raise self.refused(
                "Structured Streaming has no distinct aggregates. Group by the value first, then count", start
            )
        self.inside_aggregate = True
        argument: Expression | None
        if name == "count" and self.take("*"):
            self.need(")")
            argument = None
            given: list[Expression] = []
        else:
            given = self.arguments()
            argument = given[0] if given else None
        self.inside_aggregate = False
        function = AGGREGATE_FUNCTIONS[name]
        if argument is None and name == "count" and not given:
            kind: Type = BIGINT
        else:
            found = next((fit for each in function.signatures if (fit := match(each, [g.type for g in given]))), None)
            if found is None or argument is None or (name in ("min", "max") and not is_ordered(argument.type)):
                raise self.refused(f"{name} does not take {_types(given)}", start)
            argument, kind = _cast(argument, found[0][0]), found[1]
        call = AggregateCall(name, argument, kind)
        if call not in self.calls:
            self.calls.append(call)
        return Column((AGGREGATES, str(self.calls.index(call))), kind)

    def operator(self, name: str, *given: Expression) -> Expression:
        return self.apply(name, ALL[name], list(given), max(self.at - 1, 0))

    def apply(self, name: str, function: Function, given: list[Expression], place: int) -> Expression:
        types = [each.type for each in given]
        found = next((fit for each in function.signatures if (fit := match(each, types))), None)
        compares = name in ("<", "<=", ">", ">=", "greatest", "least")
        if found is None or (compares and any(not is_ordered(each) for each in found[0] if each != VOID)):
            raise self.refused(f"{name} does not take {_types(given)}{_hint(name, types)}", place)
        casts, kind = found
        return Call(name, tuple(_cast(each, want) for each, want in zip(given, casts, strict=True)), kind)

    def alike(self, *given: Expression) -> list[Expression]:
        """Texts that are compared with a time are read as times."""
        time = next((each.type for each in given if each.type in (TIMESTAMP, DATE)), None)
        if time is None:
            return list(given)
        return [
            self.time(str(each.value), time, self.at - 1) if isinstance(each, Literal) and each.type == STRING else each
            for each in given
        ]


def _cast(argument: Expression, kind: Type) -> Expression:
    """An implicit cast, if one is needed."""
    if argument.type == kind:
        return argument
    if isinstance(argument, Literal) and (argument.value is None or kind == BIGINT):
        return Literal(argument.value, kind)
    if isinstance(argument, Literal) and kind == DOUBLE and isinstance(argument.value, int):
        return Literal(float(argument.value), DOUBLE)
    return Cast(argument, kind)


def _types(given: list[Expression]) -> str:
    return " and ".join(f"a {each.type}" for each in given) or "nothing"


def _hint(name: str, types: list[Type]) -> str:
    if name == "+" and STRING in types:
        return ". To join texts: a || b"
    if any(str(each).startswith("decimal") for each in types):
        return ". Cast decimals to double, or use spark_sql"
    return ""


def _unescaped(word: str) -> str:
    quote, inside = word[0], word[1:-1]
    return re.sub(
        rf"\\(.)|{quote}{quote}",
        lambda found: ESCAPES.get(found[1], found[1]) if found[1] else quote,
        inside,
        flags=re.DOTALL,
    )
