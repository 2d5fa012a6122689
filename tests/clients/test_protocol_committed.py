"""Reading committed records over a raw socket, and batches outside of transactions. It holds on Apache Kafka too."""

import time
from typing import Any

import pytest
from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.producer import ProduceRequest

from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients.raw import NO_TOPIC, RawClient
from support.clients.raw_transactions import RawTransactions
from support.log.batches import TRANSACTIONAL, Producer, Written, batch, read_batches

NONE, INVALID_TOPIC, OUT_OF_ORDER = 0, 17, 45
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING = 47, 48, 49
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@pytest.fixture
def place(create_topic: CreateTopic) -> str:
    return create_topic()


@pytest.fixture
def writers(raw: RawClient, topic: str) -> list[RawTransactions]:
    return [RawTransactions(raw, f"{topic}-{number}") for number in range(3)]


def marked(raw: RawClient, place: str, end: int) -> None:
    """Wait until the partition ends here: Apache Kafka writes markers after its answer."""
    until = time.monotonic() + 30
    while raw.list_offset(place, LATEST).offset != end and time.monotonic() < until:
        time.sleep(0.02)
    assert raw.list_offset(place, LATEST).offset == end


def aborted(answer: Any) -> list[tuple[int, int]] | None:
    found = answer.aborted_transactions
    return None if found is None else [(each.producer_id, each.first_offset) for each in found]


def offsets(answer: Any) -> list[int]:
    return [each.base_offset for each in read_batches(bytes(answer.records or b""))]


def open_one_after_two_ended(raw: RawClient, writers: list[RawTransactions], place: str) -> list[Producer]:
    """0 and 2 of the first, aborted at 3; 1 of the second, committed at 4; 5 of the third, still open; 6 is plain."""
    first, second, third = (writer.start() for writer in writers)
    assert writers[0].produce(first, place, 0) == NONE
    assert writers[1].produce(second, place, 0) == NONE
    assert writers[0].produce(first, place, 1) == NONE
    assert writers[0].end(first, False).error == NONE
    marked(raw, place, 4)
    assert writers[1].end(second, True).error == NONE
    marked(raw, place, 5)
    assert writers[2].produce(third, place, 0) == NONE
    assert raw.produce(place, batch(Written(b"plain"))).error_code == NONE
    return [first, second, third]


@pytest.mark.parametrize("version", [4, 5, 11, 12, 17])
def test_a_fetch_of_committed_records(raw: RawClient, writers: list[RawTransactions], place: str, version: int) -> None:
    first, *_ = open_one_after_two_ended(raw, writers, place)
    everything = raw.fetch(place, 0, version=version)
    assert (everything.high_watermark, everything.last_stable_offset, aborted(everything)) == (7, 5, None)
    assert offsets(everything) == [0, 1, 2, 3, 4, 5, 6]
    committed = raw.fetch(place, 0, version=version, isolation=COMMITTED)
    assert (committed.high_watermark, committed.last_stable_offset) == (7, 5)
    assert aborted(committed) == [(first.id, 0)]
    assert offsets(committed) == [0, 1, 2, 3, 4]
    assert aborted(raw.fetch(place, 3, version=version, isolation=COMMITTED)) == [(first.id, 0)]
    behind = raw.fetch(place, 4, version=version, isolation=COMMITTED)
    assert (aborted(behind), offsets(behind)) == ([], [4])
    at_the_end = raw.fetch(place, 5, version=version, isolation=COMMITTED, max_wait_ms=0)
    assert (aborted(at_the_end), offsets(at_the_end)) == ([], [])
    assert offsets(raw.fetch(place, 6, version=version, isolation=COMMITTED, max_wait_ms=0)) == []
    outside = raw.fetch(place, 99, version=version, isolation=COMMITTED)
    assert (outside.error_code, aborted(outside)) == (1, None)


def test_a_waiting_fetch_of_committed_records_wakes_for_the_marker_alone(
    raw: RawClient, broker: AnyBroker, writers: list[RawTransactions], place: str
) -> None:
    writer = writers[0]
    producer = writer.start()
    assert writer.produce(producer, place, 0) == NONE
    with RawClient(broker.bootstrap) as waiting:
        request = waiting.fetch_request(place, 0, isolation=COMMITTED, max_wait_ms=20_000)
        waiting.send(request, 12)
        for sequence in range(1, 4):
            assert writer.produce(producer, place, sequence) == NONE
        assert waiting.is_silent(0.3)
        assert writer.end(producer, True).error == NONE
        answer = waiting.receive(request).responses[0].partitions[0]
        assert offsets(answer) == [0, 1, 2, 3, 4]


def test_offsets_by_isolation(raw: RawClient, writers: list[RawTransactions], place: str) -> None:
    open_one_after_two_ended(raw, writers, place)
    assert raw.list_offset(place, LATEST).offset == 7
    assert raw.list_offset(place, LATEST, isolation=COMMITTED).offset == 5
    assert raw.list_offset(place, EARLIEST, isolation=COMMITTED).offset == 0
    now = int(time.time() * 1000) + 60_000
    late = batch(Written(b"late"), timestamp=now)
    assert raw.produce(place, late).error_code == NONE
    assert raw.list_offset(place, now).offset == 7
    assert raw.list_offset(place, now, isolation=COMMITTED).offset == -1
    assert raw.list_offset(place, MAX_TIMESTAMP).offset == 7
    assert raw.list_offset(place, MAX_TIMESTAMP, isolation=COMMITTED).offset == -1


def test_open_transactions_are_described(raw: RawClient, writers: list[RawTransactions], place: str) -> None:
    first, second, third = open_one_after_two_ended(raw, writers, place)
    item = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[item(name=place, partition_indexes=[0])])
    [found] = raw.ask(request, 0).topics[0].partitions
    told = {
        each.producer_id: (
            each.producer_epoch,
            each.last_sequence,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in found.active_producers
    }
    assert told == {first.id: (1, -1, 0, -1), second.id: (1, -1, 0, -1), third.id: (0, 0, -1, 5)}


# -- batches


def transactional(producer: Producer, sequence: int = 0) -> bytes:
    return batch(Written(b"v"), producer=producer, sequence=sequence, attributes=TRANSACTIONAL)


def test_a_transactional_batch_needs_a_transactional_id(
    raw: RawClient, writers: list[RawTransactions], place: str
) -> None:
    producer = writers[0].start()
    answer = raw.produce(place, transactional(producer))
    assert answer.error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_plain_batch_in_the_middle_of_a_transaction(
    raw: RawClient, writers: list[RawTransactions], place: str
) -> None:
    producer = writers[0].start()
    assert writers[0].produce(producer, place, 0) == NONE
    plain = batch(Written(b"v"), producer=producer, sequence=1)
    assert raw.produce(place, plain).error_code == INVALID_TXN_STATE
    assert writers[0].produce(producer, place, 1) == NONE


def test_a_transactional_id_does_not_make_a_batch_transactional(
    raw: RawClient, writers: list[RawTransactions], place: str
) -> None:
    request = raw.produce_request(place, batch(Written(b"v")), transactional_id=writers[0].id)
    assert raw.ask(request, 12).responses[0].partition_responses[0].error_code == NONE
    assert raw.list_offset(place, LATEST, isolation=COMMITTED).offset == 1


def test_two_producers_in_a_request(raw: RawClient, writers: list[RawTransactions], create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    item = ProduceRequest.TopicProduceData
    data = [item.PartitionProduceData(index=index, records=transactional(writers[index].start())) for index in range(2)]
    topics = [item(name=name, topic_id=NO_TOPIC, partition_data=data)]
    request = ProduceRequest(transactional_id=writers[0].id, acks=-1, timeout_ms=10_000, topic_data=topics)
    answers = raw.ask(request, 12).responses[0].partition_responses
    assert [each.error_code for each in answers] == [INVALID_PRODUCER_ID_MAPPING] * 2


def test_sequences_in_transactions(raw: RawClient, writers: list[RawTransactions], place: str) -> None:
    writer = writers[0]
    producer = writer.start()
    assert writer.produce(producer, place, 5) == OUT_OF_ORDER  # each transaction begins at 0, where nothing is known
    assert writer.produce(producer, place, 0) == NONE
    assert writer.produce(producer, place, 2) == OUT_OF_ORDER
    assert writer.produce(producer, place, 0) == NONE  # again
    assert writer.produce(producer, place, 1) == NONE
    assert raw.list_offset(place, LATEST).offset == 2
    newer = writer.start()
    assert newer.epoch > producer.epoch
    assert writer.produce(producer, place, 2) == INVALID_PRODUCER_EPOCH


def test_strangers_begin_no_transaction(raw: RawClient, writers: list[RawTransactions], place: str, topic: str) -> None:
    producer = writers[0].start()
    writers[0].id = f"{topic}-unknown"
    assert writers[0].produce(producer, place, 0) == INVALID_PRODUCER_ID_MAPPING
    assert writers[0].produce(producer, place, 0, version=11) == INVALID_PRODUCER_ID_MAPPING


def test_clients_do_not_write_to_internal_topics(raw: RawClient, writers: list[RawTransactions]) -> None:
    keyed = batch(Written(b"v", b"k"))
    assert raw.produce("__transaction_state", keyed).error_code == INVALID_TOPIC


# -- restarts


@pytest.mark.parametrize("way", ["kill", "stop"])
def test_a_restart_knows_open_and_aborted_transactions(start_broker: StartBroker, topic: str, way: str) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as raw:
        raw.create_topic(topic)
        writers = [RawTransactions(raw, f"{topic}-{number}") for number in range(3)]
        first, _, third = open_one_after_two_ended(raw, writers, topic)
    getattr(broker, way)()
    broker.start()
    with RawClient(broker.bootstrap) as raw:
        raw.wait_for_topic(topic, 1)
        committed = raw.fetch(topic, 0, isolation=COMMITTED)
        assert (committed.last_stable_offset, aborted(committed)) == (5, [(first.id, 0)])
        writer = RawTransactions(raw, f"{topic}-2")
        assert writer.produce(third, topic, 1) == NONE
        assert writer.end(third, False).error == NONE
        marked(raw, topic, 9)
        assert aborted(raw.fetch(topic, 0, isolation=COMMITTED)) == [(first.id, 0), (third.id, 5)]
