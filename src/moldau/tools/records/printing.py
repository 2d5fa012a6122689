"""Printing of consumed records: lines of text, or lines of JSON."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.tools.common.formats import Format, Header, write_bytes, write_json_bytes, write_json_headers
from moldau.tools.common.output import print_json_line, show_time

if TYPE_CHECKING:
    from confluent_kafka import Message

TIMESTAMP_TYPES = {0: "none", 1: "CreateTime", 2: "LogAppendTime"}

Printer = Callable[["Message"], None]


class TextPrinter:
    """Records as lines: headers and key if wanted, then the value, with tabs between."""

    def __init__(self, form: Format, keys: bool, headers: bool, to_terminal: bool) -> None:
        self.form = form
        self.keys = keys
        self.headers = headers
        self.to_terminal = to_terminal

    def __call__(self, message: "Message") -> None:
        parts = [write_bytes(message.value(), self.form)]
        if self.keys:
            parts.insert(0, write_bytes(message.key(), self.form))
        if self.headers:
            parts.insert(0, self._headers(read_headers(message)))
        line = b"\t".join(parts)
        sys.stdout.buffer.write((defuse(line) if self.to_terminal else line) + b"\n")

    def _headers(self, headers: list[Header]) -> bytes:
        return b",".join(key.encode() + b"=" + write_bytes(value, self.form) for key, value in headers) or b"-"


# A record must not be able to move the cursor of a terminal or change its title.
CONTROLS = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "�")


def defuse(line: bytes) -> bytes:
    """The line without control characters, tabs and line feeds apart."""
    return line.decode(errors="replace").translate(CONTROLS).encode()


class JsonPrinter:
    """Records as lines of JSON, in the form that `moldau produce --format json` reads."""

    def __init__(self, form: Format) -> None:
        self.form = form

    def __call__(self, message: "Message") -> None:
        print_json_line(record_document(message, self.form))


def record_document(message: "Message", form: Format) -> dict[str, Any]:
    kind, timestamp_ms = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms,
        "timestamp_type": TIMESTAMP_TYPES.get(kind, "none"),
        "time": show_time(timestamp_ms),
        **write_json_bytes("key", message.key(), form),
        **write_json_bytes("value", message.value(), form),
        "headers": write_json_headers(read_headers(message), form),
    }


def read_headers(message: "Message") -> list[Header]:
    headers: Any = message.headers() or []
    return [(key, value.encode() if isinstance(value, str) else value) for key, value in headers]
