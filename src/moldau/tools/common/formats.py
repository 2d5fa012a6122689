"""Records as text: the lines that `produce` reads and `consume` writes. Pure; each undoes the other.

A JSON record is `{"key": …, "value": …, "headers": [{"key": …, "value": …}], "partition": …, "timestamp": …}`. Bytes
that are not UTF-8 go under `key_base64` or `value_base64` instead, so any topic can be copied from pipe to pipe.
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Header = tuple[str, bytes | None]

RECORD_FIELDS = {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp"}
# Written by consume and of no use to produce; accepted so that one can be piped into the other.
PASSED_OVER = {"topic", "offset", "timestamp_type", "time"}


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


class BadRecordError(ValueError):
    """A line that is not a record; the message says why."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A record on its way to the broker."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def read_line(line: bytes, form: Format, separator: str | None = None) -> Draft:
    """A record from one line, which comes without its end."""
    if form is Format.JSON:
        return _read_json(line)
    if separator is None:
        return Draft(_read_bytes(line, form))
    key, found, value = line.partition(separator.encode())
    if not found:
        raise BadRecordError(f"there is no key separator {separator!r} in it")
    return Draft(_read_bytes(value, form), _read_bytes(key, form))


def _read_bytes(text: bytes, form: Format) -> bytes:
    try:
        if form is Format.HEX:
            return bytes.fromhex(text.decode("ascii"))
        if form is Format.BASE64:
            return base64.b64decode(text.strip(), validate=True)
    except (ValueError, binascii.Error):
        raise BadRecordError(f"it is not {form.value}") from None
    return text


def _read_json(line: bytes) -> Draft:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise BadRecordError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadRecordError('it is not a JSON object such as {"key": "k", "value": "v"}')
    unknown = sorted(document.keys() - RECORD_FIELDS - PASSED_OVER)
    if unknown:
        raise BadRecordError(f"it has a field {unknown[0]!r}; fields are {', '.join(sorted(RECORD_FIELDS))}")
    return Draft(
        _json_bytes(document, "value"),
        _json_bytes(document, "key"),
        _json_headers(document.get("headers")),
        _json_number(document, "partition"),
        _json_number(document, "timestamp"),
    )


def _json_bytes(document: dict[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise BadRecordError(f"{name}_base64 is not a string")
        return _read_bytes(encoded.encode(), Format.BASE64)
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _json_headers(headers: Any) -> tuple[Header, ...]:
    if headers is None:
        return ()
    if isinstance(headers, dict):
        headers = [{"key": key, "value": value} for key, value in headers.items()]
    if not isinstance(headers, list):
        raise BadRecordError("headers is neither an object nor a list")
    for header in headers:
        if not isinstance(header, dict) or not isinstance(header.get("key"), str):
            raise BadRecordError('a header is not an object such as {"key": "k", "value": "v"}')
    return tuple((header["key"], _json_bytes(header, "value")) for header in headers)


def _json_number(document: dict[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise BadRecordError(f"{name} is not a whole number from 0 up")
    return value


def write_bytes(data: bytes | None, form: Format) -> bytes:
    """Key, value or header as it stands in a line of text; nothing reads `null`."""
    if data is None:
        return b"null"
    if form is Format.HEX:
        return data.hex().encode()
    if form is Format.BASE64:
        return base64.b64encode(data)
    return data


def write_json_bytes(name: str, data: bytes | None, form: Format) -> dict[str, str | None]:
    """The field of a JSON record that holds these bytes."""
    if data is None:
        return {name: None}
    if form in (Format.HEX, Format.BASE64):
        return {name: write_bytes(data, form).decode()}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def write_json_headers(headers: Sequence[Header], form: Format) -> list[dict[str, str | None]]:
    return [{"key": key, **write_json_bytes("value", value, form)} for key, value in headers]


SIZE = re.compile(r"(\d+)\s*([KMG]i?)?B?", re.ASCII | re.IGNORECASE)
SIZE_UNITS = {"": 1, "K": 1000, "KI": 1024, "M": 1000**2, "MI": 1024**2, "G": 1000**3, "GI": 1024**3}
LARGEST_SIZE = 2**63 - 1


def read_size(text: str) -> int:
    """A number of bytes, at least one: `5000000`, `10MB`, `10MiB`."""
    found = SIZE.fullmatch(text.strip())
    size = int(found[1]) * SIZE_UNITS[(found[2] or "").upper()] if found else 0
    if not 0 < size <= LARGEST_SIZE:
        raise ValueError(f"{text!r} is not a number of bytes such as 5000000, 10MB or 10MiB")
    return size


def show_size(size: int) -> str:
    """The same size for `read_size`, in the largest decimal unit that fits: `10MB`."""
    for unit in ("G", "M", "K"):
        if size and size % SIZE_UNITS[unit] == 0:
            return f"{size // SIZE_UNITS[unit]}{unit}B"
    return str(size)
