"""Scenarios that mostly wait, run at the same time: one test takes as long as the slowest of them."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor


def at_once(scenarios: Mapping[str, Callable[[], object]]) -> None:
    """Run all in threads, each to its end; raise what failed, each failure with the scenario's name."""
    with ThreadPoolExecutor(len(scenarios)) as threads:
        running = {name: threads.submit(scenario) for name, scenario in scenarios.items()}
    failures = []
    for name, outcome in running.items():
        if (failure := outcome.exception()) is not None:
            failure.add_note(f"in the scenario {name!r}")
            failures.append(failure)
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(scenarios)} scenarios failed", failures)
