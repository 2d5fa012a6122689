"""Groups of the consumer protocol as records make them, those of other versions of Kafka among them."""

from moldau.base.coordination import Record
from moldau.base.errors import WireError
from moldau.groups.consumer import heartbeat as consumer_heartbeat
from moldau.groups.consumer import reads as consumer_reads
from moldau.groups.consumer.group import ConsumerGroup, MemberState, apply_change
from moldau.groups.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    CurrentTopicPartitions,
)
from support.groups.consumer_group import GROUP, Client, OneGroup, settle, topic_id, topics

T = topic_id("t")


def member_record(**changes: object) -> Record:
    value = {
        "instance_id": None,
        "rack_id": None,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": ("t",),
        "subscribed_topic_regex": None,
        "rebalance_timeout_ms": 60_000,
        "server_assignor": None,
        "classic_member_metadata": None,
    } | changes
    key = ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="a")
    return Record(key, ConsumerGroupMemberMetadataValue(**value))


def current_record(epoch: int, state: int = 0, epochs: tuple[int, ...] | None = None, member: str = "a") -> Record:
    held = (CurrentTopicPartitions(topic_id=T, partitions=(0, 1), assignment_epochs=epochs),)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=0,
        state=state,
        assigned_partitions=held,
        partitions_pending_revocation=(),
    )
    return Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member), value)


def folded(*records: Record) -> ConsumerGroup:
    group: ConsumerGroup | None = None
    for record in records:
        group = apply_change(group, record)
    assert group is not None
    return group


def test_tombstones_of_what_is_not_there_change_nothing() -> None:
    keys = [
        ConsumerGroupMetadataKey(group_id=GROUP),
        ConsumerGroupPartitionMetadataKey(group_id=GROUP),
        ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="a"),
        ConsumerGroupTargetAssignmentMetadataKey(group_id=GROUP),
        ConsumerGroupTargetAssignmentMemberKey(group_id=GROUP, member_id="a"),
        ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a"),
        ConsumerGroupRegularExpressionKey(group_id=GROUP, regular_expression="x"),
    ]
    assert all(apply_change(None, Record(key, None)) is None for key in keys)
    group = ConsumerGroup(GROUP)
    for key in keys[1:3] + keys[4:]:  # without those of the group itself and of its target's epoch
        assert apply_change(group, Record(key, None)) == group


def test_partitions_of_before_assignment_epochs_have_the_members_epoch() -> None:
    for epochs in (None, ()):
        group = folded(member_record(), current_record(5, epochs=epochs))
        assert group.members["a"].assigned == {T: {0: 5, 1: 5}}
    away = folded(member_record(instance_id="i"), current_record(-2, epochs=None))
    assert away.members["a"].assigned == {T: {0: 0, 1: 0}}


def test_the_last_record_decides_the_owner() -> None:
    """A log that was compacted in part may have the new owner's record before the old one's, which lets go of it."""
    group = folded(current_record(3), current_record(4, member="b"))
    assert group.owners == {T: {0: "b", 1: "b"}}
    group = folded(
        current_record(3),
        current_record(4, member="b"),
        Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a"), None),
    )
    assert group.owners == {T: {0: "b", 1: "b"}}


def test_a_member_without_classic_protocols_speaks_the_consumer_protocol() -> None:
    """What Kafka takes for granted where the field is missing is a value that is not null, but empty."""
    nothing = ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=())
    assert folded(member_record(classic_member_metadata=nothing)).members["a"].classic is None


def test_the_record_that_kafka_4_0_kept_of_topics_is_deleted() -> None:
    world = OneGroup(topics(t=2))
    member = Client(world, "a")
    member.join()
    legacy = Record(ConsumerGroupPartitionMetadataKey(group_id=GROUP), ConsumerGroupPartitionMetadataValue(topics=()))
    world.log.append(legacy)
    world.restart()
    assert Record(legacy.key, None) in world.log
    assert world.group is not None
    assert not world.group.has_partition_metadata


def test_a_member_in_a_state_of_a_newer_version_starts_over() -> None:
    world = OneGroup(topics(t=2))
    member = Client(world, "a")
    member.join()
    world.log.append(current_record(member.epoch, state=9))
    world.restart()
    assert world.group is not None
    assert world.group.members["a"].state is MemberState.UNKNOWN
    assert world.beat("a", member.epoch, owned={"t": {0}}).error_code == WireError.FENCED_MEMBER_EPOCH
    assert world.beat("a", 0, owned={}, rebalance_timeout_ms=1, subscribed_topic_names=("t",)).error_code == 0
    assert world.group.members["a"].state is MemberState.STABLE


def test_an_expression_that_only_kafka_can_use_matches_nothing() -> None:
    world = OneGroup(topics(t=2))
    key = ConsumerGroupRegularExpressionKey(group_id=GROUP, regular_expression="(")
    world.log += [
        member_record(subscribed_topic_names=(), subscribed_topic_regex="("),
        Record(ConsumerGroupMetadataKey(group_id=GROUP), ConsumerGroupMetadataValue(epoch=4, metadata_hash=1)),
        Record(key, ConsumerGroupRegularExpressionValue(topics=("t",), version=9, timestamp=1)),
    ]
    world.restart()
    world.wait(1)
    assert world.group is not None
    assert world.group.regexes["("].topics == frozenset()


def test_a_group_of_another_broker_with_another_hash_keeps_its_assignment() -> None:
    world = OneGroup(topics(t=4))
    first, second = Client(world, "a"), Client(world, "b")
    first.join()
    second.join()
    settle([first, second])
    had = first.owned, second.owned
    assert world.group is not None
    key = ConsumerGroupMetadataKey(group_id=GROUP)
    world.log.append(Record(key, ConsumerGroupMetadataValue(epoch=world.group.epoch, metadata_hash=77)))
    before = world.group.epoch
    world.restart()
    settle([first, second])
    assert (first.owned, second.owned) == had
    assert world.group.epoch == before + 1


def test_validation_of_commits_in_a_transaction() -> None:
    group = folded(member_record(), current_record(5))
    may = consumer_reads.validate_commit
    assert may(group, "", None, -1, True, 3) is WireError.NONE  # a producer without a member id
    assert may(group, "", None, -1, False, 9) is WireError.UNKNOWN_MEMBER_ID
    assert may(group, "a", None, 5, True, 3) is WireError.NONE
    assert may(group, "a", None, 6, True, 3) is WireError.STALE_MEMBER_EPOCH


def test_deciding_changes_nothing() -> None:
    world = OneGroup(topics(t=4))
    Client(world, "a").join()
    before = world.group
    assert before is not None
    shown = repr(before)
    consumer_heartbeat.topics_changed(before, world.env)
    consumer_heartbeat.on_timer(before, ("session", GROUP, "a"), world.env)
    assert repr(before) == shown
