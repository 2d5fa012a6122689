"""Simulations of replication (`chaos/simulation`), a few short ones; `make simulate` runs more."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.simulation.simulation import simulate
from moldau.broker.fetch_sessions import CachedPartition
from moldau.replication.delayed_fetch import FollowerSession

REPOSITORY = Path(__file__).parents[2]


def test_nothing_committed_is_lost_and_nobody_waits_for_long() -> None:
    options = {"--seeds": "4", "--minutes": "0.5", "--workers": "1", "--every": "0"}
    command = [sys.executable, "-m", "chaos", "simulate", *itertools.chain(*options.items())]
    paths = os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))
    ended = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Simulations that broke a guarantee: 0." in " ".join(ended.stdout.split())
    progress = [line for line in ended.stdout.splitlines() if " of 4 simulations, " in line]
    assert [line.split()[0] for line in progress] == ["1", "2", "3"], "a line while the others still run"
    assert all(line.endswith(" faults; broke a guarantee: 0") for line in progress)


def broken(home: Path) -> bool:
    """Whether one of the first twenty simulations breaks a guarantee."""
    return any(simulate(home / str(seed), seed, 60).problem for seed in range(20))


def test_it_would_notice_news_that_are_told_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FollowerSession, "touch", lambda self, place, size: self.touched.update({place: None}))
    assert broken(tmp_path)


def test_it_would_notice_what_is_taken_for_told_and_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CachedPartition, "ask", lambda self, asked: setattr(self, "asked", asked))
    assert broken(tmp_path)
