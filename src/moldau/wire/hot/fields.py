"""Fields that the hand-written codecs of Produce and Fetch share, with their bounds. Knows neither message.

A topic is identified by its *token*: the bytes of its name, or from version 13 on the sixteen bytes of its id.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from moldau.wire.primitives import MalformedMessage, read_uvarint, uvarint
from moldau.wire.primitives import skip_tags as skip_tag_fields

MAX_PARTITIONS: Final = 50_000  # of one Produce or Fetch request

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")


class NodeEndpoint(NamedTuple):
    """The endpoint of a current leader that a response names (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None


def skip_tags(view: memoryview, at: int) -> int:
    """Skip unknown tagged fields (KIP-482)."""
    count, at = read_uvarint(view, at)
    return skip_tag_fields(view, at, count) if count else at


def checked_count(view: memoryview, at: int, count: int) -> int:
    """Check the count of an array: an element takes at least one byte."""
    if count < 0 or count > len(view) - at:
        raise MalformedMessage(f"an array of {count} elements exceeds the request")
    return count


def bounded(seen: int) -> int:
    """Check the number of partitions: reading too many would block the event loop."""
    if seen > MAX_PARTITIONS:
        raise MalformedMessage(f"the request has more than {MAX_PARTITIONS} partitions")
    return seen


def stretch(view: memoryview, at: int, size: int) -> int:
    stop = at + size
    if size < 0 or stop > len(view):
        raise MalformedMessage(f"a field of {size} bytes exceeds the request")
    return stop


_LEADER: Final = Struct(">BBBii")  # one tagged field: its tag, its size, leader and epoch; no tagged fields within


def leader_tag(tag: int, leader: tuple[int, int]) -> bytes:
    return _LEADER.pack(1, tag, 9, *leader) + b"\0"


def endpoints_tag(endpoints: Sequence[NodeEndpoint]) -> bytes:
    rows = [
        INT32.pack(each.node_id) + nullable(each.host, True) + INT32.pack(each.port) + nullable(each.rack, True) + b"\0"
        for each in endpoints
    ]
    value = array(len(rows), True) + b"".join(rows)
    return b"\x01\x00" + uvarint(len(value)) + value


def array(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else INT32.pack(count)


def pack_token(token: bytes, by_id: bool, flexible: bool) -> bytes:
    if by_id:
        return token
    return (uvarint(len(token) + 1) if flexible else INT16.pack(len(token))) + token


def nullable(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    return pack_token(text.encode(), False, flexible)
