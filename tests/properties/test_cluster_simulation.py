"""Simulations of the control plane: no acknowledged record is lost, and replicas are identical at the end.

`MOLDAU_SEED=17` repeats one of them; `MOLDAU_FULL=1` runs thousands.
"""

import os
from collections.abc import Callable, Sequence

import pytest

from chaos.checker import check
from chaos.history import Acked
from moldau.metadata import elections
from moldau.replication.isr import Isr, PendingIsr
from support.replication.simulated_cluster import SimulatedCluster

RUNS = 20_000 if os.environ.get("MOLDAU_FULL") else 200
PORTIONS = 4
STEPS = 1_000
SEEDS: Sequence[int] = [int(os.environ["MOLDAU_SEED"])] if "MOLDAU_SEED" in os.environ else range(RUNS)


def simulated(seed: int) -> SimulatedCluster:
    cluster = SimulatedCluster(seed)
    cluster.run(STEPS)
    cluster.come_to_rest()
    return cluster


@pytest.mark.parametrize("portion", range(PORTIONS))
@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost(portion: int) -> None:
    acknowledged, seeds = 0, SEEDS[portion::PORTIONS]
    for seed in seeds:
        cluster = simulated(seed)
        assert check(cluster.history) == [], f"MOLDAU_SEED={seed}"
        logs = [cluster.nodes[each].log for each in cluster.state.replicas]
        assert all(log == logs[0] for log in logs), f"MOLDAU_SEED={seed}"
        assert cluster.state.leader in cluster.nodes, f"MOLDAU_SEED={seed}"
        assert set(cluster.state.isr) == set(cluster.state.replicas), f"MOLDAU_SEED={seed}"
        acknowledged += sum(isinstance(event, Acked) for event in cluster.history)
    assert acknowledged > 5 * len(seeds) or len(SEEDS) == 1, "these runs acknowledge too little to show anything"


def worst_loss(cluster: SimulatedCluster) -> int:
    """A replica that the leader is about to add to the ISR, if there is one."""
    leader = cluster.nodes.get(cluster.state.leader)
    pending = leader.isr.pending if leader is not None and leader.isr is not None else None
    joining = [broker for broker, _ in pending.joining] if pending is not None else []
    return cluster.dice.choice(joining or cluster.state.replicas)


@pytest.mark.parametrize("portion", range(PORTIONS))
@pytest.mark.timeout(3600)
def test_a_broker_that_is_lost_for_good_stops_nobody(portion: int) -> None:
    """While enough replicas are left, the others continue: nothing waits forever for a broker that does not return."""
    for seed in SEEDS[portion::PORTIONS]:
        cluster = SimulatedCluster(seed)
        cluster.run(STEPS)
        cluster.rest(list(cluster.nodes.values()))
        cluster.run(STEPS // 4)
        lost = cluster.nodes[worst_loss(cluster)]
        if not set(cluster.state.isr) - {lost.id} or any(node.unclean for node in cluster.nodes.values()):
            continue  # it may be the last one that has all committed records
        cluster.lose(lost)
        others = [node for node in cluster.nodes.values() if node is not lost]
        cluster.rest(others)
        before = sum(isinstance(event, Acked) for event in cluster.history)
        cluster.produce()
        cluster.rest(others)
        assert sum(isinstance(event, Acked) for event in cluster.history) == before + 1, f"MOLDAU_SEED={seed}"


def count_the_smaller_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against KIP-497: replicas that may still be in the ISR are not waited for."""
    propose = Isr.propose

    def narrow(isr: Isr, members: set[int]) -> PendingIsr:
        proposed = propose(isr, members)
        isr.maximal = frozenset(proposed.isr)
        return proposed

    monkeypatch.setattr(Isr, "propose", narrow)


def commit_with_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against KIP-966: records that a leader commits alone are missing from its successor."""
    monkeypatch.setattr(Isr, "committed_isr_is_enough", lambda isr, min_isr: True)


def let_anybody_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica joins the ISR before it has all committed records."""
    monkeypatch.setattr(Isr, "may_join", lambda isr, broker, _: isr.pending is None and broker not in isr.committed_isr)


def elect_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    elect = elections.elect
    monkeypatch.setattr(elections, "elect", lambda state, able, **_: elect(state, able, unclean=True))


@pytest.mark.parametrize(
    "break_a_rule",
    [count_the_smaller_set, commit_with_too_few, let_anybody_join, elect_anybody],
    ids=lambda f: f.__name__,
)
def test_a_broken_rule_is_found(
    break_a_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_a_rule(monkeypatch)
    assert any(check(simulated(seed).history) for seed in range(RUNS))
