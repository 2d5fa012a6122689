"""Types of keys, values and their fields, with the names of Spark SQL, and schemas as DDL: `user string, at timestamp`.

Not here: Python classes as schemas (topology/models.py).
"""

import re
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from moldau.streams.sql.errors import SqlRefused, did_you_mean


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parts, by its name in Spark SQL."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Array:
    element: "Type"

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class Map:
    key: "Type"
    value: "Type"

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: "Type"
    nullable: bool = True

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(map(str, self.fields))}>"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def type_of(self, name: str) -> "Type | None":
        return next((field.type for field in self.fields if field.name == name), None)


Type: TypeAlias = Scalar | Decimal | Array | Map | Struct

STRING: Final = Scalar("string")
BINARY: Final = Scalar("binary")
BOOLEAN: Final = Scalar("boolean")
TINYINT: Final = Scalar("tinyint")
SMALLINT: Final = Scalar("smallint")
INT: Final = Scalar("int")
BIGINT: Final = Scalar("bigint")
FLOAT: Final = Scalar("float")
DOUBLE: Final = Scalar("double")
DATE: Final = Scalar("date")
TIMESTAMP: Final = Scalar("timestamp")
VOID: Final = Scalar("void")  # of the literal null

BITS: Final = {TINYINT: 8, SMALLINT: 16, INT: 32, BIGINT: 64}
NUMBERS: Final = (*BITS, FLOAT, DOUBLE)
NAMES: Final = {
    **{each.name: each for each in (STRING, BINARY, BOOLEAN, *NUMBERS, DATE, TIMESTAMP)},
    "byte": TINYINT,
    "short": SMALLINT,
    "integer": INT,
    "long": BIGINT,
    "real": FLOAT,
}
COMPOUND: Final = ("array", "map", "struct", "decimal")
WINDOW: Final = Struct((Field("start", TIMESTAMP, False), Field("end", TIMESTAMP, False)))

MAX_PRECISION: Final = 38
MAX_DEPTH: Final = 32  # of types within types, and of parentheses in an expression

_TOKEN = re.compile(r"\s*(?:(?P<name>[^\W\d]\w*)|`(?P<quoted>[^`]+)`|(?P<number>\d+)|(?P<mark>[<>(),:])|(?P<wrong>\S))")


def parse_schema(text: str) -> Type:
    """Read `user string, amount double NOT NULL`, or one type alone, such as `bigint` or `array<string>`."""
    return _Reader(text).schema()


def parse_type(text: str) -> Type:
    return _Reader(text).whole_type()


def ddl(struct: Struct) -> str:
    """The fields of a struct as text that Spark and `parse_schema` read."""
    return ", ".join(
        f"{quoted(field.name)} {spelled(field.type)}{'' if field.nullable else ' NOT NULL'}" for field in struct.fields
    )


def spelled(kind: Type) -> str:
    """The type in Spark SQL."""
    match kind:
        case Struct(fields):
            inside = ",".join(
                f"{quoted(field.name)}:{spelled(field.type)}{'' if field.nullable else ' NOT NULL'}" for field in fields
            )
            return f"struct<{inside}>"
        case Array(element):
            return f"array<{spelled(element)}>"
        case Map(key, value):
            return f"map<{spelled(key)},{spelled(value)}>"
        case _:
            return str(kind)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def without_nulls_known(kind: Type) -> Type:
    """The same type with every field nullable, for comparing types."""
    match kind:
        case Struct(fields):
            return Struct(tuple(replace(each, type=without_nulls_known(each.type), nullable=True) for each in fields))
        case Array(element):
            return Array(without_nulls_known(element))
        case Map(key, value):
            return Map(key, without_nulls_known(value))
        case _:
            return kind


def same_type(one: Type, other: Type) -> bool:
    return without_nulls_known(one) == without_nulls_known(other)


class _Reader:
    """Reads one schema from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            (str(found.lastgroup), found[found.lastgroup or 0], found.start(found.lastgroup or 0))
            for found in _TOKEN.finditer(text)
        ]
        self.at = 0
        self.depth = 0

    def schema(self) -> Type:
        if not self.tokens:
            raise SqlRefused("a schema is empty: name its fields, as in 'user string, amount double'")
        kind, word, _ = self.tokens[0]
        alone = kind == "name" and (word.lower() in NAMES or word.lower() in COMPOUND)
        if alone and (len(self.tokens) == 1 or self.tokens[1][1] in "<("):
            return self.whole_type()
        fields = self.fields("")
        self.end()
        return Struct(fields)

    def whole_type(self) -> Type:
        read = self.type()
        self.end()
        return read

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise self.refused(f"'{self.tokens[self.at][1]}' was not expected here")

    def refused(self, reason: str) -> SqlRefused:
        position = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        return SqlRefused(reason, self.text, position)

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, mark: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at][0] in ("mark", "name") and self.peek().lower() == mark:
            self.at += 1
            return True
        return False

    def need(self, mark: str) -> None:
        if not self.take(mark):
            raise self.refused(f"'{mark}' is missing")

    def name(self, what: str) -> str:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] not in ("name", "quoted"):
            raise self.refused(f"{what} is missing")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def number(self) -> int:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != "number":
            raise self.refused("a number is missing")
        self.at += 1
        return int(self.tokens[self.at - 1][1][:9])

    def fields(self, separator: str) -> tuple[Field, ...]:
        read: dict[str, Field] = {}
        while True:
            name = self.name("the name of a field")
            if name.lower() in read:
                self.at -= 1
                raise self.refused(f"field {name} is there twice; Spark does not distinguish upper and lower case")
            if separator:
                self.take(separator)
            read[name.lower()] = Field(name, self.type(), not self.not_null())
            if not self.take(","):
                return tuple(read.values())

    def not_null(self) -> bool:
        if not self.take("not"):
            return False
        self.need("null")
        return True

    def type(self) -> Type:
        name = self.name("a type").lower()
        if name in NAMES:
            return NAMES[name]
        if name not in COMPOUND:
            self.at -= 1
            raise self.refused(f"no type {name}{did_you_mean(name, [*NAMES, *COMPOUND])}")
        if self.depth >= MAX_DEPTH:
            raise self.refused(f"types within types are more than {MAX_DEPTH} deep")
        self.depth += 1
        read = self.decimal() if name == "decimal" else self.compound(name)
        self.depth -= 1
        return read

    def decimal(self) -> Decimal:
        if not self.take("("):
            return Decimal(10, 0)
        precision = self.number()
        scale = self.number() if self.take(",") else 0
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            raise self.refused(f"decimal has at most {MAX_PRECISION} digits, and not more behind the point than in all")
        self.need(")")
        return Decimal(precision, scale)

    def compound(self, name: str) -> Type:
        self.need("<")
        read: Type
        if name == "struct":
            read = Struct(self.fields(":"))
        elif name == "array":
            read = Array(self.type())
        else:
            key = self.type()
            self.need(",")
            read = Map(key, self.type())
        self.need(">")
        return read
