"""What py4j logs about a lost JVM goes to the pipeline's log; what others log goes on."""

import logging
from pathlib import Path

import pytest

from moldau.spark import lost_jvm
from moldau.spark.pipelines.logs import redirect_py4j_errors


def record(pathname: str, error: Exception) -> logging.LogRecord:
    return logging.LogRecord("root", logging.ERROR, pathname, 1, "lost", (), (type(error), error, None))


def test_py4j_errors_are_kept_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_jvm, "_handlers", [])  # of the session of other tests
    log = tmp_path / "log"
    root = logging.getLogger()
    with redirect_py4j_errors(log):
        root.handle(record("/site-packages/py4j/java_gateway.py", ConnectionError("reset")))
        root.handle(record("/srv/orders.py", ValueError("mine")))
    assert log.read_text() == "lost\nConnectionError: reset\n\n"
    assert [each.pathname for each in caplog.records] == ["/srv/orders.py"]
    root.handle(record("/site-packages/py4j/java_gateway.py", ConnectionError("reset")))
    assert len(caplog.records) == 2
