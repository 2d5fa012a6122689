"""Requests of `moldau cluster restart` to the `moldau cluster up` of a directory: lock, state file, request files."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from moldau.tools.common.failure import CommandError

LOCK, STATE, REQUEST = "up.lock", "up.json", "restart-"
LOCK_NAMES = {".lock", LOCK, STATE}
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class BrokerState:
    """One broker of a running cluster. `starts` counts how often it was started."""

    id: int
    pid: int | None
    starts: int
    ready: bool
    problem: str = ""


class Control:
    """The side of `cluster up`: made by `claim`, for as long as the command runs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def publish(self, brokers: list[BrokerState]) -> None:
        partial = self._directory / f"{STATE}.new"
        partial.write_text(json.dumps([asdict(each) for each in brokers]))
        os.replace(partial, self._directory / STATE)

    def requests(self) -> list[int]:
        """Brokers to restart; each request is returned once."""
        found = sorted(self._directory.glob(f"{REQUEST}[0-9]*"))
        for path in found:
            path.unlink(missing_ok=True)
        return [int(path.name.removeprefix(REQUEST)) for path in found if path.name.removeprefix(REQUEST).isdecimal()]


@contextmanager
def claim(directory: Path) -> Iterator[Control]:
    """Lock the directory against a second `cluster up`."""
    with open(directory / LOCK, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"another moldau cluster up uses {directory}", remedy="Stop it, or give another --dir"
            ) from None
        control = Control(directory)
        control.requests()  # left by an earlier cluster
        try:
            yield control
        finally:
            (directory / STATE).unlink(missing_ok=True)


def is_running(directory: Path) -> bool:
    try:
        with open(directory / LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def read_state(directory: Path) -> dict[int, BrokerState]:
    """The brokers of the cluster that runs in a directory; CommandError if none does."""
    if is_running(directory):
        with contextlib.suppress(OSError, ValueError):
            rows = json.loads((directory / STATE).read_text())
            return {row["id"]: BrokerState(**row) for row in rows}
        raise CommandError(f"the cluster in {directory} is still starting", remedy="Try again in a moment")
    raise CommandError(
        f"no moldau cluster up runs in {directory}",
        remedy=f"Start it with: moldau cluster up --dir {directory}; or name its directory with --dir",
    )


def restart(directory: Path, broker: int, timeout_s: float) -> BrokerState:
    """Have a broker of a running cluster started again, stopped before if it runs; returns once it is ready."""
    before = read_state(directory)
    if broker not in before:
        raise CommandError(f"there is no broker {broker}", remedy=f"There are: {', '.join(map(str, before))}")
    (directory / f"{REQUEST}{broker}").touch()
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        now = read_state(directory)[broker]
        if now.starts > before[broker].starts:
            if now.problem:
                raise CommandError(f"broker {broker} {now.problem}")
            if now.ready:
                return now
        time.sleep(POLL_S)
    raise CommandError(
        f"broker {broker} is not ready after {timeout_s:.0f} s", remedy=f"See {directory}/broker-{broker}.log"
    )


def remove_if_unused(directory: Path) -> None:
    """Remove a directory that a failed start has left with nothing but locks in it."""
    found = list(directory.rglob("*"))
    if all(path.is_dir() or path.name in LOCK_NAMES for path in found):
        for path in sorted(found, reverse=True):
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
        directory.rmdir()
