"""The live status: Ctrl-C ends it as it ends any other work."""

from pathlib import Path

import pytest

from moldau.tools.common.failure import INTERRUPTED
from moldau.tools.main import run
from moldau.tools.pipeline import app


def test_an_interrupted_status_has_the_exit_code_of_interrupted_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def watch(read: object, directory: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "watch", watch)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run(["pipeline", "status"]) == INTERRUPTED
