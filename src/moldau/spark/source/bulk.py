"""BulkParser: Arrow's JSON parser over many documents at once, and which of them it cannot vouch for.

Arrow's parser is as strict as `documents` for the types of `columns`; where it is not, or cannot say, the document is
doubtful and `documents` decides. A marker document with a random name before each value shows which rows came from
which value, because the parser reads a stream of documents and ignores where a record ends. (It also keeps `null` from
being first, which crashes pyarrow 26.)
"""

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from moldau.spark.source.columns import Uncertain, convert, parser_schema

MAX_BRACKETS: Final = 400  # more may exceed the nesting limit of Python's parser, which Arrow's does not have
OBJECT: Final = r"^[ \t\r\n]*\{(?s:.*)\}[ \t\r\n]*$"  # Arrow's parser accepts null as an object
NOT_JSON: Final = r"[\[:,]\s*-?(?:NaN|Inf)"  # Arrow's parser accepts these as numbers
STOPPED_AT: Final = re.compile(r" in row (\d+)$")
DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}  # of the largest integer, by bits


class Parsed(NamedTuple):
    """Rows of the documents that match, and the positions of the others, in ascending order."""

    rows: Any
    doubtful: Sequence[int]


class Stopped(Exception):
    """The parser read nothing. `at`: the document at which it stopped. `doubtful`: documents that may be the reason."""

    def __init__(self, at: int | None = None, doubtful: Sequence[int] = ()) -> None:
        super().__init__(at, doubtful)
        self.at = at
        self.doubtful = doubtful


def doubtful_documents(values: Any) -> Any:
    """Flags of the values, which are not null, that the parser must not be given."""
    flags = pc.or_(pc.invert(pc.match_substring_regex(values, OBJECT)), pc.match_substring_regex(values, NOT_JSON))
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    if longest > 2 * MAX_BRACKETS:
        brackets = pc.add(pc.count_substring(values, "["), pc.count_substring(values, "{"))
        flags = pc.or_(flags, pc.greater(brackets, MAX_BRACKETS))
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        flags = pc.or_(flags, pa.array([not _is_utf8(value) for value in values.to_pylist()]))
    return flags


def bulk_parser(schema: pa.Schema) -> "BulkParser | None":
    """None if Arrow's parser cannot read one of the types."""
    plain = parser_schema(schema)
    return None if plain is None else BulkParser(schema, plain)


class BulkParser:
    """Parses values that are not `doubtful_documents`."""

    def __init__(self, schema: pa.Schema, plain: pa.Schema) -> None:
        self._schema = schema
        self._plain = plain
        self._not_whole = _not_whole(schema)

    def parse(self, values: Any) -> Parsed:
        """Raises Stopped."""
        mark = secrets.token_hex(12)
        try:
            table = self._read(values, mark)
        except pa.ArrowInvalid as wrong:
            raise self._stopped(values, str(wrong)) from None
        found = _by_document(table, table.column(mark).combine_chunks().is_valid(), len(values))
        return self._converted(found)

    def _read(self, values: Any, mark: str) -> Any:
        marker = pa.scalar(f'\n{{"{mark}":true}}\n'.encode())
        marked = pc.binary_join_element_wise(marker, values, b"")
        text = pc.binary_join(pa.ListArray.from_arrays([0, len(marked)], marked), b"")[0].as_buffer()
        return arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=self._plain.append(pa.field(mark, pa.bool_())),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )

    def _stopped(self, values: Any, reason: str) -> Stopped:
        row = STOPPED_AT.search(reason)
        if row is not None:
            return Stopped(at=min(int(row[1]) // 2, len(values) - 1))  # each document follows its marker
        if self._not_whole is None:
            return Stopped()
        flags = pc.match_substring_regex(values, self._not_whole)
        return Stopped(doubtful=_positions(flags))

    def _converted(self, found: Parsed) -> Parsed:
        """Convert the columns; documents with a value that is not clearly valid become doubtful."""
        table, doubtful = found.rows, set(found.doubtful)
        left: Sequence[int] = range(len(table))
        if doubtful:
            left = [row for row in range(len(table) + len(doubtful)) if row not in doubtful]
        while True:
            try:
                columns = [convert(table.column(field.name).combine_chunks(), field) for field in self._schema]
            except Uncertain as uncertain:
                if uncertain.rows is None:
                    raise Stopped from None
                bad = set(uncertain.rows)
                doubtful.update(left[row] for row in bad)
                keep = [row for row in range(len(table)) if row not in bad]
                left = [left[row] for row in keep]
                table = table.take(pa.array(keep, pa.int64()))
            else:
                return Parsed(pa.record_batch(columns, schema=self._schema), sorted(doubtful))


def _by_document(table: Any, marks: Any, count: int) -> Parsed:
    """The rows without markers. A value that was no document, or several, is doubtful, and its rows are left out."""
    if marks.equals(pa.array([True, False] * count)):
        return Parsed(table.filter(pc.invert(marks)), ())
    flags = marks.to_pylist()
    if sum(flags) != count:
        raise Stopped  # a value took a marker as a part of itself
    numbers: list[list[int]] = []
    for row, is_mark in enumerate(flags):
        if is_mark:
            numbers.append([])
        else:
            numbers[-1].append(row)
    doubtful = [number for number, rows in enumerate(numbers) if len(rows) != 1]
    kept = pa.array([rows[0] for rows in numbers if len(rows) == 1], pa.int64())
    return Parsed(table.take(kept), doubtful)


def _not_whole(schema: pa.Schema) -> str | None:
    """Pattern of documents in which an integer column may have a number that its type cannot hold.

    The parser does not say in which document it found one. The pattern finds most, not all.
    """
    by_bits: dict[int, set[str]] = {}
    for field in _integers(list(schema)):
        by_bits.setdefault(field.type.bit_width, set()).add(re.escape(json.dumps(field.name, ensure_ascii=False)))
    patterns = [
        rf"(?:{'|'.join(sorted(names))})\s*:\s*-?(?:\d+[.eE]|\d{{{DIGITS[bits]},}})" for bits, names in by_bits.items()
    ]
    return "|".join(patterns) or None


def _integers(fields: list[pa.Field]) -> Iterator[pa.Field]:
    for field in fields:
        kind = field.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            yield from _integers([kind.field(index) for index in range(kind.num_fields)])
        elif pa.types.is_integer(kind):
            yield field.with_type(kind)


def _positions(flags: Any) -> list[int]:
    found: list[int] = pc.indices_nonzero(flags).to_pylist()
    return found


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
