"""Classic groups: validation of commits, reads, and groups written by other brokers."""

from dataclasses import replace

import pytest

from moldau.base.coordination import Caller
from moldau.base.errors import WireError
from moldau.groups.classic import group as classic_group
from moldau.groups.classic import join as classic_join
from moldau.groups.classic import reads as classic_reads
from moldau.groups.classic import rebalance as classic_rebalance
from moldau.groups.classic.group import ClassicGroup, ClassicMember, State
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics
from moldau.groups.records import GroupMetadataValue, MemberMetadata
from moldau.wire.messages.consumer_protocol import ConsumerProtocolSubscription, write_subscription
from moldau.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest

ASKER = Caller("token", 9, "client", "/127.0.0.1")
READS_A = write_subscription(ConsumerProtocolSubscription(topics=("a",)))
READS_B = write_subscription(ConsumerProtocolSubscription(topics=("b",)), version=0)


def member(member_id: str, instance_id: str | None = None, metadata: bytes = READS_A) -> ClassicMember:
    protocols = (JoinGroupProtocol(name="range", metadata=metadata), JoinGroupProtocol(name="sticky", metadata=READS_B))
    return ClassicMember(member_id, instance_id, "client", "/127.0.0.1", 60_000, 10_000, protocols)


def group(state: State, *members: ClassicMember, protocol_type: str | None = "consumer") -> ClassicGroup:
    return ClassicGroup(
        "g",
        state,
        generation=3,
        protocol_type=protocol_type,
        protocol_name="range" if members else None,
        leader=members[0].member_id if members else None,
        members={each.member_id: each for each in members},
    )


@pytest.mark.parametrize(
    ("state", "who", "transactional", "error"),
    [
        # (member id, instance id, generation)
        (State.EMPTY, ("", None, -1), False, WireError.NONE),
        (State.EMPTY, ("m", None, -1), False, WireError.NONE),
        (State.EMPTY, ("m", None, 3), False, WireError.UNKNOWN_MEMBER_ID),
        (State.EMPTY, ("", None, 3), False, WireError.UNKNOWN_MEMBER_ID),
        (State.STABLE, ("m", None, 3), False, WireError.NONE),
        (State.STABLE, ("s", "one", 3), False, WireError.NONE),
        (State.STABLE, ("s", None, 3), False, WireError.NONE),
        (State.STABLE, ("m", "one", 3), False, WireError.FENCED_INSTANCE_ID),
        (State.STABLE, ("m", "two", 3), False, WireError.UNKNOWN_MEMBER_ID),
        (State.STABLE, ("gone", None, 3), False, WireError.UNKNOWN_MEMBER_ID),
        (State.STABLE, ("m", None, 2), False, WireError.ILLEGAL_GENERATION),
        (State.STABLE, ("m", None, -1), False, WireError.ILLEGAL_GENERATION),
        (State.STABLE, ("", None, -1), False, WireError.UNKNOWN_MEMBER_ID),
        (State.STABLE, ("", None, -1), True, WireError.NONE),
        (State.PREPARING, ("m", None, 3), False, WireError.NONE),
        (State.COMPLETING, ("m", None, 3), False, WireError.REBALANCE_IN_PROGRESS),
        (State.COMPLETING, ("m", None, 2), False, WireError.ILLEGAL_GENERATION),
        (State.COMPLETING, ("m", None, 3), True, WireError.NONE),
    ],
)
def test_validation_of_commits(
    state: State, who: tuple[str, str | None, int], transactional: bool, error: WireError
) -> None:
    members = () if state is State.EMPTY else (member("m"), member("s", "one"))
    member_id, instance_id, generation = who
    asked = group(state, *members)
    assert classic_group.validate_commit(asked, member_id, instance_id, generation, transactional, 9) is error


def test_the_topics_that_consumers_read_are_known_from_the_groups_protocol() -> None:
    both = group(State.STABLE, member("m"), member("n", metadata=READS_B))
    assert classic_reads.subscribed_topics(both) == {"a", "b"}
    assert classic_reads.is_subscribed(both, "b")
    assert not classic_reads.is_subscribed(both, "c")
    assert classic_reads.subscribed_topics(group(State.EMPTY)) == frozenset()


def test_consumers_that_speak_nonsense_may_read_anything() -> None:
    nonsense = group(State.STABLE, member("m"), member("n", metadata=b"\0"))
    assert classic_reads.subscribed_topics(nonsense) is None
    assert classic_reads.is_subscribed(nonsense, "c")


def test_what_others_than_consumers_say_is_not_read() -> None:
    workers = group(State.STABLE, member("m"), protocol_type="connect")
    assert classic_reads.subscribed_topics(workers) is None
    assert not classic_reads.is_subscribed(workers, "a")
    assert classic_reads.validate_offset_delete(workers) is WireError.NON_EMPTY_GROUP
    assert classic_reads.validate_offset_delete(group(State.STABLE, member("m"))) is WireError.NONE
    assert classic_reads.validate_offset_delete(group(State.EMPTY, protocol_type="connect")) is WireError.NONE


@pytest.mark.parametrize("state", [State.EMPTY, State.PREPARING, State.COMPLETING, State.STABLE])
def test_only_empty_groups_may_go(state: State) -> None:
    expected = WireError.NONE if state is State.EMPTY else WireError.NON_EMPTY_GROUP
    assert classic_reads.validate_delete(group(state)) is expected


def test_a_group_cannot_skip_a_state() -> None:
    with pytest.raises(AssertionError, match="from Stable to Empty"):
        group(State.STABLE).transition_to(State.EMPTY, 0)


def test_groups_of_older_brokers_are_read() -> None:
    """Before version 1 of the record there was no rebalance time-out, before 2 no time, before 3 no instance id."""
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m",
        members=(
            MemberMetadata(
                member_id="m",
                client_id="client",
                client_host="/127.0.0.1",
                session_timeout=10_000,
                subscription=READS_A,
                assignment=b"x",
            ),
        ),
    )
    read = classic_group.from_record("g", value)
    assert (read.state, read.since, read.generation, read.leader) == (State.STABLE, -1, 7, "m")
    assert read.members["m"].rebalance_timeout_ms == 10_000
    assert read.members["m"].instance_id is None


def test_join_phases_without_members_are_not_repeated_without_a_pause() -> None:
    hasty = replace(member("s", "one"), rebalance_timeout_ms=0)
    env = GroupEnvironment(1_000, GroupConfig(), lambda: "id", Topics())
    decision = classic_rebalance.on_join_timeout(group(State.PREPARING, hasty), ("join", "g"), env)
    assert [each.at for each in decision.timers] == [None, 2_000]


def test_a_leader_that_is_no_member_is_replaced() -> None:
    written = classic_group.to_record(replace(group(State.STABLE, member("m")), leader="gone")).value
    read = classic_group.from_record("g", written)
    assert read.leader == "m"
    env = GroupEnvironment(1_000, GroupConfig(), lambda: "id", Topics())
    alone = replace(read, state=State.PREPARING, members={"m": replace(read.members["m"], joining=ASKER)})
    decision = classic_rebalance.on_join_timeout(alone, ("join", "g"), env)
    assert [response.leader for _, response in decision.replies] == ["m"]


@pytest.mark.parametrize(
    ("group_id", "protocol_type", "protocol", "error"),
    [
        ("g" * 2**15, "consumer", "range", WireError.INVALID_GROUP_ID),
        ("g", "é" * 2**14, "range", WireError.INCONSISTENT_GROUP_PROTOCOL),
        ("g", "consumer", "r" * 2**15, WireError.INCONSISTENT_GROUP_PROTOCOL),
        ("g", "consumer", "r" * (2**15 - 1), WireError.MEMBER_ID_REQUIRED),
    ],
)
def test_a_group_that_could_not_be_written_does_not_begin(
    group_id: str, protocol_type: str, protocol: str, error: WireError
) -> None:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        protocol_type=protocol_type,
        protocols=(JoinGroupProtocol(name=protocol, metadata=READS_A),),
    )
    decision = classic_join.join(None, request, ASKER, GroupEnvironment(1_000, GroupConfig(), lambda: "id", Topics()))
    assert [response.error_code for _, response in decision.replies] == [error]
