"""Properties files as Java reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.properties import MalformedProperties, read_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("# a comment\n! another\n\n   \n", {}),
        ("a=1\nb:2\nc 3\nd\t4\ne = 5\nf : 6\ng", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": "6", "g": ""}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("  a  =  1 with blanks after  ", {"a": "1 with blanks after  "}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a==b", {"a": "=b"}),
        ("a=one,\\\n   two,\\\n   three", {"a": "one,two,three"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("# a comment does not go on \\\na=1", {"a": "1"}),
        ("a=x\\\n# not a comment", {"a": "x# not a comment"}),
        ("a\\=b\\ c=1", {"a=b c": "1"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\u20AC", {"a": "é€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=1\\", {"a": "1"}),
        ("=1", {"": "1"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
    ],
)
def test_syntax(text: str, found: dict[str, str]) -> None:
    assert read_properties(text) == found


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(MalformedProperties, match=r"line 2: \\u needs four hexadecimal digits$"):
        read_properties("a=1\nb=\\u12")


@given(st.dictionaries(st.text("abc.", min_size=1), st.text("abc =:#!\\", max_size=8)))
def test_what_is_escaped_comes_back(properties: dict[str, str]) -> None:
    def escape(text: str) -> str:
        return "".join("\\" + letter if letter in " =:#!\\" else letter for letter in text)

    assert read_properties("\n".join(f"{key}={escape(value)}" for key, value in properties.items())) == properties


def test_a_key_knows_its_line_until_it_is_set_anew() -> None:
    found = read_properties("# first\na=1\nb=one,\\\n  two\nc=3\na=4", "server.properties")
    assert found.place("a") == "server.properties:6", "the last of two"
    assert found.place("b") == "server.properties:3"
    assert found.place("c") == "server.properties:5"
    assert found.place("d") is None
    found["c"] = "by a flag"
    assert found.place("c") is None
