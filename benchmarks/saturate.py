"""What one core of a broker can do: each broker pinned to one core, the sender of the load to another. Not latency.

Rules of the comparison: how brokers are pinned, warmed and loaded in turn, and what is counted. What is sent is in
`saturation_measures`, how in `saturation_load`.
"""

import contextlib
import datetime
import os
import ssl
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import followed, logins, topics
from benchmarks.compare import idle_cpu, machine
from benchmarks.jars import Jars
from benchmarks.measures import Figures, Measure, peers_of
from benchmarks.peers import READY_LIMIT_S, Kind, Peer, Started, running
from benchmarks.saturation_load import Load, Tape
from benchmarks.saturation_measures import CONNECTIONS, Saturation
from benchmarks.secured import SSL, make_files, running_open
from benchmarks.stats import summarise

LEAD_S = 0.2  # of load before a stretch is counted: connections, first segments
MOST_BYTES = 2_000_000_000  # of frames per round: less than what the kernel lets be dirty before it writes back
WARM_RISE = 1.03  # a slice that is faster than all before by more than this shows that the broker still warms up
WARM_STEADY = 2  # slices in a row that do not rise
GENERATOR_BUSY = 0.9  # beyond this the sender may be what is measured
BROKER_BUSY = 0.9  # below this the broker's core was not what limited it
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
DISTURBED = 0.05  # of a core, used by others than the broker and the sender

MARKS = {
    "*": "the core of the load was more than 90 % busy: the broker may be able to do more",
    "~": "the core of the broker was less than 90 % busy with it: the broker waited for something else",
    "!": "others used more than 5 % of one of the cores: repeat it on an idle machine",
}

PIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execvp(sys.argv[2], sys.argv[2:])"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Extent:
    """How long; `--quick` only checks that everything runs."""

    rounds: int = 3
    seconds: float = 5.0
    slice_s: float = 3.0  # of warming
    warm_least: int = 10  # slices: a JVM compiles its hot methods once more after half a minute of load
    warm_most: int = 20


QUICK = Extent(rounds=1, seconds=0.5, slice_s=0.3, warm_least=1, warm_most=2)


@dataclass(frozen=True, slots=True)
class Cores:
    broker: int
    generator: int


def two_cores() -> Cores | None:
    """A core for brokers and another for the load, on different physical cores if possible; None if there are none."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    broker, others = allowed[0], allowed[1:]
    apart = [core for core in others if core not in _siblings(broker)]
    return Cores(broker, (apart or others)[0]) if others else None


def _siblings(core: int) -> set[int]:
    """The logical cores that share a physical one with `core`."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    found: set[int] = set()
    for part in path.read_text().strip().split(",") if path.exists() else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """This process on one core; threads that exist already stay where they are."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True, slots=True)
class Pinned(Started):
    """A broker that has one core from its start, with all its threads."""

    core: int

    def command(self, home: Path, port: int) -> list[str]:
        return [sys.executable, "-c", PIN, str(self.core), *self.kind.command(home, port)]


@dataclass(frozen=True, slots=True)
class Site:
    """A broker, and how it gets ready for one stretch of a measure."""

    peer: Peer
    tapes: Callable[[], AbstractContextManager[list[Tape]]]
    address: tuple[str, int]
    tls: ssl.SSLContext | None = None


@contextlib.contextmanager
def topic_of_its_own(measure: Saturation, peer: Peer) -> Iterator[list[Tape]]:
    with topics.topic(peer, CONNECTIONS) as topic, measure.prepare(peer, topic) as tapes:
        yield tapes


def shared_site(measure: Saturation, peer: Peer) -> Site:
    """A broker that other measures use too: each stretch has a topic of its own."""
    return Site(peer, partial(topic_of_its_own, measure, peer), peer.address)


@contextlib.contextmanager
def own_site(
    measure: Saturation,
    kind: Kind,
    workdir: Path,
    label: str,
    wrap: Callable[[Kind], Kind],
    ready_limit_s: float = READY_LIMIT_S,
) -> Iterator[Site]:
    """A broker for this measure alone, with a follower or with TLS."""
    if measure.followed:
        with (
            followed.leading(kind, workdir, label, CONNECTIONS, wrap, ready_limit_s) as (peer, topic),
            measure.prepare(peer, topic) as tapes,
        ):
            yield Site(peer, lambda: contextlib.nullcontext(tapes), peer.address)  # one topic for all stretches
    else:
        files = make_files(workdir / f"{label}-certificates")
        with running_open(kind, files, workdir, label, wrap, ready_limit_s) as broker:
            shared = shared_site(measure, broker.peer)
            yield replace(shared, address=broker.endpoints[SSL].address, tls=logins.light_context())


def compare(
    ours: Kind, theirs: Kind | None, wanted: list[Saturation], extent: Extent, cores: Cores, workdir: Path, say: Say
) -> dict[str, Any]:
    """Every measure on both brokers in turn, warmed for each by the same rule."""
    taken: dict[str, dict[str, list[Figures]]] = {}
    warmed: dict[str, dict[str, list[float]]] = {}
    with on_core(cores.generator), _sites(peers_of(ours, theirs), wanted, cores, workdir, say) as sites_of:
        for measure in wanted:
            with sites_of(measure) as sites:
                warmed[measure.name] = {site.peer.label: _warm(measure, site, extent, cores, say) for site in sites}
                taken[measure.name] = _rounds(measure, sites, extent, cores, say)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(_jars_of(theirs)),
        "cores": {"broker": cores.broker, "generator": cores.generator},
        "ours": f"{ours.name} {ours.version}",
        "theirs": f"{theirs.name} {theirs.version}" if theirs else None,
        "rounds": extent.rounds,
        "seconds": extent.seconds,
        "measures": [summary(measure, taken[measure.name]) for measure in wanted],
        "legend": MARKS,
        "warming": warmed,
        "figures": taken,
    }


@contextlib.contextmanager
def _sites(
    kinds: Sequence[tuple[str, Kind]], wanted: list[Saturation], cores: Cores, workdir: Path, say: Say
) -> Iterator[Callable[[Saturation], AbstractContextManager[list[Site]]]]:
    """Brokers for all measures, except for those that have their own."""

    def pinned(kind: Kind) -> Kind:
        return Pinned(kind, cores.broker)

    @contextlib.contextmanager
    def sites_of(measure: Saturation) -> Iterator[list[Site]]:
        with contextlib.ExitStack() as stack:
            if measure.has_own_brokers:
                say(f"{measure.name}: starting brokers for it alone")
                starting = [own_site(measure, kind, workdir, label, pinned) for label, kind in kinds]
                yield [stack.enter_context(each) for each in starting]
            else:
                yield [shared_site(measure, peer) for peer in peers]

    with contextlib.ExitStack() as stack:
        peers: list[Peer] = []
        for label, kind in kinds:
            if any(not measure.has_own_brokers for measure in wanted):
                say(f"starting {label}: {kind.name} {kind.version}")
                peers.append(stack.enter_context(running(pinned(kind), workdir, label)))
        yield sites_of


def _rounds(measure: Saturation, sites: list[Site], extent: Extent, cores: Cores, say: Say) -> dict[str, list[Figures]]:
    peers = [site.peer for site in sites]
    taken: dict[str, list[Figures]] = {peer.label: [] for peer in peers}
    for number in range(extent.rounds):
        # The order alternates, so that neither always goes second.
        for site in sites if number % 2 == 0 else reversed(sites):
            peer = site.peer
            say(f"{measure.name}, round {number + 1} of {extent.rounds}: {peer.label}")
            idle = idle_cpu(peers, peer)
            figures = load(measure, site, extent.seconds, cores)
            figures["other_cpu_s"] = idle_cpu(peers, peer) - idle
            taken[peer.label].append(figures)
    return taken


def _jars_of(kind: Kind | None) -> Jars | None:
    return getattr(kind, "jars", None)


def _warm(measure: Saturation, site: Site, extent: Extent, cores: Cores, say: Say) -> list[float]:
    """Slices of this load, half a minute at least, until it gets no faster; their rates."""
    rates: list[float] = []
    while len(rates) < extent.warm_least or (len(rates) < extent.warm_most and not steady(rates)):
        say(f"{measure.name}, warming {site.peer.label}, slice {len(rates) + 1}")
        rates.append(load(measure, site, extent.slice_s, cores)["per_s"])
    return rates


def steady(rates: list[float]) -> bool:
    """Whether the last slices were not faster than the best one before each of them."""
    if len(rates) <= WARM_STEADY:
        return False
    return all(rates[at] < max(rates[:at]) * WARM_RISE for at in range(len(rates) - WARM_STEADY, len(rates)))


def load(measure: Saturation, site: Site, seconds: float, cores: Cores) -> Figures:
    """One stretch of load."""
    peer = site.peer
    with site.tapes() as tapes, Load(site.address, tapes, tls=site.tls) as sender:
        sender.play(LEAD_S, MOST_BYTES)
        cpu, (user, kernel), busy = peer.cpu_seconds(), _ticks(peer.pid), _core_ticks(cores)
        played = sender.play(seconds, MOST_BYTES)
        used, (user_after, kernel_after) = peer.cpu_seconds() - cpu, _ticks(peer.pid)
        cores_busy = {name: (after - busy[name]) / TICKS_PER_S for name, after in _core_ticks(cores).items()}
        cores_busy["generator"] -= played.spun_s
        sender.drain()
    units = played.answers * measure.per_answer
    ticks = max(1, user_after - user + kernel_after - kernel)
    return {
        "per_s": units / played.seconds,
        "cpu_us": used / units * 1e6 if units else float("nan"),
        "user": (user_after - user) / ticks,
        "kernel": (kernel_after - kernel) / ticks,
        "broker_busy": used / played.seconds,
        "generator_busy": played.sender_cpu_s / played.seconds,
        "answers": played.answers,
        "seconds": played.seconds,
        **{f"{name}_core_busy": each / played.seconds for name, each in cores_busy.items()},
    }


def _ticks(pid: int) -> tuple[int, int]:
    """User and kernel time of a process, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]), int(fields[12])


def _core_ticks(cores: Cores) -> dict[str, int]:
    """Busy time of both cores, whoever used them: other processes and the kernel's own threads show up here."""
    lines = dict(line.split(" ", 1) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu"))
    found = {}
    for name, core in (("broker", cores.broker), ("generator", cores.generator)):
        user, nice, system, _, _, irq, softirq, steal = (int(field) for field in lines[f"cpu{core}"].split()[:8])
        found[name] = user + nice + system + irq + softirq + steal
    return found


def summary(measure: Saturation, rounds: dict[str, list[Figures]]) -> dict[str, Any]:
    """One row: rates with their ratio, and for each broker the CPU behind them."""
    unit = f"{measure.unit}/s"
    row = summarise(Measure(measure.name, measure.name, measure.name, "per_s", unit, "higher", None), rounds)
    cpu_unit = f"µs/{measure.unit.removesuffix('s')}"
    row["cpu"] = summarise(Measure(measure.name, measure.name, measure.name, "cpu_us", cpu_unit, "lower", None), rounds)
    row["says"] = measure.says
    row["shares"] = {label: _medians(taken) for label, taken in rounds.items()}
    row["marks"] = {label: marks(taken) for label, taken in rounds.items()}
    return row


def _medians(taken: list[Figures]) -> Figures:
    return {name: statistics.median(figures[name] for figures in taken) for name in taken[0]}


def marks(taken: list[Figures]) -> str:
    """What is to be said about the rounds of one broker: keys of `MARKS`."""
    median = _medians(taken)
    others = max(median[f"{name}_core_busy"] - median[f"{name}_busy"] for name in ("broker", "generator"))
    applies = {
        "*": max(max(figures["generator_core_busy"], figures["generator_busy"]) for figures in taken) > GENERATOR_BUSY,
        "~": median["broker_busy"] < BROKER_BUSY,
        "!": others > DISTURBED,
    }
    return "".join(mark for mark in MARKS if applies[mark])
