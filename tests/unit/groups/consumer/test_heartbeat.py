"""Groups of the consumer protocol, seen from their members: joining, sharing, giving back, leaving, being out."""

from moldau.base.errors import WireError
from moldau.groups.consumer.group import MemberState
from moldau.groups.environment import GroupConfig
from support.groups.consumer_group import GROUP, Client, OneGroup, settle, topics, with_config


def sizes(clients: list[Client]) -> list[int]:
    return sorted(sum(map(len, client.owned.values())) for client in clients)


def test_the_first_member_gets_everything_at_once() -> None:
    world = OneGroup(topics(t=4))
    response = world.join("a")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", 2)
    assert response.heartbeat_interval_ms == 5000
    assert response.assignment is not None
    assert [each.partitions for each in response.assignment.topic_partitions] == [(0, 1, 2, 3)]
    assert world.group is not None
    assert world.group.state == "Stable"


def test_before_version_1_the_coordinator_names_the_member() -> None:
    world = OneGroup()
    assert world.join("", version=0).member_id == "id-1"
    assert world.join("", version=1).error_code == WireError.INVALID_REQUEST


def test_a_second_member_gets_its_half_when_the_first_gave_it_back() -> None:
    world = OneGroup(topics(t=4))
    first, second = Client(world, "a"), Client(world, "b")
    first.join()
    world.now += 2000
    response = second.join()
    assert second.owned == {}
    assert response.assignment is not None  # a member that joins is told, even that it has nothing yet
    assert world.group is not None
    assert world.group.state == "Reconciling"
    assert world.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS

    assert first.beat().assignment is not None  # give two back
    assert first.owned == {"t": {0, 1}}
    assert first.epoch == 2  # not before it has
    assert second.beat().assignment is None
    assert first.acknowledge().member_epoch == 3
    assert second.beat().assignment is not None
    assert second.owned == {"t": {2, 3}}
    assert world.group.state == "Stable"


def test_a_heartbeat_without_news_says_no_assignment_and_writes_nothing() -> None:
    world = OneGroup()
    member = Client(world, "a")
    member.join()
    written = len(world.log)
    response = member.beat()
    assert response.assignment is None
    assert len(world.log) == written


def test_a_member_that_says_everything_is_told_everything() -> None:
    world = OneGroup()
    member = Client(world, "a")
    member.join()
    whole = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ("t",), "owned": member.owned}
    assert member.beat(**whole).assignment is not None


def test_what_a_leaving_member_had_goes_to_the_others() -> None:
    world = OneGroup(topics(t=4))
    first, second = Client(world, "a"), Client(world, "b")
    first.join()
    second.join()
    settle([first, second])
    assert sizes([first, second]) == [2, 2]
    response = world.beat("b", -1)
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "b", -1)
    settle([first])
    assert first.owned == {"t": {0, 1, 2, 3}}
    assert world.beat("b", second.epoch).error_code == WireError.UNKNOWN_MEMBER_ID


def test_silence_ends_a_membership() -> None:
    world = OneGroup()
    Client(world, "a").join()
    world.wait(44_999)
    assert world.group is not None
    assert "a" in world.group.members
    world.wait(1)
    assert world.group.state == "Empty"
    assert not world.timers


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    world = OneGroup(topics(t=4))
    first, second = Client(world, "a"), Client(world, "b")
    first.join(rebalance_timeout_ms=20_000)
    world.now += 2000
    second.join()
    first.beat()
    for _ in range(5):
        world.wait(4000)
        second.acknowledge()
        response = world.beat("a", 2)  # in time, but without its owned partitions
    assert response.error_code == WireError.UNKNOWN_MEMBER_ID
    settle([second])
    assert second.owned == {"t": {0, 1, 2, 3}}


def test_epochs_fence() -> None:
    world = OneGroup(topics(t=4))
    first, second = Client(world, "a"), Client(world, "b")
    first.join()
    world.now += 2000
    second.join()
    first.beat()
    first.acknowledge()
    assert first.epoch == 3
    assert world.beat("a", 4).error_code == WireError.FENCED_MEMBER_EPOCH
    assert world.beat("a", 1).error_code == WireError.FENCED_MEMBER_EPOCH
    assert world.beat("a", 2).error_code == WireError.FENCED_MEMBER_EPOCH  # might own what it gave back
    assert world.beat("a", 2, owned={"t": {0, 3}}).error_code == WireError.FENCED_MEMBER_EPOCH
    response = world.beat("a", 2, owned={"t": {0}})  # the answer that raised the epoch was lost
    assert (response.error_code, response.member_epoch) == (0, 3)


def test_a_static_member_keeps_its_partitions_while_it_is_away() -> None:
    world = OneGroup(topics(t=4))
    first, second = Client(world, "a"), Client(world, "b")
    first.join(instance_id="one")
    second.join(instance_id="two")
    settle([first, second])
    had = first.owned
    assert world.join("a2", instance_id="one").error_code == WireError.UNRELEASED_INSTANCE_ID
    assert world.beat("a", -2, instance_id="one").member_epoch == -2
    epoch = world.group.epoch if world.group else 0
    back = Client(world, "a2")
    back.join(instance_id="one")
    assert back.owned == had
    assert world.group is not None
    assert world.group.epoch == epoch  # nothing for the others to do
    assert set(world.group.members) == {"a2", "b"}
    assert world.beat("a", first.epoch, instance_id="one").error_code == WireError.FENCED_INSTANCE_ID
    assert world.beat("x", 3, instance_id="three").error_code == WireError.UNKNOWN_MEMBER_ID


def test_an_absent_static_member_is_out_when_its_session_ends() -> None:
    world = OneGroup()
    Client(world, "a").join(instance_id="one")
    world.beat("a", -2, instance_id="one")
    world.wait(45_000)
    assert world.group is not None
    assert not world.group.members
    assert not world.group.instances


def test_requests_that_contradict_themselves() -> None:
    world = OneGroup()
    assert world.join("a", owned=None).error_code == WireError.INVALID_REQUEST
    assert world.join("a", rebalance_timeout_ms=-1).error_code == WireError.INVALID_REQUEST
    assert world.join("a", subscribed_topic_names=None).error_code == WireError.INVALID_REQUEST
    assert world.join("a", instance_id="").error_code == WireError.INVALID_REQUEST
    assert world.beat("a", -2).error_code == WireError.INVALID_REQUEST
    assert world.beat("a", -3).error_code == WireError.INVALID_REQUEST
    assert world.join("a", server_assignor="best").error_code == WireError.UNSUPPORTED_ASSIGNOR
    assert world.beat("a", 1).error_code == WireError.GROUP_ID_NOT_FOUND
    assert world.beat("a", -1).error_code == WireError.GROUP_ID_NOT_FOUND
    assert world.group is None


def test_a_full_group_accepts_only_its_members() -> None:
    world = OneGroup()
    with_config(world, consumer_max_size=1)
    member = Client(world, "a")
    member.join()
    assert world.join("b").error_code == WireError.GROUP_MAX_SIZE_REACHED
    assert member.beat().error_code == 0


def test_the_protocol_can_be_switched_off() -> None:
    world = OneGroup()
    with_config(world, consumer_enabled=False)
    assert world.join("a").error_code == WireError.UNSUPPORTED_VERSION


def test_a_topic_may_come_later_and_grow_and_go() -> None:
    world = OneGroup(topics())
    member = Client(world, "a")
    assert member.join("later").error_code == 0
    assert member.owned == {}
    world.become(later=2)
    settle([member])
    assert member.owned == {"later": {0, 1}}
    world.become(later=3)
    settle([member])
    assert member.owned == {"later": {0, 1, 2}}
    world.become(other=1)
    settle([member])
    assert member.owned == {}
    assert world.group is not None
    assert world.group.state == "Stable"


def test_topics_without_subscribers_change_nothing() -> None:
    world = OneGroup(topics(t=4))
    Client(world, "a").join()
    written = len(world.log)
    world.become(t=4, other=1)
    assert len(world.log) == written


def test_a_member_that_unsubscribes_gives_the_topic_back_at_once() -> None:
    world = OneGroup(topics(t=2, u=2))
    member = Client(world, "a")
    member.join("t", "u")
    world.now += 100  # too early for a new target
    member.beat(subscribed_topic_names=("u",))
    assert member.owned == {"u": {0, 1}}
    assert world.group is not None
    assert world.group.state == "Assigning"
    settle([member])
    assert world.group.state == "Stable"


def test_targets_are_not_computed_more_often_than_the_interval_allows() -> None:
    world = OneGroup(topics(t=4))
    clients = [Client(world, str(number)) for number in range(4)]
    for client in clients:
        client.join()
        world.now += 1
    assert world.group is not None
    assert (world.group.epoch, world.group.assignment_epoch) == (5, 2)
    assert world.group.state == "Assigning"
    world.now += 1000
    clients[0].beat()
    assert world.group.assignment_epoch == 5
    settle(clients)
    assert sizes(clients) == [1, 1, 1, 1]


def test_targets_are_computed_with_a_clock_behind_the_last_coordinators() -> None:
    world = OneGroup(topics(t=4))
    first, second = Client(world, "a"), Client(world, "b")
    first.join()
    world.now -= 3_600_000
    world.restart()
    second.join()
    settle([first, second])
    assert sizes([first, second]) == [2, 2]


def test_most_members_choose_the_assignor() -> None:
    world = OneGroup(topics(t=3, u=3))
    clients = [Client(world, name) for name in "abc"]
    for client in clients:
        client.join("t", "u", server_assignor="range")
    settle(clients)
    assert [client.owned for client in clients] == [{"t": {0}, "u": {0}}, {"t": {1}, "u": {1}}, {"t": {2}, "u": {2}}]


def test_a_restart_forgets_nothing_and_gives_everyone_time() -> None:
    world = OneGroup(topics(t=4))
    first, second = Client(world, "a"), Client(world, "b")
    first.join()
    world.now += 2000
    second.join()
    first.beat()
    before = world.group
    world.restart()
    assert world.group == before
    assert world.timers == {
        ("session", GROUP, "a"): world.now + 45_000,
        ("session", GROUP, "b"): world.now + 45_000,
        ("rebalance", GROUP, "a"): world.now + 60_000,
    }
    settle([first, second])
    assert sizes([first, second]) == [2, 2]


def test_topics_that_changed_while_the_coordinator_was_away_are_noticed() -> None:
    world = OneGroup(topics(t=2))
    member = Client(world, "a")
    member.join()
    world.topics = topics(2, t=3)
    world.restart()
    settle([member])
    assert member.owned == {"t": {0, 1, 2}}


def test_a_group_may_have_its_own_times() -> None:
    world = OneGroup(topics(t=4))
    own = {"consumer.heartbeat.interval.ms": "6000", "consumer.session.timeout.ms": "50000"}
    world.own = {GROUP: own, "another": {"consumer.heartbeat.interval.ms": "7000"}}
    assert world.join("a").heartbeat_interval_ms == 6000
    assert world.timers["session", GROUP, "a"] == world.now + 50_000
    world.own = {GROUP: {**own, "consumer.session.timeout.ms": "46000"}}
    world.restart()
    assert world.timers["session", GROUP, "a"] == world.now + 46_000
    world.own = {}
    assert world.beat("a", 2).heartbeat_interval_ms == 5000
    assert world.timers["session", GROUP, "a"] == world.now + 45_000


def test_a_group_may_wait_longer_between_assignments() -> None:
    world = OneGroup(topics(t=4))
    world.own = {GROUP: {"consumer.assignment.interval.ms": "9000"}}
    world.join("a")
    world.now += 8999
    world.join("b")
    assert world.group is not None
    assert world.group.assignment_epoch < world.group.epoch
    world.now += 1
    world.beat("a", 2)
    assert world.group.assignment_epoch == world.group.epoch


def test_own_times_give_way_to_narrower_bounds() -> None:
    config = GroupConfig().with_overrides(
        {
            "consumer.session.timeout.ms": "70000",
            "consumer.heartbeat.interval.ms": "1",
            "consumer.assignment.interval.ms": "16000",
            "of.tomorrow": "x",
        }
    )
    assert config == GroupConfig(
        consumer_session_timeout_ms=60_000,
        consumer_heartbeat_interval_ms=5_000,
        consumer_assignment_interval_ms=15_000,
    )
    assert GroupConfig().with_overrides({"consumer.session.timeout.ms": "damaged"}) == GroupConfig()
