"""Committed offsets on a shard: what its log may hold, and how much is written at once. Scripts tell the rest."""

from uuid import UUID

import pytest

from moldau.base.coordination import Caller, Decision, Record, Timer, TimerFired
from moldau.base.errors import WireError
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics, TopicView
from moldau.groups.offsets import commit as offsets_commit
from moldau.groups.offsets import fetch as offsets_fetch
from moldau.groups.offsets.packed import CommittedOffset, group_prefix, pack_partition, pack_topic, unpack_value
from moldau.groups.records import OffsetCommitKey, OffsetCommitValue, encode
from moldau.groups.shard import MAX_BATCH_BYTES, TOPICS_TIMER, GroupShard
from moldau.wire.codec import MalformedMessage, UnsupportedVersion
from moldau.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from moldau.wire.messages.offset_fetch import OffsetFetchGroup, OffsetFetchTopic
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)

ID = UUID(int=1)
TOPIC = TopicView(ID, "t", 1000)
KNOWN = Topics(1, {"t": TOPIC}, {ID: TOPIC})
ASKER = Caller("token", 9, "client", "/127.0.0.1")
VALUE = OffsetCommitValue(offset=7, metadata="", commit_timestamp=5)


def env(now: int = 0, topics: Topics = KNOWN) -> GroupEnvironment:
    return GroupEnvironment(now, GroupConfig(offsets_retention_ms=1000), lambda: "id", topics)


def key(group: str = "g", topic: str = "t", partition: int = 0) -> bytes:
    return pack_partition(group_prefix(group) + pack_topic(topic), partition)


def value(of: OffsetCommitValue = VALUE) -> bytes:
    packed = encode(Record(OffsetCommitKey(group="g", topic="t", partition=0), of))[1]
    assert packed is not None
    return packed


def commit(group: str, partitions: range, name: str = "t") -> OffsetCommitRequest:
    each = tuple(OffsetCommitPartition(partition_index=partition, committed_offset=7) for partition in partitions)
    return OffsetCommitRequest(group_id=group, topics=(OffsetCommitTopic(name=name, partitions=each),))


def execute(shard: GroupShard, decision: Decision) -> int:
    for record in decision.records:
        shard.apply(record, decision.producer_id)
    return len(decision.records)


def test_offsets_may_be_kept_for_as_long_as_there_are_numbers() -> None:
    shard = GroupShard()
    request = OffsetCommitRequest(group_id="g", topics=commit("g", range(1)).topics, retention_time_ms=2**63 - 1)
    execute(shard, shard.decide(request, ASKER._replace(version=2), env(now=1000)))
    stored = shard.offsets.get("g", pack_partition(pack_topic("t"), 0))
    assert stored is not None
    assert unpack_value(stored).expire_timestamp == 2**63 - 1


@pytest.mark.parametrize("broken", [key()[:3], key()[:-1], key() + b"\0", b"\0\1\x7f\xff", b"\0\1\0\1\xff" + key()[5:]])
def test_a_broken_key_stops_a_replay(broken: bytes) -> None:
    with pytest.raises(MalformedMessage):
        GroupShard().replay(broken, value())


@pytest.mark.parametrize(
    ("broken", "error"),
    [(b"", MalformedMessage), (value()[:10], MalformedMessage), (b"\0\5" + value()[2:], UnsupportedVersion)],
)
def test_a_value_that_cannot_be_read_stops_a_replay(broken: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        GroupShard().replay(key(), broken)


def test_a_value_that_ends_within_its_metadata_is_not_guessed_at() -> None:
    with pytest.raises(MalformedMessage):
        unpack_value(b"\0\4" + bytes(12) + b"\x7f" + bytes(8))
    with pytest.raises(MalformedMessage):
        unpack_value(b"\0\4" + bytes(12) + b"\xff\xff")


def test_tags_of_a_newer_broker_are_skipped() -> None:
    assert unpack_value(value()[:-1] + b"\1\7\2xx") == CommittedOffset(7, -1, "", 5, -1, UUID(int=0))


def test_offsets_of_brokers_before_0_9_are_read() -> None:
    shard = GroupShard()
    shard.replay(b"\0\0" + key()[2:], b"\0\0" + bytes(7) + b"\7" + b"\0\1x" + bytes(8))
    asked = OffsetFetchGroup(group_id="g", topics=None)
    (topic,) = shard.fetch_offsets(asked, False, 9, KNOWN).topics
    assert [(each.committed_offset, each.metadata) for each in topic.partitions] == [(7, "x")]


def test_what_expires_is_written_a_batch_at_a_time() -> None:
    """A batch is limited, a group's offsets are not: expiration is called until nothing is left."""
    shard = GroupShard()
    groups = [f"{'g' * 200}{number}" for number in range(20)]
    for group in groups:
        execute(shard, shard.decide(commit(group, range(200)), ASKER, env()))
    assert len(shard.offsets) == 4000
    rounds = 0
    while True:
        decision = shard.expire(env(now=1000))
        if not execute(shard, decision):
            break
        rounds += 1
        assert sum(len(shard.encode(record)[0]) for record in decision.records) <= MAX_BATCH_BYTES + 1024
    assert rounds > 1
    assert (len(shard.offsets), shard.groups) == (0, {})


def test_offsets_of_a_topic_that_went_are_written_off_a_batch_at_a_time() -> None:
    shard = GroupShard()
    for number in range(20):
        execute(shard, shard.decide(commit(f"{'g' * 200}{number}", range(200)), ASKER, env()))
    gone = env(topics=Topics())
    decision = shard.topics_changed(gone)
    assert 0 < execute(shard, decision) < 4000
    # A topic of the same name may be created any moment, so the rest does not wait for the next look at retention.
    while Timer(TOPICS_TIMER, gone.now) in decision.timers:
        decision = shard.decide(TimerFired(TOPICS_TIMER), ASKER, gone)
        execute(shard, decision)
    assert len(shard.offsets) == 0


def test_a_restart_finds_topics_that_went_meanwhile() -> None:
    shard = GroupShard()
    shard.replay(key(), value())
    shard.replay(key(topic="gone"), value())
    shard.replay(key(topic="pending"), value(), 7)
    assert execute(shard, shard.loaded(env())) == 2
    assert list(shard.offsets.topics()) == [pack_topic("t")]
    shard.end_transaction(7, commit=True)
    assert len(shard.offsets) == 1


def test_topics_with_a_common_prefix_are_told_apart() -> None:
    shard = GroupShard()
    for name in ("t", "t\0\0\0\0", "tt"):
        shard.replay(key(topic=name), value())
    assert execute(shard, shard.topics_changed(env())) == 2
    assert list(shard.offsets.topics()) == [pack_topic("t")]


# -- where the group cannot be asked


def test_a_refused_commit_says_so_for_each_partition() -> None:
    partitions = tuple(OffsetCommitPartition(partition_index=each, committed_offset=1) for each in (0, 5000))
    request = OffsetCommitRequest(group_id="g", topics=(OffsetCommitTopic(name="t", partitions=partitions),))
    answer = offsets_commit.refuse(request, WireError.NOT_COORDINATOR, 9, KNOWN)
    assert [(each.partition_index, each.error_code) for each in answer.topics[0].partitions] == [
        (5000, WireError.UNKNOWN_TOPIC_OR_PARTITION),
        (0, WireError.NOT_COORDINATOR),
    ]


def test_a_refused_commit_in_a_transaction_says_so_too() -> None:
    partition = TxnOffsetCommitPartition(partition_index=0, committed_offset=1)
    topics = tuple(TxnOffsetCommitTopic(name=name, partitions=(partition,)) for name in ("t", "nope"))
    request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=1, producer_epoch=0, topics=topics)
    answer = offsets_commit.refuse_in_transaction(request, WireError.COORDINATOR_LOAD_IN_PROGRESS, KNOWN)
    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {
        "nope": WireError.UNKNOWN_TOPIC_OR_PARTITION,
        "t": WireError.COORDINATOR_LOAD_IN_PROGRESS,
    }
    assert offsets_commit.has_existing_partition(request, KNOWN)
    assert not offsets_commit.has_existing_partition(request, Topics())


def test_version_1_of_a_refused_fetch_says_so_for_each_partition() -> None:
    asked = OffsetFetchGroup(group_id="g", topics=(OffsetFetchTopic(name="t", partition_indexes=(0, 1)),))
    old = offsets_fetch.refused(asked, WireError.NOT_COORDINATOR, 1)
    assert [each.error_code for each in old.topics[0].partitions] == [WireError.NOT_COORDINATOR] * 2
    new = offsets_fetch.refused(asked, WireError.NOT_COORDINATOR, 2)
    assert (new.error_code, new.topics) == (WireError.NOT_COORDINATOR, ())
