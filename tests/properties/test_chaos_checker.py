"""A simulated log that is right never gives an anomaly; one that goes wrong once always does."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.checker import check
from support.log.simulated_log import FAULTS, SimulatedLog


@given(st.integers(0, 2**32), st.integers(0, 200))
def test_a_correct_log_has_no_anomaly(seed: int, steps: int) -> None:
    log = SimulatedLog(Random(seed))
    log.run(steps)
    log.finish()
    assert check(log.history) == []


@pytest.mark.parametrize("fault", FAULTS)
@given(seed=st.integers(0, 2**32), before=st.integers(0, 80), after=st.integers(0, 80))
def test_a_faulty_log_always_has_one(fault: str, seed: int, before: int, after: int) -> None:
    go_wrong, expected = FAULTS[fault]
    log = SimulatedLog(Random(seed))
    log.run(before)
    go_wrong(log)
    log.run(after)
    log.finish()
    found = {each.kind for each in check(log.history)}
    assert found & expected, found
