"""Records of `__transaction_state`: byte for byte what Apache Kafka 4.3.1 writes, by its own TransactionLog class."""

import pytest

from moldau.base.coordination import Record
from moldau.transactions import records
from moldau.transactions.records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from moldau.transactions.state import (
    COMPLETE_ABORT,
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    Transaction,
    record_of,
    transaction_of,
)

KEY = "000000086d792d74782dc3bc"
MADE_BY_KAFKA = {
    "00010000000000000fa000000000ea6000000000018bcfe5687bffffffffffffffff0100080000000000000fa0": Transaction(
        "my-tx-ü", 4000, 0, 60_000, 1700000000123, EMPTY, previous_producer_id=4000
    ),
    "00010000000000000fa000070000ea600102076f72646572730200000003000000018bcfe568c90000018bcfe568c80200080000000000000f"
    "a002020002": Transaction(
        "my-tx-ü", 4000, 7, 60_000, 1700000000201, ONGOING, frozenset({("orders", 3)}), 1700000000200, 4000, -1, 2
    ),
    "00010000000000000fa07fff0000ea600202076f72646572730200000003000000018bcfe568ca0000018bcfe568c80300080000000000000f"
    "a001080000000000000fa102020002": Transaction(
        "my-tx-ü",
        4000,
        32767,
        60_000,
        1700000000202,
        PREPARE_COMMIT,
        frozenset({("orders", 3)}),
        1700000000200,
        4000,
        4001,
        2,
    ),
    "00010000000000000fa100000000ea6005010000018bcfe568cb0000018bcfe568c80200080000000000000fa002020002": Transaction(
        "my-tx-ü", 4001, 0, 60_000, 1700000000203, COMPLETE_ABORT, frozenset(), 1700000000200, 4000, -1, 2
    ),
}


@pytest.mark.parametrize("made_by_kafka", MADE_BY_KAFKA)
def test_records_are_kafkas(made_by_kafka: str) -> None:
    transaction = MADE_BY_KAFKA[made_by_kafka]
    key, value = records.encode(record_of(transaction))
    assert value is not None
    assert (key.hex(), value.hex()) == (KEY, made_by_kafka)
    record = records.decode(key, value)
    assert record is not None
    assert transaction_of(record) == transaction


def test_every_field_has_kafkas_place() -> None:
    value = TransactionLogValue(
        producer_id=5,
        previous_producer_id=6,
        next_producer_id=7,
        producer_epoch=8,
        next_producer_epoch=9,
        transaction_timeout_ms=10,
        transaction_status=1,
        transaction_partitions=(
            PartitionsSchema(topic="a", partition_ids=(0, 2)),
            PartitionsSchema(topic="b", partition_ids=(1,)),
        ),
        transaction_last_update_timestamp_ms=11,
        transaction_start_timestamp_ms=12,
        client_transaction_version=2,
    )
    made_by_kafka = (
        "0001000000000000000500080000000a01030261030000000000000002000262020000000100000000000000000b000000000000000c04"
        "00080000000000000006010800000000000000070202000203020009"
    )
    record = Record(TransactionLogKey(transactional_id="x"), value)
    key, data = records.encode(record)
    assert data is not None
    assert data.hex() == made_by_kafka
    assert records.decode(key, data) == record


def test_version_0_is_read() -> None:
    old = bytes.fromhex(
        "00000000000000000fa000070000ea60010000000100066f726465727300000001000000030000018bcfe568c90000018bcfe568c8"
    )
    record = records.decode(bytes.fromhex(KEY), old)
    assert record is not None
    assert transaction_of(record) == Transaction(
        "my-tx-ü", 4000, 7, 60_000, 1700000000201, ONGOING, frozenset({("orders", 3)}), 1700000000200
    )


def test_tombstones_and_newer_kinds() -> None:
    key = bytes.fromhex(KEY)
    assert records.decode(key, None) == Record(TransactionLogKey(transactional_id="my-tx-ü"), None)
    assert records.decode(b"\x00\x01" + key[2:], None) is None
    assert records.decode(key, b"\x00\x02\x00") is None
    assert records.decode(b"\x00", b"") is None
