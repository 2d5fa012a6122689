"""Any sequence of commits, transactions, deletions and restarts: the log holds what counts, and nothing goes back."""

from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from moldau.base.coordination import Caller, Decision, Record
from moldau.groups import records
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics, TopicView
from moldau.groups.offsets.packed import (
    CommittedOffset,
    commit_time,
    group_prefix,
    pack_expiring_value,
    pack_partition,
    pack_topic,
    pack_value,
    split_key,
    unpack_partition,
    unpack_topic,
    unpack_value,
    value_suffix,
)
from moldau.groups.records import OffsetCommitKey, OffsetCommitValue
from moldau.groups.shard import GroupShard
from moldau.wire.codec import encode
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from moldau.wire.messages.offset_delete import OffsetDeletePartition, OffsetDeleteRequest, OffsetDeleteTopic
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)

# -- packed by hand is what is declared

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=300)


@given(group=TEXT, topic=TEXT, partition=INT32)
def test_keys_are_packed_as_declared(group: str, topic: str, partition: int) -> None:
    key = pack_partition(group_prefix(group) + pack_topic(topic), partition)
    record = Record(OffsetCommitKey(group=group, topic=topic, partition=partition), None)
    assert (key, None) == records.encode(record)
    found, place = split_key(key)
    assert (found, unpack_topic(place), unpack_partition(place)) == (group, topic, partition)


@given(offset=INT64, epoch=INT32, metadata=TEXT, now=INT64, topic_id=st.just(UUID(int=0)) | st.uuids())
def test_values_are_packed_as_declared(offset: int, epoch: int, metadata: str, now: int, topic_id: UUID) -> None:
    value = pack_value(offset, epoch, metadata, value_suffix(now, topic_id))
    declared = OffsetCommitValue(
        offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=now, topic_id=topic_id
    )
    assert value == b"\0\4" + encode(declared, 4)
    assert unpack_value(value) == CommittedOffset(offset, epoch, metadata, now, -1, topic_id)
    assert commit_time(value) == now


@given(offset=INT64, metadata=TEXT, now=INT64, expires=INT64)
def test_values_that_expire_are_packed_as_declared(offset: int, metadata: str, now: int, expires: int) -> None:
    value = pack_expiring_value(offset, metadata, now, expires)
    declared = OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=now, expire_timestamp=expires)
    assert value == b"\0\1" + encode(declared, 1)
    assert unpack_value(value) == CommittedOffset(offset, -1, metadata, now, expires, UUID(int=0))


@given(version=st.integers(0, 4), offset=INT64, epoch=INT32, metadata=TEXT, now=INT64)
def test_values_of_every_version_are_read(version: int, offset: int, epoch: int, metadata: str, now: int) -> None:
    value = OffsetCommitValue(offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=now)
    packed = version.to_bytes(2, "big") + encode(value, version)
    assert unpack_value(packed) == (offset, epoch if version >= 3 else -1, metadata, now, -1, UUID(int=0))
    assert commit_time(packed) == now


# -- a shard and its log

GROUPS = st.sampled_from(("g", "h"))
NAMES = st.sampled_from(("t", "tt"))
PARTITIONS = st.sampled_from((0, 1))
PLACES = st.lists(st.tuples(NAMES, PARTITIONS), min_size=1, max_size=3, unique=True)
PRODUCERS = st.sampled_from((1, 2, 3))

Key = tuple[str, str, int]  # group, topic, partition


class CommittedOffsets(RuleBasedStateMachine):
    """Every commit is of a higher offset than all before it, so what counts may never fall unless it is deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = GroupShard()
        self.now = 0
        self.offset = 0
        self.topic_ids = 0
        self.topics: dict[str, TopicView] = {}
        self.log: list[tuple[bytes, bytes | None, int] | tuple[int, bool]] = []  # records, and markers
        self.seen: dict[Key, int] = {}
        for name in ("t", "tt"):
            self.create(name)

    # -- what a broker does

    def env(self) -> GroupEnvironment:
        views = self.topics.values()
        topics = Topics(0, {view.name: view for view in views}, {view.id: view for view in views})
        return GroupEnvironment(self.now, GroupConfig(offsets_retention_ms=100), lambda: "id", topics)

    def execute(self, decision: Decision, fails: bool = False) -> None:
        if fails and decision.records:
            return
        for record in decision.records:
            key, value = self.shard.encode(record)
            self.log.append((key, value, decision.producer_id))
            self.shard.apply(record, decision.producer_id)
            if value is None and isinstance(record.key, bytes):
                group_id, place = split_key(key)
                self.seen.pop((group_id, unpack_topic(place), unpack_partition(place)), None)

    def ask(self, request: Any, version: int, fails: bool = False) -> None:
        self.execute(self.shard.decide(request, Caller("client", version, "c", "/h"), self.env()), fails)

    def create(self, name: str) -> None:
        self.topic_ids += 1
        self.topics[name] = TopicView(UUID(int=self.topic_ids), name, 2)

    # -- what may happen

    @rule(group=GROUPS, places=PLACES, fails=st.booleans(), retention=st.sampled_from((-1, -1, 50)))
    def commit(self, group: str, places: list[tuple[str, int]], fails: bool, retention: int) -> None:
        topics = []
        for name, partition in places:
            self.offset += 1
            one = OffsetCommitPartition(partition_index=partition, committed_offset=self.offset)
            topics.append(OffsetCommitTopic(name=name, partitions=(one,)))
        request = OffsetCommitRequest(group_id=group, retention_time_ms=retention, topics=tuple(topics))
        self.ask(request, 4, fails)

    @rule(group=GROUPS, places=PLACES, producer=PRODUCERS, fails=st.booleans())
    def commit_in_transaction(self, group: str, places: list[tuple[str, int]], producer: int, fails: bool) -> None:
        topics = []
        for name, partition in places:
            self.offset += 1
            one = TxnOffsetCommitPartition(partition_index=partition, committed_offset=self.offset)
            topics.append(TxnOffsetCommitTopic(name=name, partitions=(one,)))
        request = TxnOffsetCommitRequest(
            transactional_id="x", group_id=group, producer_id=producer, producer_epoch=0, topics=tuple(topics)
        )
        self.ask(request, 5, fails)

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        self.log.append((producer, commit))
        self.shard.end_transaction(producer, commit)

    @rule(group=GROUPS, places=PLACES, fails=st.booleans())
    def delete_offsets(self, group: str, places: list[tuple[str, int]], fails: bool) -> None:
        topics = tuple(
            OffsetDeleteTopic(name=name, partitions=(OffsetDeletePartition(partition_index=partition),))
            for name, partition in places
        )
        self.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0, fails)

    @rule(group=GROUPS, fails=st.booleans())
    def delete_group(self, group: str, fails: bool) -> None:
        self.ask(DeleteGroupsRequest(groups_names=(group,)), 2, fails)

    @rule(name=NAMES, fails=st.booleans())
    def delete_topic(self, name: str, fails: bool) -> None:
        """If the tombstones cannot be written then, they are with the next look at what expires."""
        self.topics.pop(name, None)
        self.execute(self.shard.topics_changed(self.env()), fails)
        self.execute(self.shard.expire(self.env()))
        assert not any(name == unpack_topic(topic) for topic in self.shard.offsets.topics())
        self.create(name)
        self.execute(self.shard.topics_changed(self.env()))

    @rule(ms=st.sampled_from((10, 60, 200)), fails=st.booleans())
    def wait(self, ms: int, fails: bool) -> None:
        self.now += ms
        self.execute(self.shard.expire(self.env()), fails)

    # -- what must hold

    def committed(self, shard: GroupShard) -> dict[Key, CommittedOffset]:
        return {
            (group_id, unpack_topic(place), unpack_partition(place)): unpack_value(value)
            for group_id in ("g", "h")
            for place, value in shard.offsets.committed(group_id).items()
        }

    def pending(self, shard: GroupShard) -> set[Key]:
        return {
            (group_id, unpack_topic(place), unpack_partition(place))
            for group_id in ("g", "h")
            for place in shard.offsets.partitions(group_id)
            if shard.offsets.is_pending(group_id, place)
        }

    @invariant()
    def offsets_never_go_back_by_themselves(self) -> None:
        for key, found in self.committed(self.shard).items():
            assert found.offset >= self.seen.get(key, 0)
            self.seen[key] = found.offset

    @invariant()
    def what_counts_follows_from_the_log(self) -> None:
        committed, pending = by_the_log(self.log)
        found = self.committed(self.shard)
        assert {key: value.offset for key, value in found.items()} == committed
        assert self.pending(self.shard) == pending
        assert len(self.shard.offsets) == len(committed)
        topics = {topic for _, topic, _ in {*committed, *pending}}
        assert {unpack_topic(topic) for topic in self.shard.offsets.topics()} == topics

    @invariant()
    def a_restart_finds_the_same(self) -> None:
        again = GroupShard()
        for entry in self.log:
            if len(entry) == 2:
                again.end_transaction(*entry)
            else:
                again.replay(*entry)
        assert again.groups == self.shard.groups
        assert vars(again.offsets) == vars(self.shard.offsets)


def by_the_log(log: list[Any]) -> tuple[dict[Key, int], set[Key]]:
    """What counts and what is pending, as Kafka has it: of all commits that hold, the last one in the log."""
    committed: dict[Key, tuple[int, int]] = {}  # place in the log, offset
    pending: dict[int, dict[Key, tuple[int, int]]] = {}
    for at, entry in enumerate(log):
        if len(entry) == 2:
            producer, commit = entry
            for key, found in pending.pop(producer, {}).items():
                if commit and found[0] > committed.get(key, (-1, 0))[0]:
                    committed[key] = found
            continue
        raw, value, producer = entry
        record = records.decode(raw, value)
        assert record is not None
        if not isinstance(record.key, OffsetCommitKey):
            continue
        key = (record.key.group, record.key.topic, record.key.partition)
        if record.value is None:
            committed.pop(key, None)
            for each in pending.values():
                each.pop(key, None)
        elif producer < 0:
            committed[key] = (at, record.value.offset)
        else:
            pending.setdefault(producer, {})[key] = (at, record.value.offset)
    return {key: offset for key, (_, offset) in committed.items()}, {key for each in pending.values() for key in each}


TestCommittedOffsets = CommittedOffsets.TestCase
TestCommittedOffsets.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
