"""pytest plugin that writes the outcomes of a run to a file: failed tests with their output, and counts.

Load it with `-p` and name the file with `--outcomes`. In a run in several processes only the controller writes.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="write a line of JSON per test with its output, and one at the end")
    parser.addoption("--outcomes-of-passed", action="store_true", help="write tests that passed as well")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--outcomes")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writer(path, with_passed=config.getoption("--outcomes-of-passed")))


def outcome_of(reports: Sequence[pytest.TestReport]) -> str:
    """One outcome of a test by the reports of its phases, in pytest's words."""
    if any(report.failed for report in reports):
        return "failed"
    expected = any(hasattr(report, "wasxfail") for report in reports)
    if any(report.skipped for report in reports):
        return "xfailed" if expected else "skipped"
    return "xpassed" if expected else "passed"


class Writer:
    """Collects the reports of each test, and writes them when its teardown is over."""

    def __init__(self, path: Path, *, with_passed: bool) -> None:
        self._path = path
        self._with_passed = with_passed
        self._reports: dict[str, list[pytest.TestReport]] = {}
        self._counts: Counter[str] = Counter()
        path.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reports = self._reports.setdefault(report.nodeid, [])
        reports.append(report)
        crashed = report.when not in ("setup", "call", "teardown")  # xdist has no phase for a process that died
        if report.when == "teardown" or crashed:
            self._test_over(report.nodeid, crashed)

    def _test_over(self, test: str, crashed: bool) -> None:
        reports = self._reports.pop(test)
        outcome = "crashed" if crashed else outcome_of(reports)
        self._counts[outcome] += 1
        if outcome in ("crashed", "failed") or self._with_passed:
            shown = [report.longreprtext for report in reports if report.longreprtext]
            # Sections add up from one phase to the next.
            shown += [f"--- {title} ---\n{text.rstrip()}" for title, text in reports[-1].sections]
            self._write(test=test, outcome=outcome, output="\n".join(shown))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(test=report.nodeid, outcome="not collected", output=report.longreprtext)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._write(counts=self._counts, stopped=bool(session.shouldfail or session.shouldstop))

    def _write(self, **line: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
