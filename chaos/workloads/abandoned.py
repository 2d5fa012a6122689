"""A time limit for calls of librdkafka that may never return: such a call is left to a thread of its own."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Stuck(Exception):
    """A call of librdkafka did not return, or a client can no longer be used."""


def within(seconds: float, call: Callable[[], T], note: Callable[[str], None]) -> T:
    """The call's result or exception; raise `Stuck` if it has none in time. `note` takes a late outcome."""
    results: list[T] = []
    failures: list[BaseException] = []
    left = threading.Event()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as failure:  # noqa: BLE001 - raised in the thread that waits
            failures.append(failure)
        if left.is_set():
            note(f"the abandoned call returned: {failures[0] if failures else 'it succeeded'}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        left.set()
        raise Stuck("a call did not return")
    if failures:
        raise failures[0]
    return results[0]
