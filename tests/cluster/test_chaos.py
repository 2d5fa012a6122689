"""A short mix of faults by seed on a real cluster with real clients: nothing is lost. `make chaos` has more.

`make test` has one run, with SASL_SSL and ACLs; with MOLDAU_FULL=1 there are two. A run that fails prints its seed and
how to repeat it.
"""

import os
from pathlib import Path

import pytest

from chaos.run import Plan, run
from chaos.workloads.table import available

MIXES = {
    11: (["kill-leader", "pause-follower", "isolate-leader", "isolate-zookeeper"], ["plain", "direct", "java", "copy"]),
    12: (
        ["kill-controller", "mute-leader", "kill-coordinator", "expire-session"],
        ["go", "group", "aiokafka", "kafka-python"],
    ),
}
SECURED = ALWAYS = 12


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", MIXES)
def test_nothing_is_lost(seed: int, tmp_path: Path) -> None:
    if seed != ALWAYS and not os.environ.get("MOLDAU_FULL"):
        pytest.skip("one mix is enough here; set MOLDAU_FULL=1 for both, or run make chaos")
    faults, workloads = MIXES[seed][0], [name for name in MIXES[seed][1] if name in available()]
    plan = Plan(seed, faults, workloads, rounds=len(faults), rate=60, security=seed == SECURED)
    outcome = run(plan, tmp_path, print)
    assert outcome.good, outcome.complaint
    assert sorted(outcome.done) == sorted(faults)
    assert outcome.all["acked"] > 0
    seen = {fault: counted["moved"] or counted["behind"] for fault, counted in outcome.by_fault.items()}
    untouched = [fault for fault in faults if not seen.get(fault) and not fault.endswith("zookeeper")]
    assert not untouched, f"they did nothing: {untouched}"
    print(outcome.summary)
