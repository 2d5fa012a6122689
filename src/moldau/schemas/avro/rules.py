"""The rules of Avro's schema resolution, by the names that Avro's Java library gives to their breach.

It has no name for an ambiguous field, at which it throws.
"""

from moldau.schemas.rules import table

RULES = table(
    breaking={
        "NAME_MISMATCH": "{path}: the reader's {kind} {reader} has another name than the writer's, {writer}, "
        "and no alias for it",
        "FIXED_SIZE_MISMATCH": "{path}: the reader's fixed {name} has {reader} bytes, the writer's {writer}",
        "MISSING_ENUM_SYMBOLS": "{path}: the reader's enum {name} lacks the writer's symbols {symbols}, "
        "and has no default",
        "READER_FIELD_MISSING_DEFAULT_VALUE": "{path}: the reader's field {name} is not among the writer's fields, "
        "and has no default",
        "READER_FIELD_AMBIGUOUS": "{path}: the reader's field {name} is by its name and aliases the writer's {names}",
        "TYPE_MISMATCH": "{path}: the reader expects {reader}, and the writer writes {writer}",
        "MISSING_UNION_BRANCH": "{path}: the reader's union has no branch for the writer's {writer}",
    },
    harmless={},
)
