"""What stands before a message in a frame: request headers (versions 1 and 2) and response headers (0 and 1).

Which version a header has follows from the API's key and version: flexible versions have the newer header with a tag
section. Two quirks: the client id keeps its old two-byte length even there, and ApiVersions always answers under
header version 0, since its client may not know yet what the broker speaks.

A frame of an API or version that we do not know still begins with key, version and correlation id, the same eight
bytes since the first Kafka: `read_request_prefix` takes these alone. Look there first, refuse or answer what is not
served (an ApiVersions request from the future gets a version 0 body), and read the whole header of the others.
"""

from struct import Struct
from typing import Final, NamedTuple

from moldau.wire.messages.registry import APIS, ASKED
from moldau.wire.primitives import (
    SHORT_READ,
    Buffer,
    MalformedMessage,
    Unencodable,
    read_uvarint,
    refuse_length,
    skip_tags,
)

API_VERSIONS: Final = 18

_PREFIX = Struct(">hhi")
PREFIX_AND_LENGTH = Struct(">hhih")
_CORRELATION = Struct(">i")
_CORRELATION_AND_NO_TAGS = Struct(">ix")
_NEVER = 0x7FFF

_FLEXIBLE: Final = {api.key: _NEVER if api.flexible is None else api.flexible for api in (*APIS, *ASKED)}


class RequestPrefix(NamedTuple):
    """The part of a request header that is the same for all APIs and versions."""

    api_key: int
    api_version: int
    correlation_id: int


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_prefix(view: Buffer, position: int = 0) -> RequestPrefix:
    """Key, version and correlation id of any request, served or not."""
    try:
        return RequestPrefix._make(_PREFIX.unpack_from(view, position))
    except SHORT_READ:
        raise MalformedMessage("the frame is shorter than a request header") from None


def read_request_header(view: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header, and where the body begins. Of a key that is not in the table the tag section, if any, is not read."""
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
        raise MalformedMessage("client id: not UTF-8") from None
    return RequestHeader(key, version, correlation_id, client_id), position


def pack_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    layout = _CORRELATION_AND_NO_TAGS if _has_response_tags(api_key, api_version) else _CORRELATION
    return layout.pack(correlation_id)


def pack_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A client's twin of `read_request_header`."""
    name = b"" if client_id is None else client_id.encode()
    if len(name) > 0x7FFF:
        raise Unencodable("the client id is longer than 32767 bytes")
    length = -1 if client_id is None else len(name)
    tags = b"\0" if api_version >= _FLEXIBLE.get(api_key, _NEVER) else b""
    return PREFIX_AND_LENGTH.pack(api_key, api_version, correlation_id, length) + name + tags


def read_response_header(api_key: int, api_version: int, view: Buffer, position: int = 0) -> tuple[int, int]:
    """A client's twin of `pack_response_header`: the correlation id, and where the body begins."""
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
    """The position behind a section of tagged fields, whatever they are."""
    try:
        count, position = read_uvarint(view, position)
        return skip_tags(view, position, count) if count else position
    except SHORT_READ:
        raise MalformedMessage("the frame ends within the tags of its header") from None
