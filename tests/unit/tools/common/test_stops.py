"""Signals that end a command with children: none is lost, none comes too early, and nohup is respected."""

import signal
from collections.abc import Iterator

import pytest

from moldau.tools.common.stops import SIGNALS, StopAsked, Stops


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """The default handlers, even where the tests run under nohup; each test leaves them as they were."""
    inherited = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    yield
    left = {number: signal.signal(number, handler) for number, handler in inherited.items()}
    assert set(left.values()) == {signal.default_int_handler}


@pytest.mark.parametrize("number", SIGNALS)
def test_each_of_them_ends_what_is_being_done(number: signal.Signals) -> None:
    with Stops(), pytest.raises(StopAsked):
        signal.raise_signal(number)


def test_what_is_done_whole_is_finished_first() -> None:
    done: list[str] = []

    def work() -> None:
        with stops.held():
            signal.raise_signal(signal.SIGTERM)
            done.append("all")

    with Stops() as stops:
        with pytest.raises(StopAsked):
            work()
        with stops.held():
            done.append("told once")
    assert done == ["all", "told once"]


def test_signals_are_ignored_while_stopping() -> None:
    with Stops() as stops:
        stops.ignore()
        signal.raise_signal(signal.SIGINT)


def test_sighup_stays_ignored_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stops():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
