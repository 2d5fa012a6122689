"""The assignors: every partition has one subscribed owner, loads are even, and little moves."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.groups.assignors import range as range_assignor
from moldau.groups.assignors import uniform
from moldau.groups.assignors.assignor import Assignment, MemberSubscription

TOPICS = [UUID(int=number) for number in range(1, 6)]
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 12) for topic in TOPICS})
SUBSCRIPTION = st.frozensets(st.sampled_from(TOPICS), min_size=1)
MEMBERS = st.lists(st.tuples(st.booleans(), SUBSCRIPTION), min_size=1, max_size=12)

Counts = dict[UUID, int]
Members = dict[str, MemberSubscription]


def subscribed(members: list[tuple[bool, frozenset[UUID]]]) -> Members:
    return {
        f"m{number}": MemberSubscription(f"i{number}" if static else None, topics, {})
        for number, (static, topics) in enumerate(members)
    }


def after(members: Members, assigned: dict[str, Assignment]) -> Members:
    return {each: member._replace(current=assigned.get(each, {})) for each, member in members.items()}


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def check_complete(members: Members, counts: Counts, assigned: dict[str, Assignment]) -> None:
    assert assigned.keys() == members.keys()
    for member_id, assignment in assigned.items():
        assert assignment.keys() <= members[member_id].topics
        assert all(assignment.values()), "a topic without partitions"
    taken = [(topic, each) for parts in assigned.values() for topic, some in parts.items() for each in some]
    wanted = frozenset[UUID]().union(*(member.topics for member in members.values()))
    assert sorted(taken) == sorted((topic, each) for topic in wanted for each in range(counts[topic]))


def moved(before: dict[str, Assignment], now: dict[str, Assignment]) -> int:
    """Partitions that a member lost which it was there to keep."""
    return sum(
        len(some - now[member_id].get(topic, frozenset()))
        for member_id, parts in before.items()
        if member_id in now
        for topic, some in parts.items()
    )


@given(MEMBERS, COUNTS)
def test_everything_is_assigned_once(members: list[tuple[bool, frozenset[UUID]]], counts: Counts) -> None:
    group = subscribed(members)
    for assign in (uniform.assign, range_assignor.assign):
        check_complete(group, counts, assign(group, counts))


@given(st.integers(1, 12), st.integers(1, 12), SUBSCRIPTION, COUNTS)
def test_uniform_is_even_and_moves_as_little_as_can_be(
    count: int, later: int, topics: frozenset[UUID], counts: Counts
) -> None:
    group = subscribed([(False, topics)] * count)
    before = uniform.assign(group, counts)
    resized = subscribed([(False, topics)] * later)
    now = uniform.assign(
        {each: member._replace(current=before.get(each, {})) for each, member in resized.items()}, counts
    )
    check_complete(resized, counts, now)
    sizes = [size(each) for each in now.values()]
    assert max(sizes) - min(sizes) <= 1
    if later <= count:
        assert moved(before, now) == 0  # remaining members keep their partitions
    else:
        newcomers = sum(size(now[each]) for each in now.keys() - before.keys())
        assert moved(before, now) == newcomers  # nothing moves between members that were there


@given(MEMBERS, COUNTS)
def test_uniform_leaves_alone_what_is_well(members: list[tuple[bool, frozenset[UUID]]], counts: Counts) -> None:
    group = subscribed(members)
    first = uniform.assign(group, counts)
    assert uniform.assign(after(group, first), counts) == first


@settings(max_examples=200)
@given(MEMBERS, COUNTS, COUNTS, MEMBERS)
def test_uniform_with_different_subscriptions(
    members: list[tuple[bool, frozenset[UUID]]],
    counts: Counts,
    grown: Counts,
    others: list[tuple[bool, frozenset[UUID]]],
) -> None:
    """Members and subscriptions change, topics grow; no move of one partition would make two loads more even."""
    first = uniform.assign(subscribed(members), counts)
    counts = {topic: max(counts[topic], grown[topic]) for topic in TOPICS}
    group = after(subscribed(others), first)
    now = uniform.assign(group, counts)
    check_complete(group, counts, now)
    for owner, parts in now.items():
        for topic in parts:
            least = min(size(now[each]) for each, member in group.items() if topic in member.topics)
            assert size(parts) - least <= 1, f"{owner} could give one of {topic} away"


@given(st.integers(1, 8), COUNTS)
def test_range_is_co_partitioned_and_knows_static_members(count: int, counts: Counts) -> None:
    counts = dict.fromkeys(counts, 7)
    group = subscribed([(True, frozenset(TOPICS))] * count)
    assigned = range_assignor.assign(group, counts)
    for parts in assigned.values():
        assert len(set(parts.values())) <= 1  # the same partitions of every topic
    renamed = {f"other-{count - number}": member for number, member in enumerate(group.values())}
    again = range_assignor.assign(renamed, counts)
    by_instance = {member.instance_id: assigned[each] for each, member in group.items()}
    assert {member.instance_id: again[each] for each, member in renamed.items()} == by_instance


@given(MEMBERS, COUNTS)
def test_range_is_even_within_a_topic(members: list[tuple[bool, frozenset[UUID]]], counts: Counts) -> None:
    group = subscribed(members)
    assigned = range_assignor.assign(group, counts)
    for topic in TOPICS:
        shares = [len(assigned[each].get(topic, ())) for each, member in group.items() if topic in member.topics]
        assert not shares or max(shares) - min(shares) <= 1
        for each in assigned.values():
            partitions = sorted(each.get(topic, ()))
            assert partitions == list(range(partitions[0], partitions[-1] + 1)) if partitions else True
