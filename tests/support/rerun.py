"""Run the tests, then run those that failed once more: tests that pass then are listed as flaky and fail nothing.

    python -m tests.support.rerun tests -n 3

The second run has one process, and starts when the first is over. Tests that fail twice fail the run; a test whose
process died, or was ended because the test was stuck, has failed. So does all that is no test's failure: a file that
cannot be imported, a run in one process that died, Ctrl-C, more failures than `MOST_FLAKY`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType

MOST_FLAKY = 10  # files: more than these have a common cause, and a fixture that fails breaks all tests of its file
PLUGINS = "tests.support.repository"
# Both and a whole run are still less than an hour.
STUCK_S = os.environ.get("MOLDAU_STUCK_S", "600")
SILENT_S = os.environ.get("MOLDAU_SILENT_S", "1200")
KEPT = Path("build") / "flaky"
SLOWEST = 10
PASSED, FAILED = 0, 1  # pytest's exit codes, of which the others are no verdict on tests
COUNTED = ("failed", "passed", "skipped", "xfailed", "xpassed")
# Ctrl-C reaches all processes of the terminal by itself.
FORWARDED = (signal.SIGTERM, signal.SIGHUP)


@dataclass
class Run:
    """What one run of pytest found."""

    code: int
    outcomes: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    stopped: bool = False
    finished: bool = False

    @property
    def failed(self) -> list[str]:
        return [test for test, outcome in self.outcomes.items() if outcome in ("failed", "crashed")]

    def why_final(self) -> str | None:
        """Why a failed run is not repeated; None if it is."""
        if not self.finished or self.stopped:
            return "pytest stopped before all tests had run"
        if lost := [test for test, outcome in self.outcomes.items() if outcome == "not collected"]:
            return f"not collected: {lost[0]}"
        files = {test.partition("::")[0] for test in self.failed}
        if len(files) > MOST_FLAKY:
            return f"tests failed in {len(files)} files, and flaky ones are in {MOST_FLAKY} at most"
        return None if self.failed else "pytest failed, but no test did"


def pytest_run(arguments: Sequence[str], outcomes: Path) -> Run:
    """Run pytest in a process of its own, which writes to this terminal."""
    told = ["-p", f"{PLUGINS}.outcomes", "--outcomes", str(outcomes)]
    watched = ["-p", f"{PLUGINS}.stuck", "--stuck-after", STUCK_S, "--silent-after", SILENT_S]
    process = subprocess.Popen([sys.executable, "-m", "pytest", *told, *watched, *arguments])

    def forward(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    previous = {signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None)}
    for number in FORWARDED:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            previous[number] = signal.signal(number, forward)
    try:
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    run = Run(code if code >= 0 else 128 - code)
    for line in outcomes.read_text().splitlines() if outcomes.exists() else ():
        found = json.loads(line)
        if "counts" in found:
            run.counts, run.stopped, run.finished = Counter(found["counts"]), found["stopped"], True
        else:
            run.outcomes[found["test"]] = found["outcome"]
            run.outputs[found["test"]] = found["output"]
    return run


def run_tests(paths: Sequence[str], workers: int) -> int:
    """Run the tests below these paths, then those that failed; the exit code."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        distributed = ["-n", str(workers)] if workers else []
        first = pytest_run([*paths, *distributed, f"--durations={SLOWEST}"], Path(directory, "first"))
        if first.code == PASSED and not first.finished:
            print("\nThe run is not repeated: pytest ended before its summary.")
            return FAILED
        if first.code != FAILED:
            return first.code
        if why := first.why_final():
            print(f"\nThe run is not repeated: {why}.")
            return FAILED
        print(f"\nRunning the tests that failed once more, {len(first.failed)} in one process.", flush=True)
        second = pytest_run(["--outcomes-of-passed", *first.failed], Path(directory, "second"))
    return conclude(first, second, time.monotonic() - started)


def conclude(first: Run, second: Run, seconds: float) -> int:
    """Print the flaky tests, where their outputs are, and the counts of both runs as pytest does; the exit code."""
    if second.code not in (PASSED, FAILED):
        return second.code
    flaky = [test for test in first.failed if second.outcomes.get(test) == "passed"]
    failed = [test for test in first.failed if test not in flaky]
    verdicts = {test: "flaky" if test in flaky else "failed twice" for test in first.failed}
    print()
    for test in flaky + failed:
        print(f"{verdicts[test]}: {test}")
    print(f"Outputs of both runs: {keep(first, second, verdicts)}")
    counts = first.counts | Counter(passed=first.counts["passed"] + len(flaky))
    counts["failed"] = len(failed)
    told = [f"{counts[name]} {name}" for name in COUNTED if counts[name]]
    told += [f"{len(flaky)} flaky"] if flaky else []
    print(f" {', '.join(told)} in {seconds:.2f}s ".center(80, "="))
    return FAILED if failed else second.code


def keep(first: Run, second: Run, verdicts: dict[str, str]) -> Path:
    """Write what the tests printed in both runs to a file of their own."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{datetime.now():%Y-%m-%dT%H-%M-%S}.txt"
    with path.open("w") as file:
        for test, verdict in verdicts.items():
            file.write(f"{verdict}: {test}\n")
            for name, run in (("first", first), ("second", second)):
                outcome = run.outcomes.get(test, "not run")
                file.write(f"\n===== {name} run: {outcome} =====\n{run.outputs.get(test, '')}\n")
            file.write("\n")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.rerun", description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", help="files, folders or tests, as pytest takes them")
    parser.add_argument("-n", dest="workers", type=int, default=0, metavar="N", help="processes of the first run")
    given = parser.parse_args()
    # A shell starts background jobs with SIGINT ignored. The commands that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_tests(given.paths, given.workers)


if __name__ == "__main__":
    sys.exit(main())
