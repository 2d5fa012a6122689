"""Signals that end a command with children: none is lost, none comes too early, and nohup is respected."""

import signal
from collections.abc import Iterator

import pytest

from moldau.tools.common.stops import SIGNALS, StopAsked, Stops


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


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


def test_who_is_stopping_is_left_alone() -> None:
    with Stops() as stops:
        stops.ignore()
        signal.raise_signal(signal.SIGINT)


def test_who_shall_outlive_the_terminal_does() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stops():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
