"""The records of `__transaction_state` in Kafka's format.

The first two bytes of a key are its type, the first two of a value its version. Version 1 is written; version 0, of
clusters below transaction.version 1, is read too. The rules of transactions are in `state`.
"""

from struct import Struct

from moldau.base.coordination import Record
from moldau.wire.codec import decode as decode_message
from moldau.wire.codec import encode as encode_message
from moldau.wire.declare import INT8, INT16, INT32, INT64, STRING, Array, message, struct, wire

TRANSACTION_LOG = 0  # key type
VALUE_VERSION = 1
_PREFIX = Struct(">h")


@message(key=TRANSACTION_LOG, versions=(0, 0), flexible=None)
class TransactionLogKey:
    transactional_id: str = wire(STRING)


@struct
class PartitionsSchema:
    topic: str = wire(STRING)
    partition_ids: tuple[int, ...] = wire(Array(INT32))


@message(key=TRANSACTION_LOG, versions=(0, VALUE_VERSION), flexible=1)
class TransactionLogValue:
    producer_id: int = wire(INT64)
    previous_producer_id: int = wire(INT64, since=1, tag=0, default=-1)
    next_producer_id: int = wire(INT64, since=1, tag=1, default=-1)
    producer_epoch: int = wire(INT16)
    next_producer_epoch: int = wire(INT16, since=1, tag=3, default=-1)
    transaction_timeout_ms: int = wire(INT32)
    transaction_status: int = wire(INT8)
    transaction_partitions: tuple[PartitionsSchema, ...] | None = wire(Array(PartitionsSchema), nullable=0)
    transaction_last_update_timestamp_ms: int = wire(INT64)
    transaction_start_timestamp_ms: int = wire(INT64)
    client_transaction_version: int = wire(INT16, since=1, tag=2, default=0)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    key = _PREFIX.pack(TRANSACTION_LOG) + encode_message(record.key, 0)
    if record.value is None:
        return key, None
    return key, _PREFIX.pack(VALUE_VERSION) + encode_message(record.value, VALUE_VERSION)


def decode(key: bytes, value: bytes | None) -> Record | None:
    """The record; None for unknown types and versions, which Kafka skips too."""
    if _prefix(key) != TRANSACTION_LOG:
        return None
    found = decode_message(TransactionLogKey, 0, key, _PREFIX.size)
    if value is None:
        return Record(found, None)
    version = _prefix(value)
    if not 0 <= version <= VALUE_VERSION:
        return None
    return Record(found, decode_message(TransactionLogValue, version, value, _PREFIX.size))


def _prefix(data: bytes) -> int:
    """A key without its two bytes is of an unknown type, too."""
    return int(_PREFIX.unpack_from(data)[0]) if len(data) >= _PREFIX.size else -1
