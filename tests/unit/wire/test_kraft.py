"""Records of a KRaft metadata log; the bytes are what Kafka 4.3.1 writes."""

from uuid import UUID

import pytest

from moldau.wire.codec import MalformedMessage, UnsupportedVersion, encode
from moldau.wire.declare import replace
from moldau.wire.messages.kraft import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
)

TOPIC = UUID("3ba39173-ca06-5f37-275e-cb2ed0099b61")
DIRECTORY = UUID(int=1)
PARTITION = PartitionRecord(
    partition_id=2,
    topic_id=TOPIC,
    replicas=(1, 2),
    isr=(1,),
    removing_replicas=(),
    adding_replicas=(2,),
    leader=1,
    leader_epoch=3,
    partition_epoch=4,
)
IN_ALL_PARTITION_RECORDS = (
    "000000023ba39173ca065f37275ecb2ed0099b610300000001000000020200000001010200000002000000010000000300000004"
)

RECORDS = [
    ("01020005696e20413ba39173ca065f37275ecb2ed0099b6100", TopicRecord(name="in A", topic_id=TOPIC)),
    (f"010300{IN_ALL_PARTITION_RECORDS}00", PARTITION),
    (f"010301{IN_ALL_PARTITION_RECORDS}02{DIRECTORY.hex}00", replace(PARTITION, directories=(DIRECTORY,))),
    (
        f"010302{IN_ALL_PARTITION_RECORDS}02{DIRECTORY.hex}0300010101050200000002020101",
        replace(
            PARTITION,
            directories=(DIRECTORY,),
            leader_recovery_state=1,
            eligible_leader_replicas=(2,),
            last_known_elr=(),
        ),
    ),
    (
        "0104000205696e20410f636c65616e75702e706f6c69637908636f6d7061637400",
        ConfigRecord(resource_type=2, resource_name="in A", name="cleanup.policy", value="compact"),
    ),
    (
        "0104000205696e20410f636c65616e75702e706f6c6963790000",
        ConfigRecord(resource_type=2, resource_name="in A", name="cleanup.policy", value=None),
    ),
    (
        "010500000000023ba39173ca065f37275ecb2ed0099b61020009030000000100000002010400000002",
        PartitionChangeRecord(partition_id=2, topic_id=TOPIC, isr=(1, 2), leader=2),
    ),
    (
        "010501000000023ba39173ca065f37275ecb2ed0099b61020205020000000308110200000000000000000000000000000001",
        PartitionChangeRecord(partition_id=2, topic_id=TOPIC, replicas=(3,), directories=(DIRECTORY,)),
    ),
    (
        "010502000000023ba39173ca065f37275ecb2ed0099b6105030101040502000000040501000605020000000207050200000003",
        PartitionChangeRecord(
            partition_id=2,
            topic_id=TOPIC,
            removing_replicas=(),
            adding_replicas=(4,),
            leader_recovery_state=0,
            eligible_leader_replicas=(2,),
            last_known_elr=(3,),
        ),
    ),
    ("0109003ba39173ca065f37275ecb2ed0099b6100", RemoveTopicRecord(topic_id=TOPIC)),
    (
        "010c00116d657461646174612e76657273696f6e001d00",
        FeatureLevelRecord(name="metadata.version", feature_level=29),
    ),
    (
        "010f00000000010000000000000009000000000000138800",
        ProducerIdsRecord(broker_id=1, broker_epoch=9, next_producer_id=5000),
    ),
    ("01170000", BeginTransactionRecord()),
    ("01170001000a0a426f6f747374726170", BeginTransactionRecord(name="Bootstrap")),
    ("01180000", EndTransactionRecord()),
    ("01190000", AbortTransactionRecord()),
    ("011900010003036e6f", AbortTransactionRecord(reason="no")),
]


@pytest.mark.parametrize(("raw", "record"), RECORDS)
def test_records_as_kafka_writes_them(raw: str, record: object) -> None:
    value = bytes.fromhex(raw)
    assert decode_metadata_record(value) == record
    assert encode(record, value[2]) == value[3:]


@pytest.mark.parametrize(("raw", "record"), RECORDS)
def test_a_record_cut_at_any_byte_is_malformed(raw: str, record: object) -> None:
    value = bytes.fromhex(raw)
    for cut in range(len(value)):
        with pytest.raises(MalformedMessage):
            decode_metadata_record(value[:cut])


def test_a_change_record_leaves_alone_what_it_does_not_name() -> None:
    change = decode_metadata_record(bytes.fromhex(RECORDS[6][0]))
    assert isinstance(change, PartitionChangeRecord)
    assert (change.replicas, change.directories, change.leader_recovery_state) == (None, None, -1)


def test_types_that_an_import_has_no_use_for_are_none() -> None:
    assert decode_metadata_record(bytes.fromhex("011400")) is None  # no operation
    assert decode_metadata_record(bytes.fromhex("01ff7f00cafe")) is None  # a type yet to come


def test_what_is_from_a_newer_kafka_is_not_guessed_at() -> None:
    with pytest.raises(UnsupportedVersion, match="TopicRecord has versions 0 to 0, not 9"):
        decode_metadata_record(bytes.fromhex("010209"))
    with pytest.raises(UnsupportedVersion, match="frame version 2"):
        decode_metadata_record(bytes.fromhex("020200"))
