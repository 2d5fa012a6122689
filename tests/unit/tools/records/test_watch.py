"""When a stalled command looks for the cause, and what it says."""

import threading

import pytest

from moldau.client.admin.target import Target
from moldau.tools.records import watch


class Clock:
    """Time that passes while the watch waits; ends it after so many waits."""

    def __init__(self, waits: int) -> None:
        self.now = 0.0
        self.waits = waits

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        self.waits -= 1
        return self.waits < 0

    def is_set(self) -> bool:
        return False


def looks(monkeypatch: pytest.MonkeyPatch, clock: Clock, problem: str, *, busy: bool = True) -> list[float]:
    """The times at which the cause is looked for."""
    found: list[float] = []

    def why_stalled(target: Target) -> str:
        found.append(clock.now)
        return problem

    monkeypatch.setattr(watch, "time", clock)
    monkeypatch.setattr(watch, "why_stalled", why_stalled)
    stopped: threading.Event = clock  # type: ignore[assignment]
    watch._watch(Target("h:1"), lambda: None, lambda: busy, ", up to 30 s", stopped)
    return found


def test_the_cause_is_told_soon_and_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert looks(monkeypatch, Clock(20), "it is full")[0] == watch.QUIET_S
    assert capsys.readouterr().err == "Waiting: it is full. Still trying, up to 30 s.\n"


def test_looks_become_rare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = looks(monkeypatch, Clock(400), "")
    assert found[:4] == [1, 3, 7, 15]
    assert found[-1] - found[-2] == watch.LONGEST_PAUSE_S
    assert capsys.readouterr().err == ""


def test_without_work_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, Clock(100), "it is full", busy=False) == []
