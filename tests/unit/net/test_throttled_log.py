"""The throttled log: repeats of a client are counted, and a flood of clients is cut."""

import logging

import pytest

from moldau.net.throttled_log import LINES_PER_SECOND, REMEMBERED_LINES, REPEAT_SECONDS, ThrottledLog

EVENT = "Closing connection from"


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.net")


def test_repeats_of_one_host_are_one_line_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    log = ThrottledLog()
    for port in range(1000, 1100):
        log.write(logging.WARNING, EVENT, f"10.0.0.1:{port}", "no", 5.0)
    log.write(logging.INFO, EVENT, "[::1]:1", "no", 5.0)
    log.write(logging.INFO, EVENT, "[::1]:2", "no", 5.0)
    log.write(logging.INFO, EVENT, "10.0.0.1:1", "another reason", 5.0)
    assert caplog.messages == [
        "Closing connection from 10.0.0.1:1000: no",
        "Closing connection from [::1]:1: no",
        "Closing connection from 10.0.0.1:1: another reason",
    ]
    assert caplog.records[0].levelno == logging.WARNING
    caplog.clear()
    log.write(logging.INFO, EVENT, "10.0.0.1:7", "no", 5.0 + REPEAT_SECONDS)
    assert caplog.messages == [
        "Closing connection from 10.0.0.1: no (99 more times)",
        "Closing connection from [::1]: no (1 more time)",
        "Closing connection from 10.0.0.1:7: no",
    ]


def test_a_flood_of_clients_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    log = ThrottledLog()
    for number in range(3 * REMEMBERED_LINES):
        log.write(logging.INFO, EVENT, f"host-{number}:1", "100%s wrong", 5.0)
    assert len(caplog.messages) == LINES_PER_SECOND
    assert len(log._repeats) <= REMEMBERED_LINES
    caplog.clear()
    log.write(logging.INFO, EVENT, "10.0.0.1:1", "no", 6.0)
    assert caplog.messages == [
        f"{3 * REMEMBERED_LINES - LINES_PER_SECOND} more lines about clients were left out",
        "Closing connection from 10.0.0.1:1: no",
    ]
