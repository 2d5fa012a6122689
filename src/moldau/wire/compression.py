"""Compression codecs of record batches: none, gzip, snappy, lz4, zstd. Knows bytes, not records.

Input is not trusted: no allocation follows a length in the input. Output grows with the bytes that are really
decompressed, up to the caller's limit.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import TypeAlias

import cramjam

Buffer: TypeAlias = bytes | bytearray | memoryview


class CorruptRecords(Exception):
    """A batch that does not follow its format; the text says where and why."""


class Codec(IntEnum):
    """The low three bits of a batch's attributes; `str()` is its name in `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def named(cls, name: str) -> "Codec":
        """The codec of a `compression.type`; topics say `uncompressed`, producers `none`."""
        for codec in cls:
            if str(codec) == name or (codec is cls.NONE and name == "uncompressed"):
                return codec
        raise ValueError(f"unknown compression type {name!r}")


# KIP-390: the default levels of compression.<codec>.level.
GZIP_DEFAULT_LEVEL = -1
LZ4_DEFAULT_LEVEL = 9
ZSTD_DEFAULT_LEVEL = 3

FIRST_OUTPUT = 64 * 1024  # the smallest output buffer
OUTPUT_GROWTH = 4  # a larger buffer costs memory, a smaller one retries from the start
_OUTPUT_FULL = "whole buffer"  # in the error of cramjam when the output buffer is too small

# The framing of snappy-java ("xerial"): this header, then blocks of [length, raw snappy].
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEAD = Struct(">8sii")  # magic, version, oldest version that can read it
XERIAL_VERSION = 1
XERIAL_BLOCK = 32 * 1024  # uncompressed bytes per block, as in Java's producer
_BLOCK_LENGTH = Struct(">i")
SNAPPY_MOST_GROWTH = 22  # snappy's densest element turns 3 bytes into 64


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` as Kafka's clients expect it; `level` None is the codec's default."""
    return _COMPRESSORS[codec](data, level)


def decompress(codec: int, data: Buffer, limit: int) -> bytes:
    """Decompress `data` to at most `limit` bytes; CorruptRecords if it is invalid, of an unknown codec or larger."""
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise CorruptRecords(f"unknown compression codec {int(codec)}")
    return decompressor(data, limit)


def _too_large(codec: Codec, limit: int) -> CorruptRecords:
    return CorruptRecords(f"{codec} data is larger than {limit} bytes when decompressed")


# ── none ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _store(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _unstore(data: Buffer, limit: int) -> bytes:
    if len(data) > limit:
        raise _too_large(Codec.NONE, limit)
    return bytes(data)


# ── gzip, lz4, zstd: cramjam reads their frames, single and concatenated ────────────────────────────────────────────


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    # zlib takes less than half the time of cramjam for nearly the same size.
    return zlib.compress(data, GZIP_DEFAULT_LEVEL if level is None else level, wbits=31)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # Java's producer uses the fast compressor at the default level only.
    fast = level is None or level == LZ4_DEFAULT_LEVEL
    # Java's reader rejects linked blocks; the batch has a checksum of its own.
    compressor = cramjam.lz4.Compressor(level=0 if fast else level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # cramjam takes bytes only
    return bytes(compressor.finish())


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=ZSTD_DEFAULT_LEVEL if level is None else level))


def _frame_decompressor(codec: Codec, decompress_into: Callable[[Buffer, bytearray], int]) -> "Decompressor":
    def decompress_frames(data: Buffer, limit: int) -> bytes:
        size = min(limit, max(FIRST_OUTPUT, OUTPUT_GROWTH * len(data)))
        while True:
            output = bytearray(size)
            try:
                length = decompress_into(data, output)
            except cramjam.DecompressionError as error:
                if _OUTPUT_FULL not in str(error):
                    raise CorruptRecords(f"invalid {codec} data: {error}") from None
                if size >= limit:
                    raise _too_large(codec, limit) from None
                size = min(limit, size * OUTPUT_GROWTH)
            else:
                return bytes(memoryview(output)[:length])

    return decompress_frames


# ── snappy: cramjam reads raw blocks; the framing is that of snappy-java ────────────────────────────────────────────


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEAD.pack(XERIAL_MAGIC, XERIAL_VERSION, XERIAL_VERSION)]
    for start in range(0, len(view), XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _raw_snappy(view, limit, limit)
    parts = []
    position, left = 0, limit
    while position < len(view):
        if view[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:  # also between concatenated streams
            position = _after_xerial_head(view, position)
            continue
        if len(view) - position < _BLOCK_LENGTH.size:
            raise CorruptRecords("snappy data ends inside a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - position:
            raise CorruptRecords(f"snappy block of {length} bytes, but {len(view) - position} are left")
        block = _raw_snappy(view[position : position + length], left, limit)
        parts.append(block)
        left -= len(block)
        position += length
    return b"".join(parts)


def _after_xerial_head(view: memoryview, position: int) -> int:
    if len(view) - position < XERIAL_HEAD.size:
        raise CorruptRecords("snappy data ends inside its header")
    _, _, compatible = XERIAL_HEAD.unpack_from(view, position)
    if compatible > XERIAL_VERSION:
        raise CorruptRecords(f"snappy framing of version {compatible} is not supported")
    return position + XERIAL_HEAD.size


def _raw_snappy(block: memoryview, left: int, limit: int) -> bytes:
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > len(block) * SNAPPY_MOST_GROWTH:
            raise CorruptRecords(f"invalid snappy data: {len(block)} bytes cannot hold {claimed}")
        if claimed > left:
            raise _too_large(Codec.SNAPPY, limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"invalid snappy data: {error}") from None


Compressor: TypeAlias = Callable[[Buffer, int | None], bytes]
Decompressor: TypeAlias = Callable[[Buffer, int], bytes]

_COMPRESSORS: dict[int, Compressor] = {
    Codec.NONE: _store,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[int, Decompressor] = {
    Codec.NONE: _unstore,
    Codec.GZIP: _frame_decompressor(Codec.GZIP, cramjam.gzip.decompress_into),
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _frame_decompressor(Codec.LZ4, cramjam.lz4.decompress_into),
    Codec.ZSTD: _frame_decompressor(Codec.ZSTD, cramjam.zstd.decompress_into),
}
