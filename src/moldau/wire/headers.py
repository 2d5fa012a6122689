"""Request headers (versions 1 and 2) and response headers (versions 0 and 1).

The version of a header follows from the API key and version: flexible versions have the newer header with tagged
fields. Two exceptions: the client id keeps its two-byte length there, and ApiVersions responses always have header
version 0, since their client may not know the versions of the broker yet.

Requests of unknown APIs and versions begin with API key, version and correlation id too. `read_request_prefix` reads
these eight bytes alone, so that the caller can reject or answer such a request; an ApiVersions request of an unknown
version is answered in version 0.
"""

from struct import Struct
from typing import Final, NamedTuple

from moldau.wire.messages.registry import APIS
from moldau.wire.primitives import (
    SHORT_READ,
    Buffer,
    MalformedMessage,
    Unencodable,
    read_uvarint,
    refuse_length,
    skip_tags,
)

PRODUCE: Final = 0
API_VERSIONS: Final = 18

_PREFIX: Final = Struct(">hhi")
PREFIX_AND_LENGTH: Final = Struct(">hhih")
PREFIX_AND_LENGTH_SIZE: Final = PREFIX_AND_LENGTH.size
_CORRELATION: Final = Struct(">i")
_CORRELATION_AND_NO_TAGS: Final = Struct(">ix")
_NEVER: Final = 0x7FFF

_FLEXIBLE: Final = {api.key: _NEVER if api.flexible is None else api.flexible for api in APIS}


class RequestPrefix(NamedTuple):
    """The part of a request header that all APIs and versions have."""

    api_key: int
    api_version: int
    correlation_id: int


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_prefix(view: Buffer, position: int = 0) -> RequestPrefix:
    """API key, version and correlation id of any request, supported or not."""
    try:
        return RequestPrefix._make(_PREFIX.unpack_from(view, position))
    except SHORT_READ:
        raise MalformedMessage("the frame is shorter than a request header") from None


def read_request_header(view: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header and the position of the body. Tagged fields are skipped for known API keys only."""
    try:
        key, version, correlation_id, length = PREFIX_AND_LENGTH.unpack_from(view, position)
        position += PREFIX_AND_LENGTH.size
        client_id = None
        if length != -1:
            stop = position + length
            if length < 0 or stop > len(view):
                raise refuse_length("client id", length)
            client_id = str(view[position:stop], "utf-8")
            position = stop
        if version >= _FLEXIBLE.get(key, _NEVER):
            position = skip_tag_section(view, position)
    except SHORT_READ:
        raise MalformedMessage("the frame is shorter than its request header") from None
    except UnicodeDecodeError:
        raise MalformedMessage("the client id is not UTF-8") from None
    return RequestHeader(key, version, correlation_id, client_id), position


def pack_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    layout = _CORRELATION_AND_NO_TAGS if _has_response_tags(api_key, api_version) else _CORRELATION
    return layout.pack(correlation_id)


def pack_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Encode a request header, as a client."""
    name = b"" if client_id is None else client_id.encode()
    if len(name) > 0x7FFF:
        raise Unencodable("the client id is longer than 32767 bytes")
    length = -1 if client_id is None else len(name)
    tags = b"\0" if api_version >= _FLEXIBLE.get(api_key, _NEVER) else b""
    return PREFIX_AND_LENGTH.pack(api_key, api_version, correlation_id, length) + name + tags


def read_response_header(api_key: int, api_version: int, view: Buffer, position: int = 0) -> tuple[int, int]:
    """The correlation id and the position of the body, as a client."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(view, position)
        position += _CORRELATION.size
        if _has_response_tags(api_key, api_version):
            position = skip_tag_section(view, position)
    except SHORT_READ:
        raise MalformedMessage("the frame is shorter than its response header") from None
    return correlation_id, position


def _has_response_tags(api_key: int, api_version: int) -> bool:
    return api_key != API_VERSIONS and api_version >= _FLEXIBLE.get(api_key, _NEVER)


def skip_tag_section(view: Buffer, position: int) -> int:
    """The position behind a section of tagged fields."""
    try:
        count, position = read_uvarint(view, position)
        return skip_tags(view, position, count) if count else position
    except SHORT_READ:
        raise MalformedMessage("the frame ends within the tagged fields of its header") from None
