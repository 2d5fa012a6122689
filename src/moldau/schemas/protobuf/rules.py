"""The differences between two .proto files, by the names that Confluent's registry gives them, and which break readers.

Binary Protobuf knows fields by number: names may change, and a field that is gone is skipped. Types of one group of
scalars are written alike (https://protobuf.dev/programming-guides/proto3/#updating).
"""

from moldau.schemas.rules import table

RULES = table(
    breaking={
        "PACKAGE_CHANGED": "{path}: the package changed from {original} to {update}",
        "MESSAGE_REMOVED": "{path}: the message is gone",
        "FIELD_KIND_CHANGED": "{path}: the field {name} changed from {original} to {update}",
        "FIELD_SCALAR_KIND_CHANGED": "{path}: the field {name} changed from {original} to {update}, "
        "which is written differently",
        "FIELD_NAMED_TYPE_CHANGED": "{path}: the field {name} changed from the message {original} to {update}, "
        "which cannot be read as it",
        "FIELD_NUMERIC_LABEL_CHANGED": "{path}: the number {name} changed from {original} to {update}",
        "REQUIRED_FIELD_ADDED": "{path}: the required field {name} is new, so earlier data lacks it",
        "REQUIRED_FIELD_REMOVED": "{path}: the required field {name} is gone",
        "ONEOF_FIELD_REMOVED": "{path}: the field {name} is gone from its oneof",
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "{path}: fields that could stand together are now in one oneof",
        "FIELD_MOVED_TO_EXISTING_ONEOF": "{path}: a field moved into a oneof with fields that could stand beside it",
    },
    harmless={
        "MESSAGE_ADDED": "{path}: the message is new",
        "MESSAGE_MOVED": "{path}: the message has another position",
        "ENUM_ADDED": "{path}: the enum is new",
        "ENUM_REMOVED": "{path}: the enum is gone",
        "ENUM_CONST_ADDED": "{path}: the value {name} is new",
        "ENUM_CONST_CHANGED": "{path}: the value {original} is now called {update}",
        "ENUM_CONST_REMOVED": "{path}: the value {name} is gone",
        "FIELD_ADDED": "{path}: the field {name} is new",
        "FIELD_REMOVED": "{path}: the field {name} is gone",
        "FIELD_NAME_CHANGED": "{path}: the field {original} is now called {update}",
        "FIELD_STRING_OR_BYTES_LABEL_CHANGED": "{path}: the field {name} changed from {original} to {update}",
        "ONEOF_ADDED": "{path}: the oneof is new",
        "ONEOF_REMOVED": "{path}: the oneof is gone",
        "ONEOF_FIELD_ADDED": "{path}: the field {name} is new in its oneof",
        "ONEOF_FIELD_MOVED_TO_TOP_LEVEL": "{path}: the field {name} left its oneof",
    },
)
