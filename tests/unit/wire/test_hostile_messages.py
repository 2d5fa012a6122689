"""Bytes from strangers: whatever they are, a message or MalformedMessage comes out, and nothing is made by a claim."""

import tracemalloc
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.wire.codec import MalformedMessage, decode, encode
from moldau.wire.declare import INT8, INT32, STRING, Array, message, struct, wire
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.create_topics import CreateTopicsRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.messages.produce import ProduceRequest
from moldau.wire.messages.registry import APIS
from moldau.wire.primitives import uvarint
from support.wire.values import sample

CASES = [
    pytest.param(cls, version, id=f"{cls.__name__}-{version}")
    for api in APIS
    for cls in (api.request, api.response)
    for version in range(api.lowest, api.highest + 1)
]


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_a_message_cut_at_any_byte_is_malformed(cls: type, version: int) -> None:
    whole = encode(sample(cls, version), version)
    for cut in range(len(whole)):
        with pytest.raises(MalformedMessage):
            decode(cls, version, whole[:cut])


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_bytes_after_the_message_are_malformed(cls: type, version: int) -> None:
    whole = encode(sample(cls, version), version)
    with pytest.raises(MalformedMessage, match="1 bytes too many"):
        decode(cls, version, whole + b"\0")


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_any_byte_may_be_wrong(cls: type, version: int) -> None:
    whole = encode(sample(cls, version), version)
    for position in range(len(whole)):
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            changed = whole[:position] + bytes([byte]) + whole[position + 1 :]
            try:
                decode(cls, version, memoryview(changed))
            except MalformedMessage:
                continue


@settings(max_examples=300, deadline=None, database=None)
@given(st.sampled_from([case.values for case in CASES]), st.binary(max_size=60))
def test_noise(case: tuple[type, int], noise: bytes) -> None:
    cls, version = case
    try:
        found = decode(cls, version, noise)
    except MalformedMessage:
        return
    assert isinstance(found, cls)


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 2**32 - 2])
def test_a_claim_of_billions_of_elements_costs_nothing(count: int) -> None:
    compact = uvarint(count + 1) + bytes(20)
    legacy = pack(">I", count) + bytes(20)
    tracemalloc.start()
    for version, hostile in ((8, legacy), (12, compact)):
        with pytest.raises(MalformedMessage):
            decode(MetadataRequest, version, hostile)
    with pytest.raises(MalformedMessage):
        decode(ApiVersionsResponse, 3, b"\0\0\x01" + bytes(4) + uvarint(count))  # a number of tags
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_string_longer_than_what_is_there() -> None:
    with pytest.raises(MalformedMessage, match="client_software_name"):
        decode(ApiVersionsRequest, 3, uvarint(1000) + b"abc")


def test_a_compact_string_may_not_be_longer_than_a_string_can_be() -> None:
    name = b"x" * 32768
    with pytest.raises(MalformedMessage, match="client_software_name"):
        decode(ApiVersionsRequest, 3, uvarint(len(name) + 1) + name + b"\x01\0")


def test_a_negative_length_other_than_null() -> None:
    with pytest.raises(MalformedMessage):
        decode(MetadataRequest, 8, pack(">i", -2) + bytes(20))


@pytest.mark.parametrize(
    ("cls", "version", "hostile"),
    [
        (MetadataRequest, 0, pack(">i", -1)),
        (MetadataRequest, 9, b"\x02" + b"\x00\0" + b"\0\0\0\0"),  # the name, before version 10
        (CreateTopicsRequest, 2, pack(">i", -1) + bytes(5)),
        (CreateTopicsRequest, 7, b"\0" + bytes(6)),
        (ApiVersionsRequest, 3, b"\0\x01\0"),
    ],
)
def test_null_where_it_is_not_allowed(cls: type, version: int, hostile: bytes) -> None:
    with pytest.raises(MalformedMessage, match="null"):
        decode(cls, version, hostile)


def test_strings_are_utf_8() -> None:
    with pytest.raises(MalformedMessage, match="UTF-8"):
        decode(ApiVersionsRequest, 3, b"\x03\xc3\x28\x01\0")


def test_a_varint_ends_after_five_bytes() -> None:
    with pytest.raises(MalformedMessage, match="varint"):
        decode(ApiVersionsRequest, 3, b"\xff" * 20)


def test_unknown_tags_are_skipped_wherever_they_are() -> None:
    wanted = MetadataRequest(topics=(MetadataRequestTopic(name="a"),))
    plain = encode(wanted, 12)
    tags = b"\x02" + uvarint(300) + b"\x03abc" + b"\x07\x00"  # two of them, not in order
    tagged = plain[:-1] + tags
    assert decode(MetadataRequest, 12, tagged) == wanted
    inner = plain.index(b"\x02a\0") + 2
    assert decode(MetadataRequest, 12, plain[:inner] + tags + plain[inner + 1 :]) == wanted


def test_unknown_tags_lie_beside_known_ones_and_a_repeated_tag_counts_as_it_came_last() -> None:
    body = encode(ApiVersionsResponse(error_code=0, api_keys=()), 3)[:-1]
    epoch = lambda number: b"\x01\x08" + pack(">q", number)  # noqa: E731
    found = decode(ApiVersionsResponse, 3, body + b"\x04" + epoch(5) + b"\x63\x02hi" + b"\x03\x01\x01" + epoch(6))
    assert found.finalized_features_epoch == 6
    assert found.zk_migration_ready


@pytest.mark.parametrize("size", [7, 9])
def test_a_known_tag_has_its_own_size(size: int) -> None:
    body = encode(ApiVersionsResponse(error_code=0, api_keys=()), 3)[:-1]
    with pytest.raises(MalformedMessage, match="finalized_features_epoch"):
        decode(ApiVersionsResponse, 3, body + b"\x01\x01" + bytes([size]) + bytes(9))


def test_a_tag_longer_than_what_is_there() -> None:
    body = encode(ApiVersionsResponse(error_code=0, api_keys=()), 3)[:-1]
    for tag in (b"\x01", b"\x63"):
        with pytest.raises(MalformedMessage, match="tagged field"):
            decode(ApiVersionsResponse, 3, body + b"\x01" + tag + uvarint(2**31) + b"ab")


def test_an_element_takes_at_least_a_byte() -> None:
    @struct
    class Later:
        number: int = wire(INT8, since=1, default=0)

    @message(key=-1, versions=(0, 1), flexible=None)
    class Fieldless:
        elements: tuple[Later, ...] = wire(Array(Later))

    with pytest.raises(TypeError, match="no bytes"):
        decode(Fieldless, 0, pack(">i", 2**31 - 1))


def test_a_whole_frame_is_not_needed_twice() -> None:
    """Decoding from a position leaves what lies before it alone."""

    @message(key=-1, versions=(0, 0), flexible=None)
    class Small:
        number: int = wire(INT32)
        text: str = wire(STRING)

    frame = b"header" + encode(Small(number=7, text="ano"), 0)
    assert decode(Small, 0, memoryview(frame), len(b"header")) == Small(number=7, text="ano")


def test_records_stay_opaque_and_are_copied_out_of_the_frame() -> None:
    frame = bytearray(encode(sample(ProduceRequest, 9), 9))
    found = decode(ProduceRequest, 9, memoryview(frame))
    frame[:] = bytes(len(frame))
    assert found.topic_data[0].partition_data[0].records == b"opaque"


def test_metadata_responses_of_all_versions_decode_to_one_form() -> None:
    for version in range(14):
        found = decode(MetadataResponse, version, encode(sample(MetadataResponse, version), version))
        assert found.topics[0].partitions[0].leader_epoch == (4 if version >= 7 else -1)
        assert (found.cluster_id is None) == (version < 2)
