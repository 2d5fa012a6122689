"""Help pages: plain, no wider than the terminal, and cheap."""

import subprocess
import sys

import pytest

from moldau.tools.main import run
from moldau.tools.root import COMMANDS

PAGES = [
    (),
    *((name,) for name in COMMANDS),
    ("topic", "create"),
    ("group", "describe"),
    ("group", "reset-offsets"),
    ("cluster", "up"),
    ("cluster", "restart"),
    ("perf", "produce"),
    ("acl", "create"),
    ("acl", "delete"),
    ("security", "check"),
]


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_a_page_fits_into_80_columns(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*words, "--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"Usage: {' '.join(('moldau', *words))} ")
    assert "--help" in page
    assert "<bool>" not in page
    assert [line for line in page.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("words", [("--help",), ("topic", "--help"), ("group", "describe", "-h"), ("consume", "-h")])
def test_a_page_loads_nothing_that_is_slow_to_import(words: tuple[str, ...]) -> None:
    script = (
        "import sys; from moldau.tools.main import run; run(sys.argv[1:]); "
        "slow = {'confluent_kafka', 'pydantic', 'rich', 'moldau.wire.messages'}; "
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_settings_are_spelled_in_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["topic", "create"], ["topic", "alter"], ["broker"], ["up"], ["cluster", "up"]):
        run([*words, "--help"])
        assert "--set KEY=VALUE" in capsys.readouterr().out
    run(["topic", "create", "--help"])
    assert "--config" not in capsys.readouterr().out


def test_perf_names_its_load_generator(capsys: pytest.CaptureFixture[str]) -> None:
    run(["perf", "produce", "--help"])
    page = " ".join(capsys.readouterr().out.split())
    assert "not the generator of docs/performance.md" in page
