"""Request and response headers: the quirks, both sides, and frames of APIs that we do not know."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.wire.headers import (
    RequestHeader,
    pack_request_header,
    pack_response_header,
    read_request_header,
    read_request_prefix,
    read_response_header,
)
from moldau.wire.messages.registry import APIS
from moldau.wire.primitives import MalformedMessage, Unencodable

PRODUCE, METADATA, API_VERSIONS, UNKNOWN = 0, 3, 18, 9999


def test_the_client_id_has_a_two_byte_length_in_both_versions() -> None:
    assert pack_request_header(METADATA, 8, 7, "ab") == pack(">hhih", 3, 8, 7, 2) + b"ab"
    assert pack_request_header(METADATA, 9, 7, "ab") == pack(">hhih", 3, 9, 7, 2) + b"ab\0"


def test_the_client_id_may_be_null() -> None:
    for version in (8, 9):
        header, _ = read_request_header(pack_request_header(METADATA, version, 7, None))
        assert header.client_id is None


@given(
    st.sampled_from([(api.key, version) for api in APIS for version in range(api.lowest, api.highest + 1)]),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=20),
)
def test_what_a_client_packs_a_broker_reads(api: tuple[int, int], correlation_id: int, client_id: str | None) -> None:
    packed = b"??" + pack_request_header(*api, correlation_id, client_id)
    header, body = read_request_header(memoryview(packed + b"body"), 2)
    assert header == RequestHeader(*api, correlation_id, client_id)
    assert body == len(packed)
    answer = pack_response_header(*api, correlation_id)
    assert read_response_header(*api, answer + b"body") == (correlation_id, len(answer))


def test_unknown_tags_are_skipped() -> None:
    packed = pack_request_header(METADATA, 12, 7, "ab")[:-1] + b"\x02\x00\x03abc\x63\x00"
    assert read_request_header(packed + b"body") == (RequestHeader(METADATA, 12, 7, "ab"), len(packed))
    assert read_response_header(METADATA, 12, pack(">i", 7) + b"\x01\x05\x01x" + b"body") == (7, 8)


def test_api_versions_always_answers_under_header_version_0() -> None:
    assert pack_response_header(METADATA, 12, 7) == pack(">i", 7) + b"\0"
    assert pack_response_header(METADATA, 8, 7) == pack(">i", 7)
    for version in (0, 3, 4, 99):
        assert pack_response_header(API_VERSIONS, version, 7) == pack(">i", 7)
        assert read_response_header(API_VERSIONS, version, pack(">i", 7) + b"\0\0") == (7, 4)


@pytest.mark.parametrize(("key", "version"), [(API_VERSIONS, 99), (UNKNOWN, 0), (-5, -1)])
def test_the_prefix_of_any_request_can_be_read(key: int, version: int) -> None:
    frame = pack(">hhi", key, version, 7) + b"\xff\x00whatever the future brings"
    assert read_request_prefix(frame) == (key, version, 7)


def test_a_later_api_versions_request_has_the_flexible_header() -> None:
    packed = pack_request_header(API_VERSIONS, 99, 7, "ab")
    assert packed[-1:] == b"\0"
    assert read_request_header(packed + b"body") == (RequestHeader(API_VERSIONS, 99, 7, "ab"), len(packed))


def test_of_an_unknown_api_the_client_id_is_read() -> None:
    assert read_request_header(pack(">hhih", UNKNOWN, 3, 7, 2) + b"ab") == (RequestHeader(UNKNOWN, 3, 7, "ab"), 12)


def test_headers_cut_at_any_byte_are_malformed() -> None:
    whole = pack_request_header(METADATA, 12, 7, "ab")[:-1] + b"\x01\x05\x03abc"
    for cut in range(len(whole)):
        with pytest.raises(MalformedMessage):
            read_request_header(whole[:cut])
    for cut in range(8):
        with pytest.raises(MalformedMessage):
            read_request_prefix(whole[:cut])
    for cut in range(5):
        with pytest.raises(MalformedMessage):
            read_response_header(METADATA, 12, whole[:cut])


@pytest.mark.parametrize("hostile", [pack(">h", -2), pack(">h", 32767) + b"ab", pack(">h", 2) + b"\xc3\x28"])
def test_hostile_client_ids(hostile: bytes) -> None:
    with pytest.raises(MalformedMessage, match="client id"):
        read_request_header(pack(">hhi", PRODUCE, 3, 7) + hostile)


def test_a_client_id_too_long_to_pack() -> None:
    with pytest.raises(Unencodable, match="client id"):
        pack_request_header(PRODUCE, 3, 7, "x" * 32768)
