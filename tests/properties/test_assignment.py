"""Plans of replicas: whatever a cluster looks like, they keep what they promise and move no more than they must."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.client.admin.assignment import plan_decommission, plan_move, plan_rebalance, plan_replication
from moldau.client.admin.errors import ImpossibleAssignment


@st.composite
def clusters(draw):
    """Racks of the brokers, and replicas of partitions on them."""
    brokers = list(range(1, draw(st.integers(1, 6)) + 1))
    racked = draw(st.booleans())
    racks = {each: draw(st.sampled_from("ab")) if racked else None for each in brokers}
    factor = draw(st.integers(1, min(3, len(brokers))))
    lists = st.permutations(brokers).map(lambda order: tuple(order[:factor]))
    now = {TopicPartition("t", index): replicas for index, replicas in enumerate(draw(st.lists(lists, max_size=8)))}
    return racks, now, factor


def spread(racks, replicas) -> int:
    return len({racks[each] for each in replicas})


@given(clusters(), st.integers(1, 6))
def test_a_broker_that_leaves_has_nothing_and_others_move_nothing(cluster, leaving: int) -> None:
    racks, now, factor = cluster
    assume(leaving in racks)
    if len(racks) == factor and any(leaving in replicas for replicas in now.values()):
        with pytest.raises(ImpossibleAssignment):
            plan_decommission(racks, now, leaving)
        return
    plan = plan_decommission(racks, now, leaving)
    assert set(plan) == {place for place, replicas in now.items() if leaving in replicas}
    for place, replicas in plan.items():
        assert leaving not in replicas
        assert len(set(replicas)) == factor
        assert len(set(now[place]) - set(replicas)) == 1
        best_possible = {racks[each] for each in racks if each != leaving}
        kept = {racks[each] for each in now[place] if each != leaving}
        if racks[leaving] is not None:
            assert spread(racks, replicas) == min(len(kept) + 1, len(best_possible)) or kept == best_possible


@given(clusters(), st.integers(1, 4))
def test_another_factor(cluster, factor: int) -> None:
    racks, now, _ = cluster
    if factor > len(racks):
        with pytest.raises(ImpossibleAssignment):
            plan_replication(racks, now, now, factor)
        return
    for place, replicas in plan_replication(racks, now, now, factor).items():
        assert len(set(replicas)) == factor == len(replicas)
        assert replicas[0] == now[place][0]
        assert set(replicas) <= set(now[place]) or set(now[place]) <= set(replicas)


@given(clusters())
def test_a_balanced_cluster(cluster) -> None:
    racks, now, _ = cluster
    planned = {**now, **plan_rebalance(racks, now)}
    for place, replicas in planned.items():
        assert len(set(replicas)) == len(now[place])
        assert spread(racks, replicas) >= spread(racks, now[place])
    held = Counter(dict.fromkeys(racks, 0))
    held.update(broker for replicas in planned.values() for broker in replicas)
    if set(racks.values()) == {None} and len(racks) > 1:
        assert max(held.values()) - min(held.values()) <= 1
    assert plan_rebalance(racks, planned) == {}, "what is balanced stays as it is"


@given(clusters())
def test_a_move_touches_only_its_partitions(cluster) -> None:
    racks, now, factor = cluster
    assume(now and len(racks) > factor)
    allowed = sorted(racks)[-factor:]
    first = min(now)
    plan = plan_move(racks, now, [first], allowed)
    assert set(plan) <= {first}
    assert set({**now, **plan}[first]) == set(allowed)


def test_a_broker_that_is_down_keeps_what_it_has_when_another_leaves() -> None:
    now = {TopicPartition("t", 0): (1, 2), TopicPartition("t", 1): (2, 3)}
    alive = dict.fromkeys((1, 3, 4))
    assert plan_decommission(alive, now, 3) == {TopicPartition("t", 1): (2, 4)}
    assert plan_decommission(alive, now, 2) == {TopicPartition("t", 0): (1, 4), TopicPartition("t", 1): (4, 3)}
