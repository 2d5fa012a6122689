"""Wait in a test until something holds that takes other processes or threads a while."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60  # long: running out of it means that something is broken, not that the machine is busy
STEP_S, LONGEST_STEP_S = 0.02, 0.3


def eventually(
    holds: Callable[[], T | None], what: str, told: Callable[[], object] = lambda: "", patience_s: float = PATIENCE_S
) -> T:
    """Return the result of `holds` once it is true; fail with `what` and the result of `told` if that takes too long.

    The longer it takes the less often `holds` is called: the call itself costs processor time.
    """
    begun = time.monotonic()
    while True:
        found = holds()
        if found:
            return found
        passed = time.monotonic() - begun
        assert passed < patience_s, f"{what}: not within {patience_s:.0f} s; {told()}"
        time.sleep(min(max(passed / 10, STEP_S), LONGEST_STEP_S))
