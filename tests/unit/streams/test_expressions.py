"""Expressions: what they give, as Spark's, and what is refused, with the place."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from moldau.streams.sql.aggregates import Accumulator
from moldau.streams.sql.errors import EvaluationFailed, SqlRefused
from moldau.streams.sql.evaluate import NeedsSpark, as_text, compiled
from moldau.streams.sql.expressions import SparkText
from moldau.streams.sql.parser import MAX_LENGTH, Scope, parse, parse_aggregation
from moldau.streams.sql.shown import shown, shown_aggregation
from moldau.streams.sql.spark_text import spark_text
from moldau.streams.sql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    MAX_DEPTH,
    STRING,
    TIMESTAMP,
    Decimal,
    Struct,
    ddl,
    parse_schema,
)

VALUE = parse_schema(
    "user string, n int, big bigint, x double, small smallint, f float, yes boolean, at timestamp, day date, "
    "tags array<string>, who struct<name: string, age: int>, price decimal(10,2), `a b` string"
)
SCOPE = Scope({"key": STRING, "value": VALUE, "timestamp": TIMESTAMP})
AT = datetime(2026, 11, 18, 10, 0, 5, tzinfo=UTC)
ROW = {
    "key": "k",
    "timestamp": AT,
    "value": {
        "user": "ann", "n": 7, "big": 2**40, "x": 2.5, "small": 3, "f": 0.5, "yes": True, "at": AT, "day": AT.date(),
        "tags": ["a", "b"], "who": {"name": "Ann", "age": 30}, "price": None, "a b": "c",
    },
}  # fmt: skip
NOTHING = {"key": None, "timestamp": AT, "value": dict.fromkeys(ROW["value"])}  # type: ignore[call-overload]

GIVES: dict[str, Any] = {
    "n + 1": 8,
    "n - small * 2": 1,
    "n / 2": 3.5,
    "-n % 3": -1,
    "-(n)": -7,
    "x > 2 and n = 7": True,
    "x > 3 or user = 'ann'": True,
    "not yes": False,
    "user || '-' || who.name": "ann-Ann",
    "n in (1, 7)": True,
    "n not in (1, 7)": False,
    "n in (1, null)": None,
    "n between 7 and 8": True,
    "user like 'a_n'": True,
    "user like '%n%n'": True,
    "user like 'a'": False,
    "'10%' like '10\\\\%'": True,
    "price is null": True,
    "user is not null": True,
    "case when n > 5 then 'big' when n > 3 then 'middle' else 'small' end": "big",
    "case when n > 50 then 1 end": None,
    "if(n > 5, 1, 2.5)": 1.0,
    "coalesce(price, null)": None,
    "coalesce(null, user, 'x')": "ann",
    "nullif(n, 7)": None,
    "greatest(n, null, 9)": 9,
    "least(n, 3.5)": 3.5,
    "upper(user)": "ANN",
    "substring(user, 2)": "nn",
    "substring(user, -2, 1)": "n",
    "length(user)": 3,
    "round(2.345, 2)": 2.35,
    "round(-2.5)": -3.0,
    "ceil(x)": 3,
    "floor(-2.5)": -3,
    "abs(-3)": 3,
    "size(tags)": 2,
    "replace(user, 'n', 'm')": "amm",
    "trim('  a ')": "a",
    "concat(user, '!', key)": "ann!k",
    "startswith(user, 'a') and endswith(user, 'n') and contains(user, 'nn')": True,
    "cast('12' as int) + cast(12.9 as int)": 24,
    "cast(x as string)": "2.5",
    "cast(n as double)": 7.0,
    "cast('true' as boolean)": True,
    "cast('2026-11-18 10:00:05' as timestamp) = at": True,
    "at >= '2026-11-18'": True,
    "at = '2026-11-18T11:00:05+01:00'": True,
    "day = '2026-11-18'": True,
    "day < date '2026-11-19'": True,
    "unix_millis(at)": int(AT.timestamp() * 1000),
    "timestamp_millis(0)": datetime(1970, 1, 1, tzinfo=UTC),
    "year(at) * 10000 + month(at) * 100 + day(day)": 20261118,
    "hour(timestamp)": 10,
    "value.user": "ann",
    "`a b`": "c",
    "who.age + f": 30.5,
    "'it''s' || \"b\"": "it'sb",
    "1e3 + .5": 1000.5,
    "9223372036854775807": 2**63 - 1,
    "true and null": None,
    "false and null": False,
    "n > 0 or 1 / 0 > 0": True,
}


@pytest.mark.parametrize("text", GIVES)
def test_an_expression_gives(text: str) -> None:
    given = compiled(parse(text, SCOPE))(ROW)
    assert given == GIVES[text]
    assert type(given) is type(GIVES[text])


@pytest.mark.parametrize(
    "text", ["n + 1", "upper(user)", "x > 2", "who.name", "n in (1)", "at > '2026-01-01'", "not yes"]
)
def test_null_gives_null(text: str) -> None:
    assert compiled(parse(text, SCOPE))(NOTHING) is None


FAILS = {
    "n / 0": "is divided by 0",
    "n % 0": "is divided by 0",
    "2147483647 + n": "is beyond int",
    "cast('x' as int)": "'x' is not a int",
    "cast(big as int)": "is beyond int",
    "cast('2026-02-30' as timestamp)": "is not a timestamp",
    "cast('maybe' as boolean)": "is not a boolean",
}


@pytest.mark.parametrize("text", FAILS)
def test_what_spark_refuses_to_calculate_fails(text: str) -> None:
    with pytest.raises(EvaluationFailed, match=FAILS[text]):
        compiled(parse(text, SCOPE))(ROW)


REFUSED = {
    "": "an expression is empty",
    "amout > 0": "no field amout",
    "usr": "did you mean user?",
    "who.nme": "who has no field nme; did you mean name?",
    "user.x": "user has no field x; it is a string",
    "user + 1": "To join texts: a || b",
    "user > 1": "> does not take a string and a int",
    "uper(user)": "did you mean upper?",
    "array_max(tags)": 'spark_sql("…", type)',
    "upper(user, user)": "upper does not take",
    "price + 1": "Cast decimals to double",
    "tags < tags": "< does not take",
    "(n": "')' belongs here",
    "n n": "'n' was not expected here",
    "n +": "a value is missing",
    "n ; 1": "';' was not expected here",
    "case n when 1 then 2 end": "'when' belongs here",
    "case when n then 1 end": "a condition is true or false, and this is a int",
    "case when yes then 1 else 'a' end": "the results have different types: int, string",
    "cast(yes as date)": "a boolean cannot become a date",
    "cast(n as integr)": "did you mean integer?",
    "at > 'yesterday'": "'yesterday' is not a timestamp",
    "sum(n)": "group_by(…).aggregate(…) has it",
    "99999999999999999999": "a whole number is at most",
    "n = 1 and": "a value is missing",
    "if(n, 1, 2)": "if takes a condition and two values",
    "n not 1": "'in', 'like' or 'between' belongs here",
    "(" * (MAX_DEPTH + 1) + "n" + ")" * (MAX_DEPTH + 1): f"more than {MAX_DEPTH} deep",
    "n" + " + 1" * MAX_LENGTH: f"at most {MAX_LENGTH} characters",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:30])
def test_what_is_not_understood_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(SqlRefused) as refused:
        parse(text, SCOPE)
    assert REFUSED[text] in str(refused.value)


def test_a_refusal_shows_the_place() -> None:
    with pytest.raises(SqlRefused) as refused:
        parse("n > 0 and amout > 0", SCOPE)
    assert str(refused.value).splitlines()[1:] == ["  n > 0 and amout > 0", "            ^"]


def test_a_field_hides_nothing_of_the_record() -> None:
    scope = Scope({"key": STRING, "value": parse_schema("key bigint, value double"), "timestamp": TIMESTAMP})
    assert parse("key", scope).type == STRING
    assert parse("value.key", scope).type == BIGINT
    assert parse("value.value", scope).type == DOUBLE


def test_what_only_spark_understands_needs_spark() -> None:
    only = SparkText("array_max(value.tags)", STRING)
    assert parse(only, SCOPE) is only
    with pytest.raises(NeedsSpark, match='engine="spark"'):
        compiled(only)


def test_aggregates() -> None:
    texts = [
        "count(*)",
        "count(x)",
        "sum(n)",
        "sum(x) / count(*)",
        "avg(n)",
        "min(user)",
        "max(x) - min(x)",
        "upper(key)",
    ]
    scope = Scope(SCOPE.roots, grouped=frozenset({"key"}))
    read = [parse_aggregation(text, scope) for text in texts]
    assert [shown_aggregation(each) for each in read][:3] == ["count(*)", "count(x)", "sum(n)"]
    accumulator = Accumulator(read)
    kept = accumulator.start
    for n, x, user in ((1, 1.5, "b"), (2, None, "a"), (3, 2.5, None)):
        kept = accumulator.add(kept, {**ROW, "value": {**ROW["value"], "n": n, "x": x, "user": user}})  # type: ignore[dict-item]
    assert accumulator.results(kept, {"key": "k"}) == [3, 2, 6, 4.0 / 3, 2.0, "a", 1.0, "K"]
    assert accumulator.results(accumulator.start, {"key": "k"}) == [0, 0, None, None, None, None, None, "K"]


AGGREGATES_REFUSED = {
    "sum(x) + n": "n has a value per record, not per group",
    "sum(user)": "sum does not take a string",
    "sum(sum(n))": "an aggregate is inside another",
    "count(distinct n)": "Group by the value first, then count",
    "min(tags)": "min does not take",
    "sum()": "sum does not take nothing",
}


@pytest.mark.parametrize("text", AGGREGATES_REFUSED)
def test_an_aggregate_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(SqlRefused) as refused:
        parse_aggregation(text, SCOPE)
    assert AGGREGATES_REFUSED[text] in str(refused.value)


def test_a_sum_beyond_bigint_fails() -> None:
    accumulator = Accumulator([parse_aggregation("sum(big)", SCOPE)])
    row = {**ROW, "value": {**ROW["value"], "big": 2**62}}  # type: ignore[dict-item]
    kept = accumulator.add(accumulator.start, row)
    with pytest.raises(EvaluationFailed, match="is beyond bigint"):
        accumulator.add(kept, row)


def test_expressions_are_shown_as_people_write_them() -> None:
    text = "not (n > 1 or x is null) and user in ('a', 'b') and x * (n + 1) >= 2.5"
    assert shown(parse(text, SCOPE)) == text


def test_spark_gets_explicit_types() -> None:
    assert spark_text(parse("n / 2", SCOPE)) == "(CAST(`value`.`n` AS double) / CAST('2.0' AS double))"
    assert spark_text(parse("`a b` = 'it''s'", SCOPE)) == "(`value`.`a b` = 'it\\'s')"


def test_doubles_as_java_writes_them() -> None:
    values = [0.0, 1.0, -2.5, 1e7, 12345678.9, 0.001, 0.0001, 1e-7, 1e21, 1 / 3, 123456789012345680.0]
    texts = ["0.0", "1.0", "-2.5", "1.0E7", "1.23456789E7", "0.001", "1.0E-4", "1.0E-7", "1.0E21"]
    assert [as_text(value) for value in values] == [*texts, "0.3333333333333333", "1.2345678901234568E17"]


def test_schemas() -> None:
    text = "user string NOT NULL, a struct<b: array<int>, c: map<string,double>>, d decimal(5, 2), e long"
    read = parse_schema(text)
    assert isinstance(read, Struct)
    assert read.names == ("user", "a", "d", "e")
    assert (read.type_of("d"), read.type_of("e"), read.fields[0].nullable) == (Decimal(5, 2), BIGINT, False)
    assert parse_schema(ddl(read)) == read
    assert parse_schema("bigint") == BIGINT
    assert parse_schema("date date").type_of("date") != BOOLEAN  # type: ignore[union-attr]


SCHEMAS_REFUSED = {
    "": "a schema is empty",
    "user strng": "no type strng; did you mean string?",
    "user": "a type is missing",
    "a int, A int": "field A is there twice",
    "a int,": "the name of a field is missing",
    "a array<int": "'>' is missing",
    "a decimal(40,2)": "at most 38 digits",
    "a int b": "'b' was not expected here",
    "a " + "array<" * (MAX_DEPTH + 1) + "int" + ">" * (MAX_DEPTH + 1): f"more than {MAX_DEPTH} deep",
}


@pytest.mark.parametrize("text", SCHEMAS_REFUSED, ids=lambda text: text[:20])
def test_a_schema_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(SqlRefused) as refused:
        parse_schema(text)
    assert SCHEMAS_REFUSED[text] in str(refused.value)


def test_a_date_is_a_date() -> None:
    assert compiled(parse("cast(at as date)", SCOPE))(ROW) == date(2026, 11, 18)
