"""Produce over a raw socket: acks, validation, idempotence, timestamps. All of it holds on Apache Kafka too."""

import time

import pytest
from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from support.brokers.disk import stored_batches
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.raw import RawClient
from support.log import batches
from support.log.batches import CODECS, CONTROL, LOG_APPEND_TIME, ZSTD, Producer, Written, batch

NONE, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE = 0, 2, 3, 10
INVALID_REQUIRED_ACKS, INVALID_TIMESTAMP, OUT_OF_ORDER, DUPLICATE, INVALID_EPOCH = 21, 32, 45, 46, 47
UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD = 43, 76, 87
HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends(raw: RawClient, create_topic: CreateTopic, version: int) -> None:
    name = create_topic()
    first = raw.produce(name, batch(Written(b"a"), Written(b"b")), version=version)
    second = raw.produce(name, batch(Written(b"c")), version=version)
    assert (first.error_code, first.base_offset) == (NONE, 0)
    assert (second.error_code, second.base_offset, second.log_append_time_ms) == (NONE, 2, -1)
    if version >= 5:
        assert second.log_start_offset == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_acks_one_and_all_answer_with_the_offset(raw: RawClient, create_topic: CreateTopic, acks: int) -> None:
    name = create_topic()
    assert raw.produce(name, batch(), acks=acks).base_offset == 0
    assert raw.produce(name, batch(), acks=acks).base_offset == 1


@pytest.mark.parametrize("acks", [2, -2, 127])
def test_other_acks_are_refused(raw: RawClient, create_topic: CreateTopic, acks: int) -> None:
    name = create_topic()
    answer = raw.produce(name, batch(), acks=acks)
    assert (answer.error_code, answer.base_offset) == (INVALID_REQUIRED_ACKS, -1)
    assert raw.list_offset(name, -1).offset == 0


def test_acks_zero_has_no_answer(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    raw.send(raw.produce_request(name, batch(Written(b"quiet")), acks=0), 12)
    found = raw.fetched(name, min_bytes=1, max_wait_ms=5000)
    assert batches.plain_values(found[0]) == [b"quiet"]


def test_acks_zero_with_an_error_closes_the_connection(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    raw.send(raw.produce_request(name, batch(crc=1), acks=0), 12)
    assert raw.is_closed()


def test_unknown_topic_and_partition(raw: RawClient, topic: str, create_topic: CreateTopic) -> None:
    assert raw.produce(topic, batch()).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert raw.produce(create_topic(), batch(), partition=7).error_code == UNKNOWN_TOPIC_OR_PARTITION


# -- what the broker checks in a batch

BROKEN = [
    ("checksum", {"crc": 12345}, CORRUPT_MESSAGE),
    ("count above the deltas", {"count": 2}, INVALID_RECORD),
    ("last offset delta above the count", {"last_offset_delta": 4}, INVALID_RECORD),
    ("control bit", {"attributes": CONTROL}, INVALID_RECORD),
]


@pytest.mark.parametrize(("fields", "error"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_broken_batches_are_refused(raw: RawClient, create_topic: CreateTopic, fields: dict, error: int) -> None:
    name = create_topic()
    answer = raw.produce(name, batch(Written(b"a"), **fields))
    assert (answer.error_code, answer.base_offset) == (error, -1), answer.error_message
    assert raw.list_offset(name, -1).offset == 0


def test_a_codec_that_does_not_exist_is_refused(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    answer = raw.produce(name, batch(Written(b"a"), attributes=5))
    assert answer.error_code != NONE
    assert raw.list_offset(name, -1).offset == 0


def test_old_magic_is_refused_with_its_error(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    for magic in (0, 1):
        request = raw.produce_request(name, batch(magic=magic))
        raw.send(request, 12)
        answer = raw.receive_or_closed(request)
        assert answer is None or answer.responses[0].partition_responses[0].error_code in (
            INVALID_RECORD,
            UNSUPPORTED_FOR_MESSAGE_FORMAT,
            CORRUPT_MESSAGE,
        )
    assert raw.list_offset(name, -1).offset == 0


def test_two_batches_for_one_partition_are_refused(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    assert raw.produce(name, batch() + batch()).error_code == INVALID_RECORD
    assert raw.list_offset(name, -1).offset == 0


def test_several_partitions_in_one_request(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=3)
    part = ProduceRequest.TopicProduceData.PartitionProduceData
    rows = [part(index=0, records=batch()), part(index=1, records=batch(crc=1)), part(index=2, records=batch())]
    data = ProduceRequest.TopicProduceData(name=name, partition_data=rows)
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=[data])
    found = {row.index: row.error_code for row in raw.ask(request, 12).responses[0].partition_responses}
    assert found == {0: NONE, 1: CORRUPT_MESSAGE, 2: NONE}


def test_max_message_bytes_limits_the_batch_as_sent(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic(configs={"max.message.bytes": "2000"})
    fitting = batch(Written(b"x" * (2000 - len(batch(Written(b"x" * 1900))) + 1900)))
    assert len(fitting) == 2000
    assert raw.produce(name, fitting).error_code == NONE
    assert raw.produce(name, batch(Written(b"x" * 1990))).error_code == MESSAGE_TOO_LARGE
    assert raw.produce(name, batch(Written(b"x" * 100_000), codec=batches.GZIP)).error_code == NONE


def test_a_compacted_topic_wants_keys(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic(configs={"cleanup.policy": "compact"})
    answer = raw.produce(name, batch(Written(b"a", key=b"k"), Written(b"b")))
    assert answer.error_code == INVALID_RECORD
    assert [row.batch_index for row in answer.record_errors] == [1]
    assert raw.produce(name, batch(Written(b"a", key=b"k"))).error_code == NONE


@pytest.mark.parametrize("codec", [batches.NONE, batches.GZIP])
@pytest.mark.parametrize("version", [8, 12])
def test_every_invalid_record_is_named(raw: RawClient, create_topic: CreateTopic, codec: int, version: int) -> None:
    """KIP-467: the others are told that these failed."""
    name = create_topic(configs={"cleanup.policy": "compact"})
    records = [Written(b"v", key=None if place % 10 == 0 else b"k") for place in range(100)]
    answer = raw.produce(name, batch(*records, codec=codec), version=version)
    assert answer.error_code == INVALID_RECORD
    assert [row.batch_index for row in answer.record_errors] == list(range(0, 100, 10))
    assert all("without" in row.batch_index_error_message for row in answer.record_errors)
    assert "10" in answer.error_message
    assert raw.list_offset(name, -1).offset == 0


def test_the_worst_error_of_a_batch_is_its_own(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic(configs={"cleanup.policy": "compact"})
    late = 2 * HOUR_MS
    records = Written(b"v", timestamp_delta=late), Written(b"v"), Written(b"v", key=b"k", timestamp_delta=late)
    answer = raw.produce(name, batch(*records, Written(b"v", key=b"k")))
    assert answer.error_code == INVALID_TIMESTAMP
    assert [row.batch_index for row in answer.record_errors] == [0, 1, 2]
    assert ["Timestamp" in row.batch_index_error_message for row in answer.record_errors] == [False, False, True]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_stored_as_it_was_sent(
    raw: RawClient, broker: AnyBroker, create_topic: CreateTopic, codec: str
) -> None:
    name = create_topic()
    sent = batch(*(Written(b"value " * 50) for _ in range(20)), codec=CODECS[codec])
    assert raw.produce(name, sent).error_code == NONE
    stored = stored_batches(broker, name)
    assert [found.codec for found in stored] == [CODECS[codec]]
    assert stored[0].raw[21:] == sent[21:], "compression.type=producer keeps the bytes"
    assert stored[0].crc_is_right


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_that_names_its_codec_recompresses(
    raw: RawClient, broker: AnyBroker, create_topic: CreateTopic, wanted: str
) -> None:
    name = create_topic(configs={"compression.type": wanted})
    for codec in CODECS.values():
        assert raw.produce(name, batch(*(Written(b"value " * 50) for _ in range(20)), codec=codec)).error_code == NONE
    stored = stored_batches(broker, name)
    assert {found.codec for found in stored} == {CODECS.get(wanted, 0)}
    assert [found.count for found in stored] == [20] * len(CODECS)
    assert all(found.crc_is_right for found in stored)


def test_zstd_below_produce_version_7_is_refused(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    assert raw.produce(name, batch(codec=ZSTD), version=6).error_code == UNSUPPORTED_COMPRESSION_TYPE
    assert raw.produce(name, batch(codec=ZSTD), version=7).error_code == NONE


# -- timestamps


def test_create_time_is_kept(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    answer = raw.produce(name, batch(timestamp=1_500_000_000_000))
    assert (answer.error_code, answer.log_append_time_ms) == (NONE, -1)
    assert raw.fetched(name)[0].max_timestamp == 1_500_000_000_000


def test_log_append_time_is_written_into_the_batch(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    answer = raw.produce(name, batch(timestamp=1_500_000_000_000))
    found = raw.fetched(name)[0]
    assert found.attributes & LOG_APPEND_TIME
    assert before <= found.max_timestamp <= now_ms()
    assert answer.log_append_time_ms == found.max_timestamp
    assert found.crc_is_right


def test_a_timestamp_more_than_an_hour_ahead_is_refused(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    answer = raw.produce(name, batch(Written(b"a"), Written(b"b", timestamp_delta=2 * HOUR_MS)))
    assert answer.error_code == INVALID_TIMESTAMP
    assert [row.batch_index for row in answer.record_errors] == [1]
    assert raw.produce(name, batch(timestamp=now_ms() + HOUR_MS // 2)).error_code == NONE


def test_a_timestamp_too_far_back_is_refused_where_the_topic_says_so(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic(configs={"message.timestamp.before.max.ms": str(HOUR_MS)})
    assert raw.produce(name, batch(timestamp=now_ms() - 2 * HOUR_MS)).error_code == INVALID_TIMESTAMP
    assert raw.produce(name, batch(timestamp=now_ms() - HOUR_MS // 2)).error_code == NONE


# -- idempotence


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_never_the_same(raw: RawClient, version: int) -> None:
    raw.new_producer()
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    answers = [raw.ask(request, version) for _ in range(5)]
    assert {(row.error_code, row.producer_epoch) for row in answers} == {(NONE, 0)}
    assert len({row.producer_id for row in answers}) == 5


def test_a_duplicate_is_answered_with_its_first_offset(raw: RawClient, create_topic: CreateTopic) -> None:
    name, who = create_topic(), raw.new_producer()
    sent = [batch(Written(b"a"), Written(b"b"), producer=who, sequence=2 * turn) for turn in range(5)]
    assert [raw.produce(name, each).base_offset for each in sent] == [0, 2, 4, 6, 8]
    for turn in (4, 0, 2):
        again = raw.produce(name, sent[turn])
        assert (again.error_code, again.base_offset) == (NONE, 2 * turn)
    assert raw.list_offset(name, -1).offset == 10


def test_only_the_last_five_batches_are_remembered(raw: RawClient, create_topic: CreateTopic) -> None:
    name, who = create_topic(), raw.new_producer()
    for sequence in range(6):
        assert raw.produce(name, batch(producer=who, sequence=sequence)).error_code == NONE
    assert raw.produce(name, batch(producer=who, sequence=1)).base_offset == 1
    forgotten = raw.produce(name, batch(producer=who, sequence=0)).error_code
    assert forgotten in (OUT_OF_ORDER, DUPLICATE)
    assert raw.list_offset(name, -1).offset == 6


def test_a_gap_is_refused(raw: RawClient, create_topic: CreateTopic) -> None:
    name, who = create_topic(), raw.new_producer()
    assert raw.produce(name, batch(producer=who, sequence=0)).error_code == NONE
    assert raw.produce(name, batch(producer=who, sequence=2)).error_code == OUT_OF_ORDER
    assert raw.produce(name, batch(producer=who, sequence=1)).error_code == NONE
    assert raw.list_offset(name, -1).offset == 2


def test_an_unknown_producer_may_start_anywhere(raw: RawClient, create_topic: CreateTopic) -> None:
    name, who = create_topic(), raw.new_producer()
    assert raw.produce(name, batch(producer=who, sequence=77)).error_code == NONE
    assert raw.produce(name, batch(producer=who, sequence=78)).error_code == NONE


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one(raw: RawClient, create_topic: CreateTopic) -> None:
    name, who = create_topic(), raw.new_producer()
    newer = Producer(who.id, who.epoch + 1)
    assert raw.produce(name, batch(producer=who, sequence=0)).error_code == NONE
    assert raw.produce(name, batch(producer=newer, sequence=5)).error_code == OUT_OF_ORDER
    assert raw.produce(name, batch(producer=newer, sequence=0)).error_code == NONE
    assert raw.produce(name, batch(producer=who, sequence=1)).error_code == INVALID_EPOCH


def test_sequences_wrap(raw: RawClient, create_topic: CreateTopic) -> None:
    name, who = create_topic(), raw.new_producer()
    last = 2**31 - 1
    assert raw.produce(name, batch(Written(b"a"), Written(b"b"), producer=who, sequence=last - 1)).error_code == NONE
    assert raw.produce(name, batch(producer=who, sequence=1)).error_code == OUT_OF_ORDER
    assert raw.produce(name, batch(Written(b"c"), Written(b"d"), producer=who, sequence=0)).error_code == NONE
    across = raw.new_producer()
    assert raw.produce(name, batch(Written(b"e"), Written(b"f"), producer=across, sequence=last)).error_code == NONE
    assert raw.produce(name, batch(producer=across, sequence=1)).error_code == NONE


def test_describe_producers_shows_who_wrote(raw: RawClient, create_topic: CreateTopic) -> None:
    name, who = create_topic(), raw.new_producer()
    assert raw.produce(name, batch(Written(b"a"), Written(b"b"), producer=who, sequence=0)).error_code == NONE
    asked = DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0])
    found = raw.ask(DescribeProducersRequest(topics=[asked]), 0).topics[0].partitions[0]
    assert found.error_code == NONE
    state = found.active_producers[0]
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (who.id, who.epoch, 1)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)
    assert abs(state.last_timestamp - now_ms()) < HOUR_MS
