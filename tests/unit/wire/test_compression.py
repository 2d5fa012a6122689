"""Every codec round trips, reads what other clients write, and refuses bombs and broken bytes within its limit."""

import resource
import struct
import subprocess
import sys
import zlib
from contextlib import suppress

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.wire.compression import XERIAL_BLOCK, Codec, CorruptRecords, compress, decompress

LIMIT = 1 << 20
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"the quick brown fox jumps over the lazy dog; " * 4000  # several blocks of every format


@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=5000), repeat=st.integers(1, 50))
@pytest.mark.parametrize("codec", Codec, ids=str)
def test_round_trip(codec: Codec, data: bytes, repeat: int) -> None:
    assert decompress(codec, compress(codec, data * repeat), LIMIT) == data * repeat


@pytest.mark.parametrize("codec", COMPRESSED, ids=str)
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["empty", "short", "long"])
def test_views_are_read_without_a_copy_of_the_caller(codec: Codec, data: bytes) -> None:
    packed = compress(codec, memoryview(bytearray(data)))
    assert decompress(codec, memoryview(bytearray(packed)), LIMIT) == data


@pytest.mark.parametrize("codec", COMPRESSED, ids=str)
def test_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(CorruptRecords, match="larger than"):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Codec.GZIP, 1),
        (Codec.GZIP, 9),
        (Codec.LZ4, 1),
        (Codec.LZ4, 9),
        (Codec.LZ4, 17),
        (Codec.ZSTD, -5),
        (Codec.ZSTD, 22),
    ],
)
def test_levels_of_kip_390(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level), LIMIT) == TEXT


def test_names_are_those_of_compression_type() -> None:
    assert [str(codec) for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [Codec.named(str(codec)) for codec in Codec] == list(Codec)
    assert Codec.named("uncompressed") is Codec.NONE
    with pytest.raises(ValueError, match="lzma"):
        Codec.named("lzma")


@pytest.mark.parametrize(
    ("codec", "theirs"), [(Codec.GZIP, "gzip"), (Codec.SNAPPY, "snappy"), (Codec.LZ4, "lz4"), (Codec.ZSTD, "zstd")]
)
def test_aiokafka_and_we_read_each_other(codec: Codec, theirs: str) -> None:
    assert decompress(codec, getattr(aiokafka_codec, f"{theirs}_encode")(TEXT), LIMIT) == TEXT
    assert bytes(getattr(aiokafka_codec, f"{theirs}_decode")(compress(codec, TEXT))) == TEXT


def test_raw_snappy_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), LIMIT) == TEXT


def test_snappy_is_framed_in_blocks_of_32_kib() -> None:
    packed = compress(Codec.SNAPPY, bytes(XERIAL_BLOCK + 1))
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (first,) = struct.unpack_from(">i", packed, 16)
    (second,) = struct.unpack_from(">i", packed, 20 + first)
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == XERIAL_BLOCK
    assert 24 + first + second == len(packed)


def test_lz4_frames_have_independent_blocks() -> None:
    """Java's reader refuses linked ones."""
    packed = compress(Codec.LZ4, TEXT)
    assert packed[:4] == bytes.fromhex("04224d18")
    assert packed[4] & 0x20


@pytest.mark.parametrize("content_size", [True, False], ids=["with size", "without size"])
@pytest.mark.parametrize("linked", [True, False], ids=["linked", "independent"])
def test_lz4_frames_of_other_writers(content_size: bool, linked: bool) -> None:
    """librdkafka states the content's size, Java does not."""
    compressor = cramjam.lz4.Compressor(content_checksum=True, block_linked=linked)
    compressor.compress(TEXT)
    packed = bytes(compressor.finish())
    if content_size:
        descriptor = bytes([packed[4] | 0x08, packed[5]]) + struct.pack("<Q", len(TEXT))
        packed = packed[:4] + descriptor + bytes([_xxh32(descriptor) >> 8 & 0xFF]) + packed[7:]
    assert decompress(Codec.LZ4, packed, LIMIT) == TEXT


def _xxh32(data: bytes) -> int:
    """The hash of an lz4 frame's descriptor, for inputs below 16 bytes."""
    prime1, prime2, prime3, prime4, prime5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & mask

    value = (prime5 + len(data)) & mask
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = rotate((value + word * prime3) & mask, 17) * prime4 & mask
    for byte in data[whole:]:
        value = rotate((value + byte * prime5) & mask, 11) * prime1 & mask
    value = (value ^ value >> 15) * prime2 & mask
    value = (value ^ value >> 13) * prime3 & mask
    return value ^ value >> 16


@pytest.mark.parametrize("codec", COMPRESSED, ids=str)
def test_concatenated_frames(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b"one ") + compress(codec, b"two"), LIMIT) == b"one two"


@pytest.mark.parametrize("codec", COMPRESSED, ids=str)
def test_cut_at_every_byte_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, b"moldau " * 20)
    whole_head = 16  # a framed snappy stream without any block is a valid empty one
    for end in range(len(packed)):
        if codec is Codec.SNAPPY and end == whole_head:
            continue
        with pytest.raises(CorruptRecords):
            decompress(codec, packed[:end], LIMIT)


@pytest.mark.parametrize("codec", COMPRESSED, ids=str)
def test_bytes_after_the_end_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptRecords):
        decompress(codec, compress(codec, TEXT) + b"tail of rubbish", LIMIT)


def test_unknown_codec() -> None:
    with pytest.raises(CorruptRecords, match="codec 5"):
        decompress(5, b"", LIMIT)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("codec", COMPRESSED, ids=str)
def test_hostile_bytes_are_corrupt_or_decode_within_the_limit(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, data.draw(st.binary(max_size=300)) * 5))
    for position, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(packed) - 1), st.integers(0, 255)), max_size=8)
    ):
        packed[position] = byte
    hostile = bytes(packed[: data.draw(st.integers(0, len(packed)))]) + data.draw(st.binary(max_size=20))
    with suppress(CorruptRecords):
        assert len(decompress(codec, hostile, 10_000)) <= 10_000


def _gzip_bomb(mebibytes: int) -> bytes:
    compressor = zlib.compressobj(9, wbits=31)
    zeros = bytes(1 << 20)
    return b"".join(compressor.compress(zeros) for _ in range(mebibytes)) + compressor.flush()


def _zstd_bomb(mebibytes: int) -> bytes:
    """A frame of run-length blocks: four bytes stand for 128 KiB."""
    run = (128 << 10) << 3 | 0b010
    blocks = [(run | (number == mebibytes * 8 - 1)).to_bytes(3, "little") + b"\0" for number in range(mebibytes * 8)]
    return bytes.fromhex("28b52ffd0058") + b"".join(blocks)


def _zstd_claim() -> bytes:
    """A few bytes that claim a content of 2⁶² bytes in a single segment."""
    return bytes.fromhex("28b52ffde0") + (1 << 62).to_bytes(8, "little") + bytes.fromhex("0b000061")


BOMBS = {
    "gzip": (Codec.GZIP, lambda: _gzip_bomb(256)),
    "snappy": (Codec.SNAPPY, lambda: compress(Codec.SNAPPY, bytes(4 << 20)) * 100),
    "snappy claim": (Codec.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + bytes(100)),
    "lz4": (Codec.LZ4, lambda: compress(Codec.LZ4, bytes(4 << 20)) * 256),
    "zstd": (Codec.ZSTD, lambda: _zstd_bomb(4096)),
    "zstd claim": (Codec.ZSTD, _zstd_claim),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the address space can be measured and limited on Linux only")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_bounded_memory(name: str) -> None:
    """In a process of its own whose address space may grow by 150 MiB, far less than any of the bombs."""
    result = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.strip()) == (0, "refused"), result.stderr


def _explode(name: str) -> None:
    codec, build = BOMBS[name]
    bomb = build()
    with open("/proc/self/statm") as statm:
        ceiling = int(statm.read().split()[0]) * resource.getpagesize() + (150 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
    try:
        decompress(codec, bomb, 10 << 20)
    except CorruptRecords:
        print("refused")


if __name__ == "__main__":
    _explode(sys.argv[1])
