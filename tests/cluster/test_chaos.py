"""A short mix of faults by seed on a real cluster with real clients: nothing is lost. `make chaos` has more.

Two runs, one for each process of `make test`. Whatever fails prints its seed and the command that repeats it.
"""

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


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", MIXES)
def test_nothing_is_lost(seed: int, tmp_path: Path) -> None:
    faults, workloads = MIXES[seed][0], [name for name in MIXES[seed][1] if name in available()]
    outcome = run(Plan(seed, faults, workloads, rounds=len(faults), rate=60), tmp_path, print)
    assert outcome.good, outcome.complaint
    assert sorted(outcome.done) == sorted(faults)
    assert outcome.all["acked"] > 0
    seen = {fault: counted["moved"] or counted["behind"] for fault, counted in outcome.by_fault.items()}
    untouched = [fault for fault in faults if not seen.get(fault) and not fault.endswith("zookeeper")]
    assert not untouched, f"they did nothing: {untouched}"
    print(outcome.summary)
