"""Files that .proto texts import without a reference, because registries know them: Google's, and Confluent's.

Google's well-known types come with google.protobuf; the rest are the types of Confluent's serializers and of Connect.
"""

from functools import cache
from importlib import import_module

from moldau.schemas.protobuf.elements import FileElement
from moldau.schemas.protobuf.parsing import parse_file

_WELL_KNOWN = ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp")
_MODULES = {f"google/protobuf/{name}.proto": f"{name}_pb2" for name in (*_WELL_KNOWN, "type", "wrappers")}

_META_NUMBER = 1088
_META_OPTIONS = {
    "FileOptions": "file_meta",
    "MessageOptions": "message_meta",
    "FieldOptions": "field_meta",
    "EnumOptions": "enum_meta",
    "EnumValueOptions": "enum_value_meta",
}
_TEXTS = {
    "confluent/meta.proto": 'package confluent; import "google/protobuf/descriptor.proto"; '
    "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; "
    "repeated Rule rules = 4; } "
    "message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; } "
    + "".join(
        f"extend google.protobuf.{options} {{ Meta {name} = {_META_NUMBER}; }} "
        for options, name in _META_OPTIONS.items()
    ),
    "confluent/type/decimal.proto": "package confluent.type; "
    "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "google/type/date.proto": "package google.type; message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/timeofday.proto": "package google.type; "
    "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
}

KNOWN_FILES = frozenset((*_MODULES, *_TEXTS))


@cache
def known_file(name: str) -> FileElement:
    """The elements of one of the known files."""
    if name in _TEXTS:
        return parse_file(f'syntax = "proto3"; {_TEXTS[name]}')
    from moldau.schemas.protobuf.lifting import lift_file

    serialized: bytes = import_module(f"google.protobuf.{_MODULES[name]}").DESCRIPTOR.serialized_pb
    return lift_file(serialized)
