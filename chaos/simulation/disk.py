"""Power cuts: a log keeps everything that was synced, and a random part of the rest."""

import random
from pathlib import Path

from moldau.wire.batch import read_header

SECTOR = 512
LEAST_BATCH = 61


def lose_power(directory: Path, durable: int, dice: random.Random) -> None:
    """Change a log's files as a power cut would; everything before the offset `durable` was synced."""
    segments = sorted(directory.glob("*.log"))
    for number, path in enumerate(segments):
        content = path.read_bytes()
        synced = _position(content, durable)
        if synced == len(content):
            continue
        path.write_bytes(_left(content, synced, dice))
        if dice.random() < 0.5:  # names that were not synced: the later files are missing
            for later in segments[number + 1 :]:
                later.unlink()
            return


def _position(content: bytes, offset: int) -> int:
    """The position of the first batch that ends at `offset` or later."""
    at = 0
    while at + LEAST_BATCH <= len(content):
        header = read_header(memoryview(content), at)
        if header.last_offset >= offset:
            break
        at += header.size
    return min(at, len(content))


def _left(content: bytes, synced: int, dice: random.Random) -> bytes:
    kind = dice.choice(("synced", "torn", "torn", "holes", "all"))
    if kind == "synced":
        return content[:synced]
    if kind == "torn":
        return content[: dice.randint(synced, len(content))]
    found = bytearray(content)
    if kind == "holes":  # the size is right, but some sectors are zeros
        for start in range(synced, len(found), SECTOR):
            if dice.random() < 0.3:
                end = min(start + SECTOR, len(found))
                found[start:end] = bytes(end - start)
    return bytes(found)
