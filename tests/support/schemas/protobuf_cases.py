"""Changes of .proto files, case by case: the rules that forbid a reader with the new one, and why."""

from typing import NamedTuple

KIND = "FIELD_KIND_CHANGED"
SCALAR = "FIELD_SCALAR_KIND_CHANGED"
NAMED = "FIELD_NAMED_TYPE_CHANGED"
NUMERIC_LABEL = "FIELD_NUMERIC_LABEL_CHANGED"
ONEOF_REMOVED = "ONEOF_FIELD_REMOVED"
MANY_TO_ONEOF = "MULTIPLE_FIELDS_MOVED_TO_ONEOF"
INTO_ONEOF = "FIELD_MOVED_TO_EXISTING_ONEOF"
REQUIRED_ADDED = "REQUIRED_FIELD_ADDED"
REQUIRED_REMOVED = "REQUIRED_FIELD_REMOVED"
MESSAGE_REMOVED = "MESSAGE_REMOVED"
PACKAGE = "PACKAGE_CHANGED"


class Case(NamedTuple):
    original: str
    update: str
    rules: tuple[str, ...]
    why: str
    syntax: str = "proto3"


# Of the row's type, which of the column's types are read: y, or n.
SCALARS = (
    "int32", "int64", "uint32", "uint64", "bool", "sint32", "sint64", "string", "bytes", "fixed32", "sfixed32",
    "fixed64", "sfixed64", "float", "double",
)  # fmt: skip
READABLE = {
    "int32": "yyyyynnnnnnnnnn",
    "int64": "yyyyynnnnnnnnnn",
    "uint32": "yyyyynnnnnnnnnn",
    "uint64": "yyyyynnnnnnnnnn",
    "bool": "yyyyynnnnnnnnnn",
    "sint32": "nnnnnyynnnnnnnn",
    "sint64": "nnnnnyynnnnnnnn",
    "string": "nnnnnnnyynnnnnn",
    "bytes": "nnnnnnnyynnnnnn",
    "fixed32": "nnnnnnnnnyynnnn",
    "sfixed32": "nnnnnnnnnyynnnn",
    "fixed64": "nnnnnnnnnnnyynn",
    "sfixed64": "nnnnnnnnnnnyynn",
    "float": "nnnnnnnnnnnnnyn",
    "double": "nnnnnnnnnnnnnny",
}
REASONS = {"y": "the two types are written alike", "n": "the two types are written differently"}
TYPES = [
    Case(
        f"message A {{ {before} x = 1; }}",
        f"message A {{ {after} x = 1; }}",
        (SCALAR,) * (answer == "n"),
        REASONS[answer],
    )
    for after, row in READABLE.items()
    for before, answer in zip(SCALARS, row, strict=True)
]


def m(body: str, rest: str = "") -> str:
    return f"message A {{ {body} }} {rest}"


B = "message B { int32 y = 1; }"
BX = "message B { string y = 1; }"
E = "enum E { ZERO = 0; ONE = 1; }"

FIELDS = [
    Case(m(""), m(""), (), "two empty messages"),
    Case(m("int32 x = 1;"), m("int32 x = 1;"), (), "the same field"),
    Case(m(""), m("int32 x = 1;"), (), "a new field has its default in earlier data"),
    Case(m("int32 x = 1;"), m(""), (), "a field that is gone is skipped"),
    Case(m("int32 x = 1;"), m("reserved 1;"), (), "even better with its number reserved"),
    Case(m("int32 x = 1;"), m("int32 y = 1;"), (), "names are not in the data"),
    Case(m("int32 x = 1;"), m("int32 x = 2;"), (), "another number is another field"),
    Case(m("int32 x = 1; string y = 2;"), m("string y = 2; int32 x = 1;"), (), "order means nothing"),
    Case(m("int32 x = 1; string y = 2;"), m("string x = 1; int32 y = 2;"), (SCALAR, SCALAR), "two swapped types"),
    Case(m("int32 x = 1;"), m("int64 y = 1;"), (), "a new name and a type written alike"),
    Case(m("int32 x = 1;"), m("string y = 1;"), (SCALAR,), "a new name mends no type"),
    Case(m("int32 x = 1 [deprecated = true];"), m("int32 x = 1;"), (), "options are not in the data"),
    Case(m('int32 x = 1 [json_name = "z"];'), m("int32 x = 1;"), (), "JSON names are not in binary data"),
    Case(m("int32 x = 1; // old\n"), m("int32 x = 1; /* new */"), (), "comments mean nothing"),
    Case(m("option deprecated = true;"), m(""), (), "nor do options of messages"),
    Case(m("int32 x = 1;"), m("int32 x = 1; int32 y = 2; int32 z = 3;"), (), "two new fields"),
    Case(m("int32 x = 536870911;"), m("string x = 536870911;"), (SCALAR,), "the largest number"),
]

LABELS = [
    Case(m("int32 x = 1;"), m("repeated int32 x = 1;"), (), "registries let a field without a label get any"),
    Case(m("repeated int32 x = 1;"), m("int32 x = 1;"), (), "and lose it"),
    Case(m("int32 x = 1;"), m("optional int32 x = 1;"), (), "presence is not in the data"),
    Case(m("optional int32 x = 1;"), m("int32 x = 1;"), (), "and may go"),
    Case(m("optional int32 x = 1;"), m("repeated int32 x = 1;"), (NUMERIC_LABEL,), "numbers are packed if repeated"),
    Case(m("repeated int32 x = 1;"), m("optional int32 x = 1;"), (NUMERIC_LABEL,), "and the other way round"),
    Case(m("optional bool x = 1;"), m("repeated bool x = 1;"), (NUMERIC_LABEL,), "booleans are packed too"),
    Case(m("optional float x = 1;"), m("repeated float x = 1;"), (NUMERIC_LABEL,), "so are floats"),
    Case(m("optional E x = 1;", E), m("repeated E x = 1;", E), (NUMERIC_LABEL,), "so are enums"),
    Case(m("optional sint64 x = 1;"), m("repeated sint64 x = 1;"), (NUMERIC_LABEL,), "so are signed numbers"),
    Case(m("optional fixed64 x = 1;"), m("repeated fixed64 x = 1;"), (NUMERIC_LABEL,), "so are fixed numbers"),
    Case(m("optional string x = 1;"), m("repeated string x = 1;"), (), "the last string of several is read"),
    Case(m("repeated string x = 1;"), m("optional string x = 1;"), (), "one string is a list of one"),
    Case(m("optional bytes x = 1;"), m("repeated bytes x = 1;"), (), "bytes are like strings"),
    Case(m("optional B x = 1;", B), m("repeated B x = 1;", B), (), "messages are never packed"),
    Case(m("repeated B x = 1;", B), m("B x = 1;", B), (), "several messages are merged into one"),
    Case(m("optional int32 x = 1;"), m("repeated string x = 1;"), (SCALAR,), "the type is told, not the label"),
]

REQUIRED = [
    Case(m(""), m("required int32 x = 1;"), (REQUIRED_ADDED,), "earlier data lacks it", "proto2"),
    Case(m("required int32 x = 1;"), m(""), (REQUIRED_REMOVED,), "others need it", "proto2"),
    Case(m(""), m("optional int32 x = 1;"), (), "an optional field may be missing", "proto2"),
    Case(m("optional int32 x = 1;"), m(""), (), "and may go", "proto2"),
    Case(
        m("optional int32 x = 1;"), m("required int32 x = 1;"), (NUMERIC_LABEL,), "earlier data may lack it", "proto2"
    ),
    Case(m("required int32 x = 1;"), m("optional int32 x = 1;"), (NUMERIC_LABEL,), "others need it", "proto2"),
    Case(m("required string x = 1;"), m("optional string x = 1;"), (), "registries let strings", "proto2"),
    Case(m("required int32 x = 1;"), m("required int32 x = 1;"), (), "required before and after", "proto2"),
    Case(m("required int32 x = 1;"), m("required int64 x = 1;"), (), "written alike", "proto2"),
    Case(m("required int32 x = 1;"), m("required int32 y = 1;"), (), "a new name", "proto2"),
    Case(
        m("required int32 x = 1;"),
        m("required int32 x = 2;"),
        (REQUIRED_REMOVED, REQUIRED_ADDED),
        "a new number",
        "proto2",
    ),
    Case(m("optional int32 x = 1 [default = 1];"), m("optional int32 x = 1;"), (), "defaults are not data", "proto2"),
    Case(
        m("optional group G = 1 { optional int32 x = 1; }"),
        m("optional group G = 1 { optional int32 x = 1; }"),
        (),
        "the same group",
        "proto2",
    ),
    Case(m("optional group G = 1 { }"), m(""), (), "a group is gone", "proto2"),
    Case(
        m("optional group G = 1 { optional int32 x = 1; }"),
        m("optional group G = 1 { optional string x = 1; }"),
        (SCALAR, NAMED),
        "a field in a group changed",
        "proto2",
    ),
    Case(
        m("optional group G = 1 { }"),
        m("message G { } optional G g = 1;"),
        (KIND,),
        "a group ends with a tag, a message has a length",
        "proto2",
    ),
    Case(m("extensions 100 to 200;"), m(""), (), "extensions are not compared", "proto2"),
]  # fmt: skip

ENUMS = [
    Case(m("E x = 1;", E), m("E x = 1;", E), (), "the same enum"),
    Case(m("E x = 1;", E), m("int32 x = 1;"), (), "an enum is written as int32"),
    Case(m("int32 x = 1;"), m("E x = 1;", E), (), "and the other way round"),
    Case(m("bool x = 1;"), m("E x = 1;", E), (), "a boolean is 0 or 1"),
    Case(m("E x = 1;", E), m("string x = 1;"), (SCALAR,), "an enum is no string"),
    Case(m("E x = 1;", E), m("sint32 x = 1;"), (SCALAR,), "nor a signed number"),
    Case(m("E x = 1;", E), m("F x = 1;", "enum F { F0 = 0; }"), (), "all enums are written alike"),
    Case(E, "enum E { ZERO = 0; ONE = 1; TWO = 2; }", (), "a new value"),
    Case("enum E { ZERO = 0; ONE = 1; TWO = 2; }", E, (), "a value is gone: its number is kept"),
    Case(E, "enum E { NONE = 0; SOME = 1; }", (), "names of values are not in the data"),
    Case(E, "", (), "an enum is gone"),
    Case("", E, (), "a new enum"),
    Case(E, "enum E { option deprecated = true; ZERO = 0; ONE = 1; }", (), "options are not in the data"),
    Case(m(E), m("enum E { ZERO = 0; }"), (), "values of a nested enum"),
    Case(m(E), m(""), (), "a nested enum is gone"),
    Case(m("E x = 1;", E), m("B x = 1;", B), (KIND,), "an enum is no message"),
    Case(m("E x = 1; " + E), m("E x = 1;", E), (), "an enum moves out of its message"),
]

MESSAGES = [
    Case("message A { }", "message A { } message B { }", (), "a new message"),
    Case("message A { } message B { }", "message A { }", (MESSAGE_REMOVED,), "a message is gone"),
    Case("message A { } message B { }", "message B { } message A { }", (), "indexes are those of the schema's own id"),
    Case("message A { }", "message B { }", (MESSAGE_REMOVED,), "a renamed message is one that is gone"),
    Case("message A { message B { } }", "message A { }", (MESSAGE_REMOVED,), "a nested message is gone"),
    Case("message A { }", "message A { message B { } }", (), "a new nested message"),
    Case("message A { message B { } }", "message A { } message B { }", (MESSAGE_REMOVED,), "a message moves out"),
    Case("message A { message B { message C { } } }", "message A { message B { } }", (MESSAGE_REMOVED,), "two deep"),
    Case(
        "message A { message B { int32 x = 1; } }",
        "message A { message B { string x = 1; } }",
        (SCALAR,),
        "a field of a nested message",
    ),
    Case(m("B x = 1;", B), m("B x = 1;", B), (), "the same message in a field"),
    Case(m("B x = 1;", B), m("B x = 1;", BX), (SCALAR, NAMED, SCALAR), "told in the field and in the message"),
    Case(m("B x = 1;", B), m("C x = 1;", f"{B} message C {{ int32 y = 1; }}"), (NAMED,), "a message of another name"),
    Case(m("B x = 1;", B), m("int32 x = 1;", B), (KIND,), "a message is no number"),
    Case(m("int32 x = 1;", B), m("B x = 1;", B), (KIND,), "a number is no message"),
    Case(m("B x = 1;", B), m("bytes x = 1;", B), (KIND,), "though bytes are written as messages are"),
    Case(m("B x = 1;", B), m(".B x = 1;", B), (), "two ways to write a name"),
    Case(m("A x = 1;"), m("A x = 1;"), (), "a message contains itself"),
    Case(m("A x = 1; int32 y = 2;"), m("A x = 1; int64 y = 2;"), (), "and has a field written alike"),
    Case(m("A x = 1; int32 y = 2;"), m("A x = 1; string y = 2;"), (SCALAR,), "and has one written differently"),
    Case(
        "message A { B b = 1; } message B { A a = 1; }",
        "message A { B b = 1; } message B { A a = 1; }",
        (),
        "two contain each other",
    ),
    Case(
        "message A { B b = 1; } message B { A a = 1; int32 x = 2; }",
        "message A { B b = 1; } message B { A a = 1; string x = 2; }",
        (SCALAR, NAMED, SCALAR),
        "two contain each other, and one changed",
    ),
    Case(
        m("message I { } I x = 1;"),
        m("I x = 1; message J { } message I { }"),
        (),
        "a nested message has another position",
    ),
    Case(m("B.C x = 1;", "message B { message C { } }"), m("B.C x = 1;", "message B { message C { } }"), (), "by path"),
    Case(
        m("B.C x = 1;", "message B { message C { } }"),
        m("D.C x = 1;", "message B { message C { } } message D { message C { } }"),
        (NAMED,),
        "nested in another",
    ),
    Case("service S { }", "", (), "services are not compared"),
    Case(
        m("google.protobuf.Timestamp t = 1;"),
        m("google.protobuf.Timestamp t = 1;"),
        (),
        "a well-known type is itself",
    ),
    Case(
        m("google.protobuf.Timestamp t = 1;"),
        m("google.protobuf.Duration t = 1;"),
        (NAMED,),
        "and no other, though its fields are the same",
    ),
    Case(m("google.protobuf.Timestamp t = 1;"), m("int64 t = 1;"), (KIND,), "nor a number"),
]  # fmt: skip

MAPS = [
    Case(m("map<string, int32> x = 1;"), m("map<string, int32> x = 1;"), (), "the same map"),
    Case(m("map<string, int32> x = 1;"), m("map<string, int64> x = 1;"), (), "values written alike"),
    Case(m("map<string, int32> x = 1;"), m("map<string, string> x = 1;"), (SCALAR,), "values written differently"),
    Case(m("map<int32, int32> x = 1;"), m("map<int64, int32> x = 1;"), (), "keys written alike"),
    Case(m("map<int32, int32> x = 1;"), m("map<string, int32> x = 1;"), (SCALAR,), "keys written differently"),
    Case(m("map<int32, int32> x = 1;"), m("map<string, string> x = 1;"), (SCALAR,), "both, told once for the field"),
    Case(m("map<string, int32> x = 1;"), m("int32 x = 1;"), (KIND,), "a map is no number"),
    Case(m("int32 x = 1;"), m("map<string, int32> x = 1;"), (KIND,), "a number is no map"),
    Case(m("map<string, B> x = 1;", B), m("map<string, B> x = 1;", B), (), "values are messages"),
    Case(
        m("map<string, B> x = 1;", B), m("map<string, B> x = 1;", BX), (SCALAR, NAMED, SCALAR), "that changed"
    ),
    Case(m("map<string, B> x = 1;", B), m("map<string, int32> x = 1;", B), (KIND,), "values are messages no more"),
    Case(m("map<string, E> x = 1;", E), m("map<string, int32> x = 1;", E), (), "values are enums"),
    Case(
        m("map<string, B> x = 1;", B),
        m("map<string, C> x = 1;", B + "message C { int32 y = 1; }"),
        (NAMED,),
        "values of another name",
    ),
    Case(m("map<string, int32> x = 1;"), m("repeated B x = 1;", B), (KIND,), "registries tell maps from lists"),
    Case(m("map<string, int32> x = 1;"), m(""), (), "a map is gone"),
    Case(m(""), m("map<string, int32> x = 1;"), (), "a new map"),
]  # fmt: skip

XY = "int32 x = 1; int32 y = 2;"
ONEOFS = [
    Case(m(f"oneof o {{ {XY} }}"), m(f"oneof o {{ {XY} }}"), (), "the same oneof"),
    Case(m(f"oneof o {{ {XY} }}"), m(f"oneof p {{ {XY} }}"), (), "its name is not in the data"),
    Case(m("oneof o { int32 x = 1; }"), m(f"oneof o {{ {XY} }}"), (), "a new field in it"),
    Case(m(f"oneof o {{ {XY} }}"), m("oneof o { int32 x = 1; }"), (ONEOF_REMOVED,), "a field of it is gone"),
    Case(m(f"oneof o {{ {XY} }}"), m(""), (), "all of it is gone"),
    Case(m(""), m(f"oneof o {{ {XY} }}"), (), "all of it is new"),
    Case(m("int32 x = 1;"), m("oneof o { int32 x = 1; }"), (), "one field moves into a new oneof"),
    Case(m("int32 x = 1;"), m(f"oneof o {{ {XY} }}"), (), "with a new one"),
    Case(m(XY), m(f"oneof o {{ {XY} }}"), (MANY_TO_ONEOF,), "both could be there"),
    Case(
        m("int32 x = 1; oneof o { int32 y = 2; }"), m(f"oneof o {{ {XY} }}"), (INTO_ONEOF,), "x could stand beside y"
    ),
    Case(
        m(XY + "oneof o { int32 z = 3; }"), m(f"oneof o {{ {XY} int32 z = 3; }}"), (MANY_TO_ONEOF,), "x, y and z could"
    ),
    Case(m("oneof o { int32 x = 1; }"), m("int32 x = 1;"), (), "a field leaves its oneof"),
    Case(m(f"oneof o {{ {XY} }}"), m(XY), (), "both leave"),
    Case(m(f"oneof o {{ {XY} }}"), m("int32 x = 1; oneof o { int32 y = 2; }"), (), "one of two leaves"),
    Case(m(f"oneof o {{ {XY} }}"), m("int32 x = 1;"), (ONEOF_REMOVED,), "one leaves, the other is gone"),
    Case(
        m("oneof o { int32 x = 1; } oneof p { int32 y = 2; }"),
        m(f"oneof o {{ {XY} }}"),
        (INTO_ONEOF,),
        "two oneofs become one",
    ),
    Case(
        m(f"oneof o {{ {XY} }}"), m("oneof o { int32 x = 1; } oneof p { int32 y = 2; }"), (), "one oneof becomes two"
    ),
    Case(m("oneof o { int32 x = 1; }"), m("oneof o { string x = 1; }"), (SCALAR,), "a type in it changed"),
    Case(m("oneof o { int32 x = 1; }"), m("string x = 1;"), (SCALAR,), "a field leaves and changes"),
    Case(m("int32 x = 1;"), m("oneof o { string x = 1; }"), (SCALAR,), "a field moves in and changes"),
    Case(m("oneof o { int32 x = 1; }"), m("oneof p { string x = 1; }"), (SCALAR,), "a new name hides no change"),
    Case(m("oneof o { int32 x = 1; }"), m("oneof o { int64 x = 1; }"), (), "written alike"),
    Case(m("oneof o { int32 x = 1; }"), m("oneof o { int32 z = 1; }"), (), "a new name"),
    Case(m("oneof o { B x = 1; }", B), m("oneof o { B x = 1; }", BX), (SCALAR, NAMED, SCALAR), "a message in it"),
    Case(m("oneof o { B x = 1; }", B), m("oneof o { int32 x = 1; }", B), (KIND,), "is no number"),
    Case(
        m("message C { oneof o { int32 x = 1; int32 y = 2; } }"),
        m("message C { oneof o { int32 x = 1; } }"),
        (ONEOF_REMOVED,),
        "in a nested message",
    ),
    Case(m("optional int32 x = 1;"), m("oneof o { int32 x = 1; }"), (), "an optional field moves in alone"),
    Case(
        m("oneof o { int32 x = 1; string s = 3; }"),
        m("oneof o { int32 x = 1; string s = 3; } int32 z = 4;"),
        (),
        "a new field beside it",
    ),
]  # fmt: skip

PACKAGES = [
    Case("package a; " + m(""), "package a; " + m(""), (), "the same package"),
    Case("package a; " + m(""), "package b; " + m(""), (PACKAGE,), "another package"),
    Case(m(""), "package a; " + m(""), (PACKAGE,), "a new package"),
    Case("package a; " + m(""), m(""), (PACKAGE,), "no package any more"),
    Case("package a.b; " + m("B x = 1;", B), "package a.b; " + m("a.b.B x = 1;", B), (), "a name with its package"),
    Case("package a.b; " + m("B x = 1;", B), "package a.b; " + m(".a.b.B x = 1;", B), (), "or from the root"),
    Case("package a; " + m("B x = 1;", B), "package b; " + m("B x = 1;", B), (PACKAGE,), "local names are compared"),
    Case('option java_package = "a"; ' + m(""), 'option java_package = "b"; ' + m(""), (), "options of files"),
]

CASES = [*TYPES, *FIELDS, *LABELS, *REQUIRED, *ENUMS, *MESSAGES, *MAPS, *ONEOFS, *PACKAGES]
