"""Instructions that a broker executes per request, counted by valgrind's callgrind. Not time: the kernel is left out.

The count hardly depends on what else the machine does, so it compares source trees, settings and compiled modules on a
busy one. What is sent is that of `saturation_measures`.
"""

import contextlib
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.peers import Kind, Peer, Started, running
from benchmarks.saturate import Site, own_site, shared_site
from benchmarks.saturation_load import Load, Tape
from benchmarks.saturation_measures import CONNECTIONS, Saturation

TOOLS = ("valgrind", "callgrind_control")
READY_LIMIT_S = 600.0
ROUNDS = 5
USUAL = ("produce-single", "produce-100", "fetch-hot", "fetch-follower", "commits")
PROFILE = "callgrind.%p"
_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Counted(Started):
    """A broker under callgrind, which counts nothing until it is told to."""

    def command(self, home: Path, port: int) -> list[str]:
        options = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={home / PROFILE}"]
        options += ["--trace-children=yes"]  # the command may be another one that executes the broker in its place
        # A fixed seed: the order of sets and the collisions of dictionaries are the same every time.
        return ["/usr/bin/env", "PYTHONHASHSEED=0", "valgrind", *options, *self.kind.command(home, port)]


@dataclass(frozen=True, slots=True)
class Row:
    """Instructions per request: the least of some rounds, since work that comes from time to time only adds to them."""

    name: str
    alone: float  # one request in flight
    pipelined: float  # as many as the saturating load has, on all connections
    spread: float  # by which share the median is above that; the larger one of both


def missing_tools() -> list[str]:
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def count(
    kind: Kind, wanted: list[Saturation], workdir: Path, say: Say, *, requests: int, profiles: Path | None = None
) -> list[Row]:
    """A row for each measure; `profiles` is a directory for callgrind's files."""
    rows = []
    with contextlib.ExitStack() as stack:
        if any(not measure.has_own_brokers for measure in wanted):
            say(f"starting {kind.name} {kind.version}")
            peer = stack.enter_context(running(Counted(kind), workdir, "counted", ready_limit_s=READY_LIMIT_S))
            counter = _Counter(peer, profiles)
        for measure in wanted:
            say(measure.name)
            if measure.has_own_brokers:
                with own_site(measure, kind, workdir, "counted", Counted, READY_LIMIT_S) as site:
                    rows.append(_row(measure, site, _Counter(site.peer, profiles), requests))
            else:
                rows.append(_row(measure, shared_site(measure, peer), counter, requests))
    return rows


def _row(measure: Saturation, site: Site, counter: "_Counter", requests: int) -> Row:
    found = []
    for connections in (1, CONNECTIONS):
        with site.tapes() as tapes:
            played = tapes if connections > 1 else [replace(tapes[0], window=1)]
            found.append(counter.rounds(site, measure.name, played, -(-requests // connections)))
    spread = max((statistics.median(each) - min(each)) / min(each) for each in found)
    return Row(measure.name, min(found[0]), min(found[1]), spread)


class _Counter:
    def __init__(self, peer: Peer, profiles: Path | None) -> None:
        self._peer = peer
        self._profiles = profiles
        self._dumps = 0

    def rounds(self, site: Site, name: str, tapes: list[Tape], requests: int) -> list[float]:
        """Instructions per request, of several rounds on the same connections."""
        with Load(site.address, tapes, may_spin=False, tls=site.tls) as sender:
            sender.answer(requests)
            self._control("--instr=on")
            try:
                return [self._round(name, sender, requests, len(tapes)) for _ in range(ROUNDS)]
            finally:
                self._control("--instr=off")

    def _round(self, name: str, sender: Load, requests: int, connections: int) -> float:
        self._control("--zero")
        sender.answer(requests)
        self._control("--dump")
        self._dumps += 1
        written = self._peer.home / f"{PROFILE.replace('%p', str(self._peer.pid))}.{self._dumps}"
        found = _TOTALS.search(written.read_text())
        assert found is not None, f"{written} has no totals"
        if self._profiles is not None:
            shutil.move(written, self._profiles / f"{name}-{connections}.callgrind")
        return int(found[1]) / (requests * connections)

    def _control(self, what: str) -> None:
        subprocess.run(["callgrind_control", what, str(self._peer.pid)], check=True, capture_output=True)
