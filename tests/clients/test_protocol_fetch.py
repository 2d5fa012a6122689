"""Fetch, fetch sessions, ListOffsets and leader epochs over a raw socket. All of it holds on Apache Kafka too."""

import time
import uuid

import pytest
from kafka.protocol.admin import DeleteRecordsRequest
from kafka.protocol.consumer import FetchRequest, OffsetForLeaderEpochRequest

from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients.raw import NO_TOPIC, RawClient
from support.log.batches import ZSTD, Written, batch, plain_values, read_batches

NONE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION = 0, 1, 3
SESSION_ID_NOT_FOUND, INVALID_SESSION_EPOCH, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 70, 71, 74, 75
UNSUPPORTED_COMPRESSION_TYPE, UNKNOWN_TOPIC_ID = 76, 100
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


def fill(raw: RawClient, name: str, *values: bytes, partition: int = 0) -> None:
    """One batch for each value."""
    for value in values:
        assert raw.produce(name, batch(Written(value)), partition).error_code == NONE


def values(answer: object) -> list[bytes | None]:
    return [value for found in read_batches(bytes(answer.records or b"")) for value in plain_values(found)]


# -- Fetch


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads(raw: RawClient, create_topic: CreateTopic, version: int) -> None:
    name = create_topic()
    fill(raw, name, b"a", b"b", b"c")
    answer = raw.fetch(name, 1, version=version)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (NONE, 3, 3)
    assert values(answer) == [b"b", b"c"]
    if version >= 5:
        assert answer.log_start_offset == 0


def test_an_offset_inside_a_batch_returns_the_whole_batch(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    raw.produce(name, batch(Written(b"a"), Written(b"b"), Written(b"c")))
    assert raw.fetched(name, 2)[0].base_offset == 0


def test_at_the_log_end_it_waits_and_answers_with_zero_bytes(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    fill(raw, name, b"a")
    started = time.monotonic()
    answer = raw.fetch(name, 1, max_wait_ms=300)
    assert time.monotonic() - started >= 0.29
    assert (answer.error_code, answer.records) == (NONE, b""), "records are of zero length, never null"


def test_a_waiting_fetch_is_answered_when_something_arrives(
    raw: RawClient, broker: AnyBroker, create_topic: CreateTopic
) -> None:
    name = create_topic()
    request = raw.fetch_request(name, 0, max_wait_ms=25_000)
    raw.send(request, 12)
    assert raw.is_silent(0.2)
    with RawClient(broker.bootstrap) as other:
        fill(other, name, b"at last")
    assert values(raw.receive(request).responses[0].partitions[0]) == [b"at last"]


def test_it_waits_until_min_bytes_are_there(raw: RawClient, broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic()
    request = raw.fetch_request(name, 0, max_wait_ms=25_000, min_bytes=2000)
    raw.send(request, 12)
    with RawClient(broker.bootstrap) as other:
        fill(other, name, b"x" * 1000)
        assert raw.is_silent(0.2)
        fill(other, name, b"x" * 1000)
    assert len(values(raw.receive(request).responses[0].partitions[0])) == 2


def test_beyond_the_log_end_and_before_its_start(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    fill(raw, name, b"a")
    for offset in (2, 1000, -1):
        answer = raw.fetch(name, offset, max_wait_ms=25_000)
        assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (OFFSET_OUT_OF_RANGE, -1, -1)
        assert not answer.records


def test_an_error_in_one_partition_answers_at_once(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    request = raw.fetch_request(name, 0, max_wait_ms=25_000)
    request.topics[0].partitions += raw.fetch_request(name, 99, partition=1).topics[0].partitions
    found = {row.partition_index: row.error_code for row in raw.ask(request, 12).responses[0].partitions}
    assert found == {0: NONE, 1: OFFSET_OUT_OF_RANGE}


def test_the_first_batch_is_returned_whole_above_all_limits(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    for partition in (0, 1):
        fill(raw, name, b"x" * 50_000, b"y" * 50_000, partition=partition)
    request = raw.fetch_request(name, 0, max_bytes=10, partition_max_bytes=10)
    request.topics[0].partitions += raw.fetch_request(name, 0, partition=1, partition_max_bytes=10).topics[0].partitions
    found = {row.partition_index: len(values(row)) for row in raw.ask(request, 12).responses[0].partitions}
    assert found == {0: 1, 1: 0}


def test_partition_max_bytes_bounds_a_partition(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    for partition in (0, 1):
        fill(raw, name, *(b"x" * 1000 for _ in range(10)), partition=partition)
    request = raw.fetch_request(name, 0, partition_max_bytes=3500)
    request.topics[0].partitions += (
        raw.fetch_request(name, 0, partition=1, partition_max_bytes=3500).topics[0].partitions
    )
    answer = raw.ask(request, 12)
    assert {row.partition_index: len(values(row)) for row in answer.responses[0].partitions} == {0: 3, 1: 3}
    assert all(len(row.records) <= 3500 for row in answer.responses[0].partitions)


def test_max_bytes_zero_still_makes_progress(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    fill(raw, name, b"a", b"b")
    assert values(raw.fetch(name, 0, max_bytes=0, min_bytes=0, max_wait_ms=0)) in ([b"a"], [])
    assert values(raw.fetch(name, 0, max_bytes=1)) == [b"a"]


def test_unknown_topics(raw: RawClient, topic: str, create_topic: CreateTopic) -> None:
    assert raw.fetch(topic, 0).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert raw.fetch(create_topic(), 0, partition=9).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert raw.fetch("x", 0, version=16, topic_id=uuid.uuid4()).error_code == UNKNOWN_TOPIC_ID


def test_zstd_below_fetch_version_10_is_whole_or_refused(raw: RawClient, create_topic: CreateTopic) -> None:
    """KIP-110 says refused; Apache Kafka 4 no longer looks into the batches and sends them. Never something else."""
    name = create_topic(configs={"compression.type": "zstd"})
    assert raw.produce(name, batch(codec=ZSTD)).error_code == NONE
    old, new = raw.fetch(name, 0, version=9), raw.fetch(name, 0, version=10)
    assert (new.error_code, [found.codec for found in read_batches(bytes(new.records))]) == (NONE, [ZSTD])
    assert old.error_code == UNSUPPORTED_COMPRESSION_TYPE or old.records == new.records


def test_leader_epochs_are_fenced(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    epoch = raw.metadata(name).partitions[0].leader_epoch
    assert epoch >= 0
    assert raw.fetch(name, 0, leader_epoch=epoch, max_wait_ms=0).error_code == NONE
    assert raw.fetch(name, 0, leader_epoch=epoch + 1).error_code == UNKNOWN_LEADER_EPOCH
    assert raw.list_offset(name, LATEST, leader_epoch=epoch).error_code == NONE
    assert raw.list_offset(name, LATEST, leader_epoch=epoch + 1).error_code == UNKNOWN_LEADER_EPOCH


def test_an_older_leader_epoch_is_fenced_after_a_restart(start_broker: StartBroker) -> None:
    own = start_broker()
    with RawClient(own.bootstrap) as client:
        client.create_topic("epochs")
        fill(client, "epochs", b"a")
        before = client.metadata("epochs").partitions[0].leader_epoch
    own.restart()
    with RawClient(own.bootstrap) as client:
        client.wait_for_topic("epochs", 1)
        now = client.metadata("epochs").partitions[0].leader_epoch
        assert now >= before
        if now > before:
            assert client.fetch("epochs", 0, leader_epoch=before).error_code == FENCED_LEADER_EPOCH
        fill(client, "epochs", b"b")
        assert [found.leader_epoch for found in client.fetched("epochs")] == [before, now]


# -- fetch sessions (KIP-227)


class Session:
    """An incremental fetch session, kept by hand."""

    def __init__(self, raw: RawClient, name: str, partitions: dict[int, int]) -> None:
        self.raw, self.name = raw, name
        request = raw.fetch_request(name, 0, session_epoch=0, max_wait_ms=0)
        request.topics[0].partitions = self.rows(partitions)
        self.opened = raw.ask(request, 12)
        self.id, self.epoch = self.opened.session_id, 1

    def rows(self, partitions: dict[int, int]) -> list[object]:
        return [
            self.raw.fetch_request(self.name, offset, index).topics[0].partitions[0]
            for index, offset in partitions.items()
        ]

    def ask(
        self, changed: dict[int, int] | None = None, forget: tuple[int, ...] = (), epoch: int | None = None
    ) -> object:
        gone = [FetchRequest.ForgottenTopic(topic=self.name, topic_id=NO_TOPIC, partitions=list(forget))]
        request = self.raw.fetch_request(
            self.name if changed else "",
            0,
            max_wait_ms=0,
            session_id=self.id,
            session_epoch=self.epoch if epoch is None else epoch,
            forgotten=gone if forget else [],
        )
        if changed:
            request.topics[0].partitions = self.rows(changed)
        answer = self.raw.ask(request, 12)
        if answer.error_code == NONE:
            self.epoch += 1
        return answer


def shown(answer: object) -> dict[int, list[bytes | None]]:
    return {row.partition_index: values(row) for found in answer.responses for row in found.partitions}


def test_a_session_leaves_out_what_did_not_change(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=3)
    fill(raw, name, b"a")
    session = Session(raw, name, {0: 0, 1: 0, 2: 0})
    assert session.id != 0
    assert shown(session.opened) == {0: [b"a"], 1: [], 2: []}
    assert shown(session.ask({0: 1})) == {}
    fill(raw, name, b"b", partition=1)
    assert shown(session.ask()) == {1: [b"b"]}
    assert shown(session.ask({1: 1})) == {}


def test_a_session_forgets_and_adds_partitions(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=3)
    session = Session(raw, name, {0: 0, 1: 0})
    assert shown(session.ask(forget=(1,))) == {}
    fill(raw, name, b"a", partition=1)
    fill(raw, name, b"b", partition=2)
    assert shown(session.ask()) == {}
    assert shown(session.ask({2: 0})) == {2: [b"b"]}


def test_wrong_session_ids_and_epochs(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    session = Session(raw, name, {0: 0})
    assert session.ask(epoch=session.epoch + 1).error_code == INVALID_SESSION_EPOCH
    assert session.ask().error_code == NONE
    assert session.ask(epoch=1).error_code == INVALID_SESSION_EPOCH
    session.id += 1 if session.id < 2**31 - 1 else -1
    answer = session.ask()
    assert (answer.error_code, answer.responses) == (SESSION_ID_NOT_FOUND, [])


def test_epoch_minus_one_closes_the_session(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    session = Session(raw, name, {0: 0})
    answer = session.ask({0: 0}, epoch=-1)
    assert (answer.error_code, answer.session_id) == (NONE, 0)
    assert session.ask(epoch=1).error_code == SESSION_ID_NOT_FOUND


def test_a_full_fetch_without_session_has_session_id_zero(raw: RawClient, create_topic: CreateTopic) -> None:
    request = raw.fetch_request(create_topic(), 0, session_epoch=-1, max_wait_ms=0)
    assert raw.ask(request, 12).session_id == 0


def test_sessions_beyond_the_limit_are_refused_or_evict(start_broker: StartBroker) -> None:
    own = start_broker(max_incremental_fetch_session_cache_slots=8)
    with RawClient(own.bootstrap) as client:
        client.create_topic("many")
        opened = [Session(client, "many", {0: 0}).id for _ in range(50)]
        assert sum(session != 0 for session in opened) <= 8
        assert all(session == 0 or opened.count(session) == 1 for session in opened)


# -- ListOffsets


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_earliest_and_latest(raw: RawClient, create_topic: CreateTopic, version: int) -> None:
    name = create_topic()
    assert raw.list_offset(name, LATEST, version=version).offset == 0
    fill(raw, name, b"a", b"b")
    latest, earliest = (raw.list_offset(name, when, version=version) for when in (LATEST, EARLIEST))
    assert (latest.error_code, latest.offset, latest.timestamp) == (NONE, 2, -1)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (NONE, 0, -1)
    if version >= 4:
        assert latest.leader_epoch >= 0


def test_list_offsets_by_time(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    for when in (1000, 3000, 2000, 5000):
        raw.produce(name, batch(Written(b"a"), Written(b"b", timestamp_delta=10), timestamp=when))
    expected = {0: (0, 1000), 1000: (0, 1000), 1001: (1, 1010), 1011: (2, 3000), 3005: (3, 3010), 3011: (6, 5000)}
    for asked, (offset, timestamp) in expected.items():
        found = raw.list_offset(name, asked)
        assert (found.error_code, found.offset, found.timestamp) == (NONE, offset, timestamp), asked
    late = raw.list_offset(name, 5011)
    assert (late.error_code, late.offset, late.timestamp) == (NONE, -1, -1)


def test_list_offsets_max_timestamp(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    none = raw.list_offset(name, MAX_TIMESTAMP)
    assert (none.offset, none.timestamp) == (-1, -1)
    raw.produce(name, batch(Written(b"a"), Written(b"b", timestamp_delta=9), Written(b"c"), timestamp=7000))
    raw.produce(name, batch(timestamp=6000))
    found = raw.list_offset(name, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (1, 7009)


def test_list_offsets_of_the_newer_kinds(raw: RawClient, create_topic: CreateTopic) -> None:
    """Without tiered storage the local log is the whole log, and nothing was uploaded."""
    name = create_topic()
    fill(raw, name, b"a", b"b")
    assert raw.list_offset(name, EARLIEST_LOCAL, version=8).offset == 0
    tiered = raw.list_offset(name, LATEST_TIERED, version=9)
    assert (tiered.error_code, tiered.offset, tiered.timestamp) == (NONE, -1, -1)
    pending = raw.list_offset(name, EARLIEST_PENDING_UPLOAD, version=11)
    assert (pending.error_code, pending.offset, pending.timestamp) == (NONE, -1, -1)


UNKNOWN_BELOW = [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (EARLIEST_PENDING_UPLOAD, 10), (-7, 11)]


@pytest.mark.parametrize(("when", "version"), UNKNOWN_BELOW)
def test_list_offsets_refuses_kinds_that_its_version_does_not_know(
    raw: RawClient, create_topic: CreateTopic, when: int, version: int
) -> None:
    found = raw.list_offset(create_topic(), when, version=version)
    assert found.error_code == 35  # UNSUPPORTED_VERSION
    assert found.offset == -1


def test_list_offsets_of_unknown_topics(raw: RawClient, topic: str) -> None:
    assert raw.list_offset(topic, LATEST).error_code == UNKNOWN_TOPIC_OR_PARTITION


# -- DeleteRecords and leader epochs


@pytest.mark.parametrize("version", range(3))
def test_delete_records_moves_the_log_start(raw: RawClient, create_topic: CreateTopic, version: int) -> None:
    name = create_topic()
    fill(raw, name, b"a", b"b", b"c")

    def delete(offset: int) -> object:
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        part = topic.DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[topic(name=name, partitions=[part])], timeout_ms=10_000)
        return raw.ask(request, version).topics[0].partitions[0]

    answer = delete(2)
    assert (answer.error_code, answer.low_watermark) == (NONE, 2)
    assert raw.list_offset(name, EARLIEST).offset == 2
    assert raw.fetch(name, 1).error_code == OFFSET_OUT_OF_RANGE
    assert raw.fetch(name, 2).log_start_offset == 2
    assert delete(9).error_code == OFFSET_OUT_OF_RANGE
    assert delete(-1).low_watermark == 3
    assert raw.list_offset(name, EARLIEST).offset == 3


@pytest.mark.parametrize("version", range(2, 5))
def test_offset_for_leader_epoch(raw: RawClient, create_topic: CreateTopic, version: int) -> None:
    name = create_topic()
    fill(raw, name, b"a", b"b")
    epoch = raw.metadata(name).partitions[0].leader_epoch

    def end_offset(asked: int, current: int = -1) -> object:
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        part = topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=asked)
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=name, partitions=[part])])
        return raw.ask(request, version).topics[0].partitions[0]

    found = end_offset(epoch)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (NONE, epoch, 2)
    found = end_offset(epoch + 1)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (NONE, -1, -1)
    assert end_offset(epoch, current=epoch + 1).error_code == UNKNOWN_LEADER_EPOCH
