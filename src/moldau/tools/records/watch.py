"""Watch over the connection of produce and consume: say within seconds on stderr why nothing happens."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from moldau.client.admin.errors import Unreachable
from moldau.client.admin.reachability import diagnose
from moldau.client.admin.target import Target
from moldau.tools.common.failure import note

QUIET_S = 1.0  # without progress before it looks
LOOK_S = 0.5
LONGEST_PAUSE_S = 30.0  # between two looks: each one connects to every broker


class ConnectionWatch:
    """Notices that no broker can be reached any more: a bounded read ends, a follower says so and goes on."""

    def __init__(self, target: Target, follow: bool) -> None:
        self.target = target
        self.follow = follow
        self.told = False

    def look(self, all_down: bool) -> None:
        """Called while nothing comes. Raises why a bounded read ends."""
        if not all_down or self.told:
            self.told = all_down
            return
        lost = diagnose(self.target) or Unreachable(self.target.bootstrap, "the connection was lost")
        if not self.follow:
            raise lost
        note(f"Lost the connection: {lost}; trying again.")
        self.told = True


@contextmanager
def tell_stalls(
    target: Target, progress: Callable[[], object], waiting: Callable[[], bool], until: str
) -> Iterator[None]:
    """While entered: if work is `waiting` and `progress` does not change, look for the cause and say it once."""
    stopped = threading.Event()
    thread = threading.Thread(target=_watch, args=(target, progress, waiting, until, stopped), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()


def _watch(
    target: Target, progress: Callable[[], object], waiting: Callable[[], bool], until: str, stopped: threading.Event
) -> None:
    before: object = progress()
    since = time.monotonic()
    pause_s = QUIET_S
    told = ""
    while not stopped.wait(LOOK_S):
        now = progress()
        if now != before or not waiting():
            before, since = now, time.monotonic()
            pause_s, told = QUIET_S, ""
        elif time.monotonic() - since >= pause_s:
            since, pause_s = time.monotonic(), min(2 * pause_s, LONGEST_PAUSE_S)
            problem = why_stalled(target)
            if problem and problem != told and not stopped.is_set():
                told = problem
                note(f"Waiting: {told}. Still trying{until}.")


def why_stalled(target: Target) -> str:
    from moldau.client.admin import stalls  # here, because it loads all messages of the protocol

    return stalls.why_stalled(target)
