"""A short mix of faults by seed on a real cluster with real clients: nothing is lost. `make chaos` has more.

Two runs, one for each process of `make test`. Whatever fails prints its seed and the command that repeats it.
"""

from pathlib import Path

import pytest

from chaos.run import Plan, run

MIXES = {
    11: (["kill-leader", "pause-follower", "isolate-leader", "kill-zookeeper"], ["plain", "idempotent", "copy"]),
    12: (["kill-controller", "mute-leader", "kill-coordinator", "expire-session"], ["idempotent", "group", "aiokafka"]),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", MIXES)
def test_nothing_is_lost(seed: int, tmp_path: Path) -> None:
    faults, workloads = MIXES[seed]
    outcome = run(Plan(seed, faults, workloads, rounds=len(faults), rate=60), tmp_path, print)
    assert outcome.good, outcome.complaint
    assert sorted(outcome.done) == sorted(faults)
    assert outcome.all["acked"] > 0
    print(outcome.summary)
