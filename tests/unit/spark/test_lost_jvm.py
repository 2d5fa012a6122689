"""What py4j logs about a lost JVM is one sentence; what others log goes on."""

import logging
from collections.abc import Iterator

import pytest

from moldau.spark import lost_jvm
from moldau.spark.lost_jvm import LOST, handled_by, report_once


@pytest.fixture(autouse=True)
def _no_handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process without a session."""
    monkeypatch.setattr(lost_jvm, "_handlers", [])
    yield
    logging.getLogger().removeFilter(lost_jvm._filter)


def log(pathname: str, error: Exception | None) -> None:
    exc_info = (type(error), error, None) if error else None
    logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, pathname, 1, "said", (), exc_info))


def test_one_line_for_many_failed_calls(caplog: pytest.LogCaptureFixture) -> None:
    report_once()
    report_once()
    for _ in range(3):
        log("/site-packages/py4j/java_gateway.py", ConnectionRefusedError("refused"))
        log("/srv/orders.py", ValueError("mine"))
    log("/site-packages/py4j/java_gateway.py", None)
    assert [record.getMessage() for record in caplog.records] == [LOST, "said", "said", "said", "said"]
    assert caplog.records[0].exc_info is None


def test_a_pipeline_keeps_the_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    report_once()
    kept: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:
        kept.append(record)
        return False

    with handled_by(keep):
        log("/site-packages/py4j/java_gateway.py", ConnectionRefusedError("refused"))
    assert (len(kept), caplog.records) == (1, [])
    log("/site-packages/py4j/java_gateway.py", ConnectionRefusedError("refused"))
    assert caplog.records[0].getMessage() == LOST
