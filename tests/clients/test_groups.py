"""Consumer groups of real clients whose members come, leave, die and freeze.

The same must hold for every client and both group protocols: each partition has one owner, and every record is read.
"""

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from support.brokers.processes import StartBroker
from support.clients.raw import RawClient
from support.eventually import eventually
from support.groups.members import (
    AIOKAFKA,
    CONFLUENT,
    COOPERATIVE,
    KAFKA_PYTHON,
    KINDS,
    MODERN,
    Group,
    Kind,
    even,
    join_and_leave,
    replace_dead_member,
)

LONG_SESSION_MS = 60_000
every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def committed(admin: AdminClient, group: Group) -> list[int]:
    """The committed offsets of all partitions, in their order."""
    wanted = ConsumerGroupTopicPartitions(group.name, [TopicPartition(*place) for place in sorted(group.places)])
    found = admin.list_consumer_group_offsets([wanted])[group.name].result(30)
    return [each.offset for each in found.topic_partitions]


def kind_of(admin: AdminClient, group: Group) -> ConsumerGroupType:
    (listed,) = [each for each in admin.list_consumer_groups().result(30).valid if each.group_id == group.name]
    return listed.type


@every_kind
def test_members_join_and_leave(new_group, feed, kind: Kind) -> None:
    """Every change is a clean handover: what one has committed, the next does not read again."""
    join_and_leave(new_group(6), feed, kind, members=3)


@every_kind
def test_a_member_that_dies_is_replaced(new_group, feed, kind: Kind) -> None:
    group: Group = new_group(4)
    other = replace_dead_member(group, feed, kind)
    third = group.join(kind)
    assert even(group.settled(other, third)) == [2, 2]
    group.check_one_owner()


@every_kind
def test_a_frozen_member_is_put_out_and_comes_back(new_group, feed, kind: Kind) -> None:
    """SIGSTOP for longer than the session: the others go on; after SIGCONT it learns of it and joins again."""
    group: Group = new_group(4)
    one, other = group.join(kind), group.join(kind)
    group.settled(one, other)
    one.pause()
    sent = feed(group, 50)
    group.settled(other)
    group.wait_until_read(sent)
    changes = len(one.told("owns"))
    one.resume()
    eventually(lambda: len(one.told("owns")) > changes, "the frozen member learns that it was put out", group.report)
    assert even(group.settled(one, other)) == [2, 2]
    sent += feed(group, 50)
    group.wait_until_read(sent)
    group.check_one_owner()


@pytest.mark.parametrize("kind", [CONFLUENT, KAFKA_PYTHON, MODERN], ids=str)
def test_a_late_commit_is_refused(new_group, feed, admin: AdminClient, kind: Kind) -> None:
    """A member that was put out commits what it had read before: the offsets of its successor stay."""
    group: Group = new_group(1)
    late = group.join(kind, hold=True)
    group.settled(late)
    sent = feed(group, 10)
    group.wait_until_read(sent)
    late.pause()
    successor = group.join(kind)
    group.settled(successor)
    sent += feed(group, 10)
    eventually(lambda: set(successor.read()) == set(sent), "the successor reads all", group.report)
    eventually(lambda: committed(admin, group) == [20], "the successor commits", group.report)
    late.may_commit()
    late.resume()
    late.wait_for("refused")
    assert not late.told("committed")
    assert committed(admin, group) == [20]


STATIC = (CONFLUENT, AIOKAFKA, KAFKA_PYTHON, MODERN)


@pytest.mark.parametrize("kind", STATIC, ids=str)
def test_a_static_member_that_comes_back_has_its_partitions_again(new_group, feed, kind: Kind) -> None:
    """The other member sees no rebalance. The session is long, so that a busy machine does not end it."""
    group: Group = new_group(4)
    one, other = (group.join(kind, instance=name, session_ms=LONG_SESSION_MS) for name in ("one", "other"))
    had = group.settled(one, other)[one.name]
    changes = len(other.told("owns"))
    if kind is MODERN:  # which gives the place away only when the former holder has left or timed out
        one.leave()
    else:
        one.kill()
    again = group.join(kind, instance="one", session_ms=LONG_SESSION_MS)
    assert group.settled(again, other)[again.name] == had
    sent = feed(group, 10)
    group.wait_until_read(sent)
    assert len(other.told("owns")) == changes


@pytest.mark.parametrize("kind", [CONFLUENT, MODERN], ids=str)
def test_two_with_one_instance_id(new_group, kind: Kind) -> None:
    """Under the classic protocol the later one takes over; under the consumer protocol it has to wait.

    The other clients do not name their instance in heartbeats: they take the place from each other for ever.
    """
    group: Group = new_group(2)
    first = group.join(kind, instance="the-one")
    group.settled(first)
    second = group.join(kind, instance="the-one")
    if kind is MODERN:
        assert "still used by another member" in second.wait_for("fatal")["error"]
        group.settled(first)
    else:
        assert "fenced" in first.wait_for("fatal")["error"].lower()
        group.settled(second)


# -- assignors

ASSIGNORS = [  # who has it, and how many of two topics' three partitions each, the two members have
    *((Kind(client, assignor="range"), [2, 4]) for client in ("confluent", "aiokafka", "kafka-python")),
    *((Kind(client, assignor="roundrobin"), [3, 3]) for client in ("confluent", "aiokafka", "kafka-python")),
    *((Kind(client, assignor="sticky"), [3, 3]) for client in ("aiokafka", "kafka-python")),
    *((Kind(client, assignor="cooperative-sticky"), [3, 3]) for client in ("confluent", "kafka-python")),
    (Kind("confluent", "consumer", "uniform"), [3, 3]),
    (Kind("confluent", "consumer", "range"), [2, 4]),
]


@pytest.mark.parametrize(("kind", "shares"), ASSIGNORS, ids=lambda value: str(value).replace(" ", ""))
def test_assignors(new_group, kind: Kind, shares: list[int]) -> None:
    group: Group = new_group(3, 3)
    one, other = group.join(kind), group.join(kind)
    assert even(group.settled(one, other)) == shares


@pytest.mark.parametrize("kind", [COOPERATIVE, Kind("kafka-python", assignor="cooperative-sticky"), MODERN], ids=str)
def test_incremental_rebalances_take_only_what_moves(new_group, kind: Kind) -> None:
    """Members keep what stays theirs, all the time: at no moment is one without partitions."""
    group: Group = new_group(6)
    one, other = group.join(kind), group.join(kind)
    before = group.settled(one, other)
    seen = {member.name: len(member.told("owns")) for member in (one, other)}
    third = group.join(kind)
    after = group.settled(one, other, third)
    assert even(after) == [2, 2, 2]
    for member in (one, other):
        assert after[member.name] < before[member.name]
        assert all(len(change["partitions"]) >= 2 for change in member.told("owns")[seen[member.name] :])
    group.check_one_owner()


def test_a_topic_that_grows_is_shared_out_again(new_group, feed, admin: AdminClient) -> None:
    for kind in (CONFLUENT, MODERN):
        group: Group = new_group(2)
        one, other = group.join(kind), group.join(kind)
        group.settled(one, other)
        (name,) = group.topics
        admin.create_partitions([NewPartitions(name, 4)])[name].result(30)
        group.topics[name] = 4
        assert even(group.settled(one, other)) == [2, 2]
        sent = feed(group, 10)
        group.wait_until_read(sent)
        group.check_one_owner()


# -- both protocols in one group


INCREMENTAL = Kind("kafka-python", assignor="cooperative-sticky")


@pytest.mark.parametrize("classic", [CONFLUENT, AIOKAFKA, KAFKA_PYTHON, INCREMENTAL], ids=str)
def test_a_group_moves_to_the_consumer_protocol_and_back(new_group, feed, admin: AdminClient, classic: Kind) -> None:
    """Members are exchanged one by one while records come in; the group never stops."""
    group: Group = new_group(4)
    old = [group.join(classic), group.join(classic)]
    group.settled(*old)
    sent = feed(group, 20)
    assert kind_of(admin, group) == ConsumerGroupType.CLASSIC
    new = [group.join(MODERN)]
    group.settled(*old, *new)
    assert kind_of(admin, group) == ConsumerGroupType.CONSUMER
    sent += feed(group, 20)
    old[0].leave()
    new.append(group.join(MODERN))
    group.settled(old[1], *new)
    old[1].leave()
    group.settled(*new)
    sent += feed(group, 20)
    group.wait_until_read(sent)
    back = group.join(classic)
    group.settled(*new, back)
    sent += feed(group, 20)
    for member in new:
        member.leave()
    group.settled(back)
    assert kind_of(admin, group) == ConsumerGroupType.CLASSIC
    sent += feed(group, 20)
    group.wait_until_read(sent)
    group.check_one_owner()


def test_a_group_whose_assignments_carry_data_of_their_own_stays_classic(new_group, feed, admin: AdminClient) -> None:
    """librdkafka's cooperative-sticky assignor writes such data from its second rebalance on; it would be lost."""
    group: Group = new_group(2)
    first = group.join(COOPERATIVE)
    group.settled(first)
    group.settled(first, group.join(COOPERATIVE))
    assert "does not exist" in group.join(MODERN).wait_for("fatal")["error"]
    assert kind_of(admin, group) == ConsumerGroupType.CLASSIC
    sent = feed(group, 10)
    group.wait_until_read(sent)


# -- the broker goes and comes back


@pytest.mark.parametrize("way", ["SIGTERM", "kill -9"])
def test_groups_go_on_over_a_restart(start_broker: StartBroker, short_waits, feed, way: str) -> None:
    """One group per kind of client on one broker; nobody loses a record or starts over."""
    own = start_broker(**short_waits)
    groups = []
    try:
        for number, kind in enumerate(KINDS):
            with RawClient(own.bootstrap) as client:
                client.create_topic(f"topic-{number}", 2)
            groups.append(Group(own.bootstrap, f"group-{number}", {f"topic-{number}": 2}))
            groups[-1].join(kind)
        before = {group.name: feed(group, 20) for group in groups}
        for group in groups:
            group.wait_until_read(before[group.name])
            eventually(lambda group=group: all_committed(group), "all is committed", group.report)
        own.stop() if way == "SIGTERM" else own.kill()
        own.start()
        for group in groups:
            count = group.wait_until_read(before[group.name] + feed(group, 20))
            assert set(count.values()) == {1}, f"{group.name} read again what it had committed"
            group.settled(*group.members)
    finally:
        for group in groups:
            group.close()


def all_committed(group: Group) -> bool:
    ends = {(topic, part): offset + 1 for topic, part, offset, _ in group.members[0].records()}
    commits = group.members[0].told("committed")
    return ends == {(topic, part): offset for told in commits for topic, part, offset in told["offsets"]}
