"""`moldau pipeline` without Spark: what it prints about pipelines that are not there."""

import sys
from pathlib import Path

import pytest

from moldau.tools.main import run


@pytest.fixture(autouse=True)
def _own_hook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a command puts its own there; this takes it back
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", ["status", "list"])
def test_nothing_found_says_where_it_looked(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", command]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"in {tmp_path / 'data'} (--dir names another)" in said
    assert "moldau pipeline run FILE.py" in said


@pytest.mark.parametrize("command", ["status", "stop"])
def test_an_unknown_name_says_where_it_looked(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", command, "orders"]) == 1
    said = capsys.readouterr().err
    assert f"there is no pipeline 'orders' in {tmp_path / 'data'}. No pipeline has run there" in said


def test_a_pipeline_that_never_started_is_not_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.py").write_text("x =")
    assert run(["pipeline", "run", "bad.py"]) == 1
    assert run(["pipeline", "run", "nowhere.py"]) == 1
    capsys.readouterr()
    assert run(["pipeline", "list", "-o", "json"]) == 0
    assert capsys.readouterr().out.strip() == "[]"
    assert not (tmp_path / "data").exists()
