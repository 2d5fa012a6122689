"""Throttle time of a response: set in it, or read from it. Decides nothing.

The field is the first one of nearly all responses; those that are encoded already have it there.
"""

from struct import Struct
from typing import Final

from moldau.wire.declare import fields_of, replace
from moldau.wire.headers import read_response_header
from moldau.wire.messages.registry import ApiMessages

FIELD: Final = "throttle_time_ms"
_INT32: Final = Struct(">i")


def with_throttle_time(messages: ApiMessages, version: int, response: object, throttle_ms: int) -> object:
    """A message, or its encoded body, with a throttle time; unchanged if its version has none."""
    if isinstance(response, bytes):
        first = _first_field(messages, version)
        return _INT32.pack(throttle_ms) + response[_INT32.size :] if first == FIELD else response
    return replace(response, throttle_time_ms=throttle_ms) if hasattr(response, FIELD) else response


def read_throttle_time(messages: ApiMessages, version: int, frame: bytes) -> int:
    """The throttle time in a frame with its header; 0 if it is not the first field there."""
    if _first_field(messages, version) != FIELD:
        return 0
    _, at = read_response_header(messages.key, version, frame)
    throttle_ms: int = _INT32.unpack_from(frame, at)[0]
    return throttle_ms


def _first_field(messages: ApiMessages, version: int) -> str:
    return next(field.name for field in fields_of(messages.response) if field.tag is None and field.present(version))
