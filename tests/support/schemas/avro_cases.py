"""Schema resolution of Avro, case by case: what a reader makes of a writer's data, and why."""

from typing import NamedTuple

NAME = "NAME_MISMATCH"
SIZE = "FIXED_SIZE_MISMATCH"
SYMBOLS = "MISSING_ENUM_SYMBOLS"
DEFAULT = "READER_FIELD_MISSING_DEFAULT_VALUE"
AMBIGUOUS = "READER_FIELD_AMBIGUOUS"
TYPE = "TYPE_MISMATCH"
BRANCH = "MISSING_UNION_BRANCH"


class Case(NamedTuple):
    reader: object
    writer: object
    rules: tuple[str, ...]
    why: str


def record(*fields: object, name: str = "R", **more: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: object = "int", **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: object) -> dict[str, object]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: object) -> dict[str, object]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: object) -> dict[str, object]:
    return {"type": "array", "items": items}


def mapping(values: object) -> dict[str, object]:
    return {"type": "map", "values": values}


def node(value: object = "int", name: str = "Node") -> dict[str, object]:
    return record(field("value", value), field("next", ["null", name], default=None), name=name)


DATE = {"type": "int", "logicalType": "date"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
UUID = {"type": "string", "logicalType": "uuid"}

# A reader of the row's type reads a writer's of the column's: y, or n.
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
READABLE = {
    "null": "ynnnnnnn",
    "boolean": "nynnnnnn",
    "int": "nnynnnnn",
    "long": "nnyynnnn",
    "float": "nnyyynnn",
    "double": "nnyyyynn",
    "bytes": "nnnnnnyy",
    "string": "nnnnnnyy",
}
REASONS = {
    "y": "the types are equal, or the writer's is promoted to the reader's",
    "n": "Avro promotes int to long, float, double; long to float, double; float to double; bytes and string to each "
    "other; and nothing else",
}
PROMOTIONS = [
    Case(reader, writer, () if answer == "y" else (TYPE,), REASONS[answer])
    for reader, row in READABLE.items()
    for writer, answer in zip(PRIMITIVES, row, strict=True)
]

FIELDS = [
    Case(record(), record(), (), "two records without fields"),
    Case(record(field("a")), record(field("a")), (), "the same field"),
    Case(record(field("a")), record(field("a"), field("b")), (), "the reader skips what it does not know"),
    Case(record(), record(field("a")), (), "the reader skips all fields"),
    Case(record(field("a"), field("b")), record(field("a")), (DEFAULT,), "nothing to put into b"),
    Case(record(field("a"), field("b", default=1)), record(field("a")), (), "the default goes into b"),
    Case(record(field("b", "string", default="")), record(), (), "an empty string is a default"),
    Case(record(field("b", ["null", "int"], default=None)), record(), (), "null is a default"),
    Case(record(field("b", ["null", "int"])), record(), (DEFAULT,), "a nullable field has no default by itself"),
    Case(record(field("b", "null")), record(), (DEFAULT,), "not even null is taken for granted"),
    Case(record(field("b", array("int"), default=[])), record(), (), "an empty array is a default"),
    Case(record(field("b", mapping("int"), default={})), record(), (), "an empty map is a default"),
    Case(record(field("b", record(name="S"), default={})), record(), (), "an empty record is a default"),
    Case(record(field("b", enum("A"), default="A")), record(), (), "a symbol is a default"),
    Case(record(field("b", "boolean", default=False)), record(), (), "false is a default"),
    Case(record(field("b", "bytes", default="")), record(), (), "no bytes are a default"),
    Case(record(field("b", "int", default=0)), record(), (), "zero is a default"),
    Case(record(field("a"), field("b")), record(field("b"), field("a")), (), "fields are matched by name"),
    Case(record(field("a", "long")), record(field("a", "int")), (), "an int field is promoted"),
    Case(record(field("a", "int")), record(field("a", "long")), (TYPE,), "a long field does not fit an int"),
    Case(record(field("a", "string")), record(field("a", "bytes")), (), "bytes and strings are written alike"),
    Case(record(field("a", "int", default=1)), record(field("a", "string")), (TYPE,), "a default mends no type"),
    Case(record(field("b")), record(field("a")), (DEFAULT,), "a renamed field is a new one"),
    Case(record(field("b", aliases=["a"])), record(field("a")), (), "an alias renames the writer's field"),
    Case(record(field("b", aliases=["x", "a"])), record(field("a")), (), "the second alias fits"),
    Case(record(field("b", aliases=["x"])), record(field("a")), (DEFAULT,), "no alias fits"),
    Case(record(field("b", "string", aliases=["a"])), record(field("a")), (TYPE,), "an alias mends no type"),
    Case(record(field("a")), record(field("b", aliases=["a"])), (DEFAULT,), "only the reader's aliases count"),
    Case(
        record(field("b", aliases=["a"]), field("c")),
        record(field("a"), field("b"), field("c")),
        (AMBIGUOUS,),
        "the reader's b is the writer's b by name, and its a by alias",
    ),
    Case(
        record(field("c", aliases=["a", "b"])),
        record(field("a"), field("b")),
        (AMBIGUOUS,),
        "two aliases are both in the writer's record",
    ),
    Case(record(field("A")), record(field("a")), (DEFAULT,), "names differ in case"),
    Case(record(field("a", doc="new")), record(field("a", doc="old")), (), "documentation is not data"),
    Case(record(field("a", order="ignore")), record(field("a")), (), "the sort order is not data"),
    Case(record(field("a", default=2)), record(field("a", default=1)), (), "a default may change"),
    Case(record(field("a")), record(field("a", default=1)), (), "a default may go while the writer has the field"),
    Case(
        record(field("a"), field("b"), field("c")),
        record(),
        (DEFAULT, DEFAULT, DEFAULT),
        "each missing field is told",
    ),
    Case(record(field("a", "string"), field("b")), record(field("a")), (TYPE, DEFAULT), "both faults are told"),
    Case(record(field("a", prop=1)), record(field("a", prop=2)), (), "attributes of users are not data"),
]  # fmt: skip

NAMES = [
    Case(record(name="A"), record(name="B"), (NAME,), "records have different names"),
    Case(record(name="A", aliases=["B"]), record(name="B"), (), "the reader's alias is the writer's name"),
    Case(record(name="A"), record(name="B", aliases=["A"]), (NAME,), "only the reader's aliases count"),
    Case(record(name="A", aliases=["C"]), record(name="B"), (NAME,), "the alias is another name"),
    Case(record(name="a.R"), record(name="b.R"), (), "Avro compares names without namespaces"),
    Case(record(name="R", namespace="a"), record(name="R"), (), "a namespace may be added"),
    Case(record(name="R"), record(name="a.b.R"), (), "a namespace may go"),
    Case(record(name="a.R"), record(name="R", namespace="a"), (), "a namespace may be written in the name"),
    Case(record(name="a.A", aliases=["a.B"]), record(name="a.B"), (), "an alias with its namespace"),
    Case(record(name="a.A", aliases=["B"]), record(name="a.B"), (), "an alias is in the namespace of its type"),
    Case(record(name="a.A", aliases=["B"]), record(name="B"), (NAME,), "so it is not one without a namespace"),
    Case(record(name="a.A", aliases=["b.B"]), record(name="b.B"), (), "an alias in another namespace"),
    Case(record(name="A", aliases=["b.B"]), record(name="B"), (NAME,), "an alias is a full name"),
    Case(record(name="r"), record(name="R"), (NAME,), "names differ in case"),
    Case(record(doc="x"), record(), (), "documentation is not data"),
    Case(record(prop="x"), record(), (), "attributes of users are not data"),
    Case(enum("A", name="E"), enum("A", name="D"), (NAME,), "enums have different names"),
    Case(enum("A", name="E", aliases=["D"]), enum("A", name="D"), (), "an enum has aliases too"),
    Case(enum("A", name="x.E"), enum("A", name="y.E"), (), "no namespaces for enums either"),
    Case(fixed(4, name="F"), fixed(4, name="G"), (NAME,), "fixed types have different names"),
    Case(fixed(4, name="F", aliases=["G"]), fixed(4, name="G"), (), "a fixed has aliases too"),
    Case(fixed(4, name="x.F"), fixed(4, name="y.F"), (), "no namespaces for fixed types either"),
    Case(fixed(8, name="F"), fixed(4, name="G"), (NAME, SIZE), "name and size are told"),
    Case(enum("A", name="E"), enum("B", name="D"), (NAME, SYMBOLS), "name and symbols are told"),
    Case(record(field("a"), name="A"), record(name="B"), (NAME, DEFAULT), "name and field are told"),
    Case(
        record(field("s", record(name="S2"))),
        record(field("s", record(name="S1"))),
        (NAME,),
        "the name of a nested record counts",
    ),
]  # fmt: skip

ENUMS = [
    Case(enum("A", "B"), enum("A", "B"), (), "the same symbols"),
    Case(enum("B", "A"), enum("A", "B"), (), "symbols are matched by name"),
    Case(enum("A", "B"), enum("A"), (), "the reader knows more symbols"),
    Case(enum("A"), enum("A", "B"), (SYMBOLS,), "the reader lacks a symbol"),
    Case(enum("A"), enum("B"), (SYMBOLS,), "no symbol in common"),
    Case(enum("A", default="A"), enum("A", "B"), (), "the reader's default stands for unknown symbols"),
    Case(enum("A"), enum("A", "B", default="A"), (SYMBOLS,), "only the reader's default counts"),
    Case(enum("A", default="A"), enum("B", "C"), (), "the default stands for all"),
    Case(enum("a"), enum("A"), (SYMBOLS,), "symbols differ in case"),
    Case(enum("A", doc="x"), enum("A"), (), "documentation is not data"),
    Case(enum("A"), "string", (TYPE,), "a string is no enum"),
    Case("string", enum("A"), (TYPE,), "an enum is written as a number, not as its name"),
    Case("int", enum("A"), (TYPE,), "though written as a number it is no int"),
    Case(enum("A"), "int", (TYPE,), "nor is an int an enum"),
    Case(array(enum("A")), array(enum("A", "B")), (SYMBOLS,), "symbols count in arrays"),
    Case(record(field("e", enum("A"))), record(field("e", enum("A", "B"))), (SYMBOLS,), "and in fields"),
]  # fmt: skip

FIXED = [
    Case(fixed(4), fixed(4), (), "the same size"),
    Case(fixed(8), fixed(4), (SIZE,), "more bytes than there are"),
    Case(fixed(4), fixed(8), (SIZE,), "fewer bytes than there are"),
    Case(fixed(0), fixed(0), (), "no bytes at all"),
    Case(fixed(4), "bytes", (TYPE,), "bytes have a length in front"),
    Case("bytes", fixed(4), (TYPE,), "a fixed has none"),
    Case("string", fixed(4), (TYPE,), "a fixed is no string"),
    Case(fixed(16), fixed(16, logicalType="duration"), (), "a logical type is an annotation"),
]  # fmt: skip

CONTAINERS = [
    Case(array("int"), array("int"), (), "the same items"),
    Case(array("long"), array("int"), (), "items are promoted"),
    Case(array("int"), array("long"), (TYPE,), "items do not fit"),
    Case(array("int"), "int", (TYPE,), "an int is no array"),
    Case("int", array("int"), (TYPE,), "an array is no int"),
    Case(array("int"), mapping("int"), (TYPE,), "a map is no array"),
    Case(mapping("int"), array("int"), (TYPE,), "an array is no map"),
    Case(array(array("long")), array(array("int")), (), "items of items are promoted"),
    Case(array(array("int")), array(array("string")), (TYPE,), "items of items do not fit"),
    Case(array(["null", "int"]), array("int"), (), "items become nullable"),
    Case(array("int"), array(["null", "int"]), (TYPE,), "items may be null, and int is not"),
    Case(mapping("int"), mapping("int"), (), "the same values"),
    Case(mapping("double"), mapping("float"), (), "values are promoted"),
    Case(mapping("float"), mapping("double"), (TYPE,), "values do not fit"),
    Case(mapping(mapping("long")), mapping(mapping("int")), (), "values of values are promoted"),
    Case(mapping(record(field("a"))), mapping(record()), (DEFAULT,), "fields count in maps"),
    Case(mapping("int"), record(field("a")), (TYPE,), "a record is no map"),
    Case(record(field("a")), mapping("int"), (TYPE,), "a map is no record"),
    Case(array(record(field("a"))), array(record(field("a", "string"))), (TYPE,), "types of fields count in arrays"),
    Case(array("null"), array("null"), (), "nothing but nulls"),
]  # fmt: skip

UNIONS = [
    Case(["null", "int"], "int", (), "the reader takes more"),
    Case(["null", "int"], "null", (), "one of two branches"),
    Case("int", ["null", "int"], (TYPE,), "null may come"),
    Case("int", ["int"], (), "a union of one is as good as its branch"),
    Case(["int"], "int", (), "and the other way round"),
    Case("long", ["int", "long"], (), "all branches are readable"),
    Case("double", ["int", "long", "float"], (), "all branches are promoted"),
    Case("string", ["string", "bytes"], (), "all branches are written alike"),
    Case(["null", "int"], ["null", "int"], (), "the same branches"),
    Case(["int", "null"], ["null", "int"], (), "branches are matched by type"),
    Case(["null", "int", "string"], ["null", "int"], (), "a branch is new"),
    Case(["null", "int"], ["null", "int", "string"], (BRANCH,), "a branch is gone"),
    Case(["null", "long"], ["null", "int"], (), "a branch is promoted"),
    Case(["null", "int"], ["null", "long"], (BRANCH,), "a branch does not fit"),
    Case(["null", "string"], "int", (BRANCH,), "no branch fits"),
    Case(["null", "string"], "bytes", (), "bytes fit the string branch"),
    Case(["int", "string"], ["null", "boolean"], (BRANCH, BRANCH), "both branches are told"),
    Case([], [], (), "nothing can be written"),
    Case("int", [], (), "nothing can be written, so all of it can be read"),
    Case([], "int", (BRANCH,), "nothing can be read"),
    Case(["null", record()], record(), (), "a record becomes nullable"),
    Case(record(), ["null", record()], (TYPE,), "null may come, and a record is none"),
    Case(["null", record(name="A")], record(name="B"), (BRANCH,), "the branch has another name"),
    Case(["null", record(name="A", aliases=["B"])], record(name="B"), (), "the branch has an alias"),
    Case([record(name="A"), record(name="B")], record(name="B"), (), "the second record fits"),
    Case(
        [record(field("x"), name="A"), record(name="B")],
        [record(name="A"), record(name="B")],
        (BRANCH,),
        "the field x of the first is missing",
    ),
    Case(["null", enum("A")], enum("A", "B"), (BRANCH,), "the enum lacks a symbol"),
    Case(["null", enum("A", default="A")], enum("A", "B"), (), "its default stands for it"),
    Case(["null", fixed(4)], fixed(8), (BRANCH,), "the fixed has another size"),
    Case(["null", array("int")], array("int"), (), "an array becomes nullable"),
    Case(["null", array("int")], array("string"), (BRANCH,), "an array of other items"),
    Case(["null", mapping("long")], mapping("int"), (), "values are promoted inside a branch"),
    Case(record(field("a", ["null", "int"], default=None)), record(field("a")), (), "a field becomes nullable"),
    Case(record(field("a")), record(field("a", ["null", "int"])), (TYPE,), "a field is no longer nullable"),
    Case(record(field("a", ["int", "string"])), record(field("a", ["string", "int"])), (), "branches change places"),
    Case(array(["int", "string"]), array("boolean"), (BRANCH,), "no branch for the items"),
]  # fmt: skip

RECURSION = [
    Case(node(), node(), (), "a list is the same list"),
    Case(node("long"), node("int"), (), "its values are promoted"),
    Case(node("int"), node("string"), (TYPE,), "its values do not fit"),
    Case(
        record(field("v"), field("next", ["null", "N"], default=None), field("new"), name="N"),
        record(field("v"), field("next", ["null", "N"], default=None), name="N"),
        (DEFAULT,),
        "a field without default is new in every node, and told once",
    ),
    Case(
        record(field("children", array("T")), name="T"),
        record(field("children", array("T")), field("x"), name="T"),
        (),
        "a tree loses a field",
    ),
    Case(
        record(field("children", array("T")), field("x"), name="T"),
        record(field("children", array("T")), name="T"),
        (DEFAULT,),
        "a tree gets a field",
    ),
    Case(
        record(field("m", mapping("T")), name="T"), record(field("m", mapping("T")), name="T"), (), "a tree of maps"
    ),
    Case(
        record(field("b", record(field("a", ["null", "A"]), name="B")), name="A"),
        record(field("b", record(field("a", ["null", "A"]), name="B")), name="A"),
        (),
        "two records contain each other",
    ),
    Case(
        record(field("b", record(field("a", ["null", "A"]), field("n"), name="B")), name="A"),
        record(field("b", record(field("a", ["null", "A"]), name="B")), name="A"),
        (DEFAULT,),
        "the inner of two that contain each other gets a field",
    ),
]  # fmt: skip

LOGICAL = [
    Case(DATE, "int", (), "a logical type is an annotation"),
    Case("int", DATE, (), "and may go"),
    Case("long", DATE, (), "what is beneath is promoted"),
    Case(DATE, "long", (TYPE,), "what is beneath counts"),
    Case(DECIMAL, "bytes", (), "a decimal is bytes"),
    Case(DECIMAL, {**DECIMAL, "scale": 1}, (), "Avro does not compare scales"),
    Case(DECIMAL, {**DECIMAL, "precision": 9}, (), "nor precisions"),
    Case(UUID, "string", (), "a uuid is a string"),
    Case(UUID, "bytes", (), "and bytes are strings"),
    Case({"type": "int"}, "int", (), "two ways to write a primitive type"),
]  # fmt: skip

CASES = [*PROMOTIONS, *FIELDS, *NAMES, *ENUMS, *FIXED, *CONTAINERS, *UNIONS, *RECURSION, *LOGICAL]
