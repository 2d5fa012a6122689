"""Records as lines of text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.tools.common.formats import (
    BadRecordError,
    Draft,
    Format,
    read_line,
    read_size,
    show_size,
    write_bytes,
    write_json_bytes,
    write_json_headers,
)

maybe_bytes = st.none() | st.binary()


@given(st.binary(), st.sampled_from([Format.TEXT, Format.HEX, Format.BASE64]))
def test_what_is_written_is_read_back(data: bytes, form: Format) -> None:
    assert read_line(write_bytes(data, form), form).value == data


@given(maybe_bytes, maybe_bytes, st.lists(st.tuples(st.text(), maybe_bytes)), st.integers(0, 9), st.integers(0, 2**60))
def test_a_json_record_is_read_back_whatever_its_bytes(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], partition: int, timestamp: int
) -> None:
    document = {
        "topic": "t",
        "offset": 3,
        "partition": partition,
        "timestamp": timestamp,
        **write_json_bytes("key", key, Format.JSON),
        **write_json_bytes("value", value, Format.JSON),
        "headers": write_json_headers(headers, Format.JSON),
    }
    line = json.dumps(document).encode()
    assert read_line(line, Format.JSON) == Draft(value, key, tuple(headers), partition, timestamp)


def test_a_separator_splits_at_its_first_place() -> None:
    assert read_line(b"k::v::w", Format.TEXT, "::") == Draft(b"v::w", b"k")
    assert read_line(b"6b:76", Format.HEX, ":") == Draft(b"v", b"k")


def test_text_need_not_be_utf8() -> None:
    assert read_line(b"\xff\x00", Format.TEXT).value == b"\xff\x00"


def test_json_values_that_are_no_strings_are_written_as_json() -> None:
    line = '{"value": {"a": [1, "é"]}, "headers": {"n": 1, "none": null}}'.encode()
    assert read_line(line, Format.JSON) == Draft('{"a":[1,"é"]}'.encode(), headers=(("n", b"1"), ("none", None)))


@pytest.mark.parametrize(
    ("line", "form", "reason"),
    [
        (b"xyz", Format.HEX, "not hex"),
        (b"\xff", Format.HEX, "not hex"),
        (b"a", Format.BASE64, "not base64"),
        (b"{", Format.JSON, "not JSON"),
        (b"\xff\xfe", Format.JSON, "not JSON"),
        (b"[1]", Format.JSON, "not a JSON object"),
        (b'{"valu": 1}', Format.JSON, "field 'valu'"),
        (b'{"partition": "0"}', Format.JSON, "partition is not a whole number"),
        (b'{"partition": -1}', Format.JSON, "partition is not a whole number"),
        (b'{"timestamp": 1.5}', Format.JSON, "timestamp is not a whole number"),
        (b'{"timestamp": true}', Format.JSON, "timestamp is not a whole number"),
        (b'{"headers": "x"}', Format.JSON, "headers is neither"),
        (b'{"headers": [["a", "b"]]}', Format.JSON, "a header is not an object"),
        (b'{"value_base64": 3}', Format.JSON, "value_base64 is not a string"),
        (b'{"value_base64": "?"}', Format.JSON, "not base64"),
    ],
)
def test_a_bad_line_says_why(line: bytes, form: Format, reason: str) -> None:
    with pytest.raises(BadRecordError, match=reason):
        read_line(line, form)


def test_a_line_without_the_separator_is_no_record() -> None:
    with pytest.raises(BadRecordError, match="no key separator ':'"):
        read_line(b"abc", Format.TEXT, ":")


@given(st.integers(1, 2**63 - 1))
def test_a_size_is_shown_as_it_is_read(size: int) -> None:
    assert read_size(show_size(size)) == size


def test_sizes_are_shown_in_large_units() -> None:
    assert [show_size(each) for each in (0, 1_001, 10_000_000, 5_000_000_000)] == ["0", "1001", "10MB", "5GB"]
