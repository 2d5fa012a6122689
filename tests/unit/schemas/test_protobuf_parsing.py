"""Parsing of .proto files: canonical text, normal form, references, descriptors, and what is refused with its line."""

import base64
from importlib import import_module

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from moldau.schemas import InvalidSchema, ParsedSchema, SchemaType, parse
from moldau.schemas.protobuf.known import KNOWN_FILES, known_file
from moldau.schemas.protobuf.linking import ROOT
from moldau.schemas.protobuf.lowering import lower_file
from moldau.schemas.protobuf.printing import print_file
from moldau.schemas.protobuf.schema import ProtobufSchema
from moldau.schemas.schema import MAX_NESTING, MAX_REFERENCES, MAX_SCHEMA_BYTES

P3 = 'syntax = "proto3"; '
P2 = 'syntax = "proto2"; '

WRITTEN = """
syntax = "proto3";   // the version
package shop . orders;
import public "b.proto";
import "a.proto";
option java_package = 'com.example' ".orders";
/* an order */
message Order {
  Item item = 2; ;
  string id = 1 [json_name = "identifier", deprecated = true, (note) = "a\\tb"];
  reserved 7 to 9, 5; reserved "old";
  oneof payment { Card card = 4; int64 cash = 3; }
  map < string , Item > by_name = 6;
  optional bool paid = 10;
  message Item { int32 n = 1; }
  enum State { STATE_NEW = 0; STATE_DONE = 1; }
}
message Card {}
service Orders { rpc Put (stream Order) returns (Card) { option deprecated = true; } rpc Get (Card) returns (Order); }
"""
CANONICAL = """syntax = "proto3";
package shop.orders;

import "a.proto";
import public "b.proto";

option java_package = "com.example.orders";

message Order {
  reserved 7 to 9, 5;
  reserved "old";

  Item item = 2;
  string id = 1 [
    deprecated = true,
    (note) = "a\\tb",
    json_name = "identifier"
  ];
  map<string, Item> by_name = 6;
  optional bool paid = 10;

  oneof payment {
    Card card = 4;
    int64 cash = 3;
  }

  message Item {
    int32 n = 1;
  }
  enum State {
    STATE_NEW = 0;
    STATE_DONE = 1;
  }
}
message Card {}

service Orders {
  rpc Put (stream Order) returns (Card) {
    option deprecated = true;
  };
  rpc Get (Card) returns (Order);
}
"""
NORMAL = """syntax = "proto3";
package shop.orders;

import "a.proto";
import public "b.proto";

option java_package = "com.example.orders";

message Order {
  reserved 5;
  reserved 7 to 9;
  reserved "old";

  string id = 1 [
    (note) = "a\\tb",
    deprecated = true,
    json_name = "identifier"
  ];
  .shop.orders.Order.Item item = 2;
  map<string, .shop.orders.Order.Item> by_name = 6;
  optional bool paid = 10;

  oneof payment {
    int64 cash = 3;
    .shop.orders.Card card = 4;
  }

  message Item {
    int32 n = 1;
  }
  enum State {
    STATE_NEW = 0;
    STATE_DONE = 1;
  }
}
message Card {}

service Orders {
  rpc Put (stream .shop.orders.Order) returns (.shop.orders.Card) {
    option deprecated = true;
  };
  rpc Get (.shop.orders.Card) returns (.shop.orders.Order);
}
"""
FILES = {"a.proto": P3 + "message A {}", "b.proto": P3 + "message B {}"}


def proto(text: str, **references: str) -> ParsedSchema:
    return parse(SchemaType.PROTOBUF, text, references)


def test_canonical_text_and_normal_form() -> None:
    schema = parse(SchemaType.PROTOBUF, WRITTEN, FILES)
    assert schema.text == CANONICAL
    assert schema.normalized == NORMAL
    assert schema.full_name == "shop.orders.Order"
    for text in (schema.text, schema.normalized):
        again = parse(SchemaType.PROTOBUF, text, FILES)
        assert again.text == text
        assert again.normalized == schema.normalized


def test_the_order_of_messages_is_kept() -> None:
    schema = proto(P3 + "message B { message D {} message C {} } enum E { Z = 0; } message A {}")
    assert isinstance(schema, ProtobufSchema)
    names = [schema.message_at(indexes) for indexes in ([0], [0, 0], [0, 1], [1])]
    assert names == ["B", "B.D", "B.C", "A"]
    again = parse(SchemaType.PROTOBUF, schema.normalized)
    assert isinstance(again, ProtobufSchema)
    assert [again.message_at(indexes) for indexes in ([0], [0, 0], [0, 1], [1])] == names
    for indexes in ([2], [0, 2], [1, 0], [-1]):
        with pytest.raises(InvalidSchema, match="no message at the indexes"):
            schema.message_at(indexes)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("message A { int32 x = 1; int32 y = 2; }", "message A { int32 y = 2; int32 x = 1; }"),
        ("message A { B b = 1; message B {} }", "message A { A.B b = 1; message B {} }"),
        ("package p; message A { A a = 1; }", "package p; message A { .p.A a = 1; }"),
        ("message A { reserved 1, 2 to 3; }", "message A { reserved 2 to 3; reserved 1; }"),
        ("enum E { A = 0; B = 1; }", "enum E { B = 1; A = 0; }"),
        ("message A { int32 x = 0x10; }", "message A { int32 x = 020; }"),
        ("message A { A x = 1 [weak = true, lazy = true]; }", "message A { A x = 1 [lazy = true, weak = true]; }"),
        ('import "google/protobuf/any.proto"; import "google/protobuf/api.proto"; message A {}',
         'import "google/protobuf/api.proto"; import "google/protobuf/any.proto"; message A {}'),
        ("message A { option (a) = { x: 1, y: 2 }; }", "message A { option (a) = { y: 2 x: 1 }; }"),
        ("message A { oneof o { int32 x = 1; int32 y = 2; } }", "message A { oneof o { int32 y = 2; int32 x = 1; } }"),
    ],
)  # fmt: skip
def test_texts_with_one_normal_form(one: str, other: str) -> None:
    head = P2 if "enum E" in one else P3
    assert proto(head + one).normalized == proto(head + other).normalized


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (P3 + "message A { int32 x = 1 }", r"line 1, column 44: expected ';', found '}'"),
        (P3 + "\nmessage A {\n  int32 = 1;\n}", r"line 3, column 9: expected a name, found '='"),
        (P3 + "message A {", "a { is not closed"),
        (P3 + "message A { int32 x = 0; }", "a field number is 1 to 536870911"),
        (P3 + "message A { int32 x = 536870912; }", "a field number"),
        (P3 + "message A { int32 x = 19000; }", "a field number"),
        (P3 + "message A { int32 x = -1; }", "a field number"),
        (P3 + "message A { int32 x = 99999999999999999999999999999999999; }", "too large"),
        (P3 + "message A { int32 x = 08; }", "no octal number"),
        (P3 + "message A { int32 x = 1.5; }", "expected an integer"),
        (P3 + "message A {\n int32 x = 1;\n int32 y = 1; }", "line 3: A gives the number 1 to x and y"),
        (P3 + "message A { int32 x = 1; int64 x = 2; }", "the name x twice"),
        (P3 + "message A { int32 x = 1; message x {} }", "the name x twice"),
        (P3 + "message A { } message A { }", "A is defined twice"),
        (P3 + "message A { reserved 1; int32 x = 1; }", "x = 1 of A is reserved"),
        (P3 + 'message A { reserved "x"; int32 x = 1; }', "x = 1 of A is reserved"),
        (P3 + "message A { reserved 3 to 2; }", "is empty or too large"),
        (P3 + "message A { B b = 1; }", "line 1: the type B is not defined"),
        (P3 + "message A { required int32 x = 1; }", "proto3 has no required fields"),
        (P3 + "message A { int32 x = 1 [default = 1]; }", "proto3 has no explicit defaults"),
        (P3 + "message A { extensions 1 to 2; }", "proto3 does not know"),
        (P3 + "message A { oneof o { } }", "the oneof o of A has no field"),
        (P3 + "message A { oneof o { repeated int32 x = 1; } }", "has no label repeated"),
        (P3 + "message A { oneof o { map<int32, int32> x = 1; } }", "cannot be in a oneof"),
        (P3 + "message A { map<float, int32> x = 1; }", "float cannot be the key of a map"),
        (P3 + "message A { repeated map<int32, int32> x = 1; }", "a map has no label repeated"),
        (P3 + "enum E { A = 1; }", "must begin with the number 0"),
        (P3 + "enum E { }", "has no values"),
        (P3 + "enum E { A = 0; B = 0; }", "gives 0 to A and B"),
        (P3 + "enum E { A = 0; A = 1; }", "has a name twice"),
        (P3 + "enum E { A = 0; reserved 1; B = 1; }", "B = 1 is reserved"),
        (P3 + "enum E { A = 0; B = 2147483648; }", "no int32"),
        (P3 + "service S { rpc R (E) returns (E); } enum E { Z = 0; }", "E is no message"),
        (P3 + "extend A { int32 x = 100; } message A {}", "has no extension number 100"),
        (P2 + "message A { int32 x = 1; }", "needs optional, required or repeated"),
        ('syntax = "proto4";', "neither proto2 nor proto3"),
        ('edition = "2023"; message A {}', "editions are not supported"),
        (P3 + "package a; package b;", "one package"),
        (P3 + 'import "x.proto";', "the import x.proto is not among the references"),
        (P3 + "nonsense", "unexpected 'nonsense'"),
        (P3 + "message A { int32 x = 1; } §", "line 1, column 47: unexpected '§'"),
        (P3 + 'message A { option x = "unclosed; }', "unexpected '\"'"),
        (P3 + "message A { option x = { a }; }", "expected ':' after a"),
        (P3 + 'message A { option deprecated = "x"; }', "x is no value of the option deprecated"),
        ("AAAA", "neither a .proto file nor a FileDescriptorProto in base64"),
        (P3 + "message A {" * (MAX_NESTING + 1), f"nested deeper than {MAX_NESTING}"),
        (P3 + "message A { option (x) = " + "[" * (MAX_NESTING + 1), f"nested deeper than {MAX_NESTING}"),
        (P3 + "//" + "x" * MAX_SCHEMA_BYTES, f"larger than {MAX_SCHEMA_BYTES} bytes"),
        (P3 + "//" + "ž" * (MAX_SCHEMA_BYTES // 2), f"larger than {MAX_SCHEMA_BYTES} bytes"),
    ],
)
def test_what_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidSchema, match=fault):
        proto(text)


def test_references_by_import() -> None:
    item = P3 + "package shop; message Item { int32 n = 1; }"
    order = P3 + 'package shop; import "item.proto"; message Order { Item item = 1; }'
    text = P3 + 'import "order.proto"; message All { repeated shop.Order orders = 1; }'
    schema = parse(SchemaType.PROTOBUF, text, {"item.proto": item, "order.proto": order})
    assert schema.references == {"item.proto": item, "order.proto": order}
    with pytest.raises(InvalidSchema, match=r"the type shop\.Item is defined in item\.proto, which is not imported"):
        parse(SchemaType.PROTOBUF, text.replace("shop.Order", "shop.Item"), dict(schema.references))
    public = order.replace("import", "import public")
    parse(SchemaType.PROTOBUF, text.replace("shop.Order", "shop.Item"), {"item.proto": item, "order.proto": public})


def test_faults_of_references_name_them() -> None:
    text = P3 + 'import "a.proto"; message B {}'
    with pytest.raises(InvalidSchema, match=r"import a.proto: line 1, column 29: expected '\{'"):
        parse(SchemaType.PROTOBUF, text, {"a.proto": P3 + "message A"})
    with pytest.raises(InvalidSchema, match=r"import a.proto: line 1: the type X is not defined"):
        parse(SchemaType.PROTOBUF, text, {"a.proto": P3 + "message A { X x = 1; }"})
    with pytest.raises(InvalidSchema, match=r"a.proto imports itself by way of a.proto and b.proto"):
        parse(SchemaType.PROTOBUF, text, {"a.proto": P3 + 'import "b.proto";', "b.proto": P3 + 'import "a.proto";'})
    with pytest.raises(InvalidSchema, match=f"at most {MAX_REFERENCES}"):
        parse(SchemaType.PROTOBUF, text, {f"{index}.proto": "" for index in range(MAX_REFERENCES + 1)})


def test_a_long_chain_of_imports_is_refused() -> None:
    chain = {f"{index}.proto": P3 + f'import "{index + 1}.proto";' for index in range(200)}
    with pytest.raises(InvalidSchema, match=f"imports are nested deeper than {MAX_NESTING}"):
        parse(SchemaType.PROTOBUF, P3 + 'import "0.proto";', {**chain, "200.proto": P3})


@pytest.mark.parametrize("name", sorted(KNOWN_FILES))
def test_known_files_need_no_reference(name: str) -> None:
    assert proto(P3 + f'import "{name}"; message A {{}}').full_name == "A"


@pytest.mark.parametrize("name", sorted(name for name in KNOWN_FILES if name.startswith("google/protobuf")))
def test_googles_descriptors_survive_text(name: str) -> None:
    """Google's compiler made them: printed, parsed and lowered they are what they were."""
    original = FileDescriptorProto()
    import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(original)
    schema = proto(print_file(known_file(name)))
    assert isinstance(schema, ProtobufSchema)
    ours = lower_file(ROOT, schema.linked)
    ours.name = name
    assert without_messages_in_options(ours) == without_messages_in_options(original)


def without_messages_in_options(file: FileDescriptorProto) -> str:
    """What we lower: options whose values are messages or lists are left out."""
    for message in [*file.message_type, *(inner for outer in file.message_type for inner in outer.nested_type)]:
        for field in message.field:
            for name in ("targets", "edition_defaults", "feature_support"):
                field.options.ClearField(name)
        for extensions in message.extension_range:
            for name in ("declaration",):
                extensions.options.ClearField(name)
    return str(file)


def test_a_descriptor_in_base64_is_a_schema() -> None:
    schema = parse(SchemaType.PROTOBUF, WRITTEN, FILES)
    serialized = schema.formatted("serialized")
    descriptor = FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert [message.name for message in descriptor.message_type] == ["Order", "Card"]
    again = parse(SchemaType.PROTOBUF, serialized, FILES)
    assert again.full_name == schema.full_name
    assert again.formatted("serialized") == serialized
    assert again.normalized == schema.normalized.replace('\n    (note) = "a\\tb",', "")  # custom options get lost


def test_styles() -> None:
    schema = proto(
        P3 + 'message A { option (x) = 1; option (confluent.message_meta).doc = "d"; option deprecated = true; }'
    )
    assert "(x)" in schema.formatted("")
    assert schema.formatted("unknown") == schema.text
    assert "(x)" not in schema.formatted("ignore_extensions")
    assert "(confluent.message_meta).doc" in schema.formatted("ignore_extensions")
