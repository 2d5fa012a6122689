"""`moldau streams describe` and `test`: what they print of a program, and how they refuse files that have none."""

import io
import json
import sys
from pathlib import Path

import pytest

from moldau.tools.main import run
from support.repository.sources import ROOT

REVENUE = str(ROOT / "examples" / "revenue.py")


@pytest.fixture(autouse=True)
def _own_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a command puts its own there; this takes it back
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_describe_prints_queries_or_draws_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["streams", "describe", REVENUE]) == 0
    assert "query revenue-revenue" in capsys.readouterr().out
    picture = tmp_path / "revenue.svg"
    assert run(["streams", "describe", REVENUE, "--svg", str(picture)]) == 0
    assert picture.read_text().startswith("<svg")


def test_test_pipes_records_through_a_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [
        {"topic": "users", "key": "ann", "value": {"name": "Ann", "country": "CZ"}},
        {"topic": "orders", "value": {"user": "ann", "amount": 5, "at": "2026-11-18T10:00:05Z"}},
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(json.dumps, records))))
    assert run(["streams", "test", REVENUE]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["topic"], result["key"]["key"]) == ("revenue-by-country", "CZ")
    assert result["value"] == {"total": 5.0, "orders": 1}


FILES = {
    "x = 1": "has no program. Give it one: app = Streams",
    "from moldau.streams import Streams\na, b = Streams('a'), Streams('b')": "has several programs: a, b",
    "from moldau.streams import Streams\napp = Streams('a')": "a writes nothing",
    "from moldau.streams import Streams\nStreams('a').stream('t').filter('x = 1')": "no field x",
    "def": "is not valid Python",
}


@pytest.mark.parametrize("text", FILES)
def test_a_file_without_a_program_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.py"
    file.write_text(text)
    assert run(["streams", "describe", str(file)]) == 1
    assert FILES[text] in capsys.readouterr().err


LINES = {"nonsense": "line 1 is not JSON", "[]": "line 1 is not a record", '{"topic": "order"}': "did you mean orders?"}


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_is_no_record_is_refused(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(line))
    assert run(["streams", "test", REVENUE]) == 1
    assert LINES[line] in capsys.readouterr().err
