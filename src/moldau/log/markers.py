"""Transaction markers, as far as replaying a log needs them: whose coordinator wrote this control batch (KIP-98)."""

from moldau.wire.batch import HEADER, HEADER_SIZE

_ABORT, _COMMIT = 0, 1


def coordinator_epoch(batch: bytes) -> int | None:
    """The coordinator's epoch in an end-of-transaction marker; None for other control batches and emptied ones."""
    if not HEADER.unpack_from(batch)[12]:
        return None
    try:
        position = HEADER_SIZE
        _, position = _varint(batch, position)  # length
        position += 1  # attributes
        _, position = _varint(batch, position)  # timestamp delta
        _, position = _varint(batch, position)  # offset delta
        key_length, position = _varint(batch, position)
        kind = int.from_bytes(batch[position + 2 : position + 4])
        position += key_length
        value_length, position = _varint(batch, position)
    except IndexError:
        return None
    if kind not in (_ABORT, _COMMIT) or value_length < 6 or position + 6 > len(batch):
        return None
    return int.from_bytes(batch[position + 2 : position + 6], signed=True)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it."""
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result >> 1 ^ -(result & 1), position
        shift += 7
