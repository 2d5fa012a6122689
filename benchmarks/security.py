"""Comparison with security on: over TLS, and with SASL_SSL, SCRAM, ACLs and quotas. Returns a plain value.

An open and a secured broker of each kind run; one is under load at a time. Within a round all workloads follow each
other, so that what security costs is a ratio of neighbours.
"""

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import drive, frames, measures
from benchmarks.compare import idle_cpu, machine
from benchmarks.measures import MIB, Better, Figures, Measure, Setting, Sizes
from benchmarks.peers import ApacheKafka, Moldau, Peer
from benchmarks.secured import (
    ITERATIONS,
    MECHANISM,
    PLAINTEXT,
    SASL,
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    Endpoint,
    Files,
    PeerEndpoints,
    Which,
    make_files,
    running_open,
    running_secured,
)
from benchmarks.stats import summarise

RECORD_SIZE = 100
LOGIN_PROCESSES = 8
FIRST_CONNECTIONS = 10  # made and closed before memory is compared, so that loaded code is not counted
SETTLE_S = 1.0
RATED: tuple[tuple[str, str, Better], ...] = (  # figures that two workloads are compared by
    ("records_per_s", "records/s", "higher"),
    ("cpu_us_per_record", "µs", "lower"),
)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Extent:
    """How much, beside the numbers of records; `--quick` only checks that everything runs."""

    sizes: Sizes
    login_warm_up_s: float
    login_s: float
    connections: int


FULL = Extent(measures.FULL, login_warm_up_s=2.0, login_s=8.0, connections=1_000)
QUICK = Extent(measures.QUICK, login_warm_up_s=0.2, login_s=0.5, connections=50)


@dataclass(frozen=True, slots=True)
class Side:
    """Both brokers of a kind."""

    label: str
    kind: Which
    open: PeerEndpoints
    secured: PeerEndpoints

    def at(self, protocol: str) -> Endpoint:
        broker = self.open if protocol in self.open.endpoints else self.secured
        return broker.endpoints[protocol]


@dataclass(frozen=True, slots=True)
class Context:
    setting: Setting
    extent: Extent
    files: Files


@dataclass(frozen=True, slots=True)
class Workload:
    """One round on one side; `protocol` tells the broker and its listener."""

    name: str
    protocol: str
    run: Callable[[Context, Side, Endpoint], Figures]
    warm_rounds: int = 1  # ahead, which do not count


def _produce(context: Context, side: Side, endpoint: Endpoint) -> Figures:
    count = context.setting.sizes.produce
    settings = {"acks": "1", "enable.idempotence": "false"}
    load = drive.ProduceLoad(count, RECORD_SIZE, warm_up=count // 4, settings=settings)
    return measures.produce(context.setting, endpoint.peer, endpoint.load(context.setting.jars, load), to=endpoint)


def _consume(context: Context, side: Side, endpoint: Endpoint) -> Figures:
    return measures.consume(context.setting, endpoint.peer, source=endpoint, settings=endpoint.librdkafka)


def _log_in(context: Context, side: Side, endpoint: Endpoint) -> Figures:
    host, port = endpoint.address
    return drive.work(
        "log-in", host=host, port=port, pid=endpoint.peer.pid, tls=endpoint.tls, mechanism=SASL.mechanism,
        username=SASL.username, password=SASL.password, processes=LOGIN_PROCESSES,
        warm_up_s=context.extent.login_warm_up_s, seconds=context.extent.login_s,
    )  # fmt: skip


def _memory(context: Context, side: Side, endpoint: Endpoint) -> Figures:
    """How much a new broker grows by idle connections, each of which has sent one request."""
    count = context.extent.connections
    with running_open(side.kind, context.files, context.setting.workdir, side.label) as broker:
        peer, fresh = broker.peer, broker.endpoints[endpoint.protocol]
        with _connected(fresh, FIRST_CONNECTIONS):
            pass
        time.sleep(SETTLE_S)
        rss, pss = peer.rss_bytes(), peer.pss_bytes()
        with _connected(fresh, count):
            time.sleep(SETTLE_S)
            grown_rss, grown_pss = peer.rss_bytes() - rss, peer.pss_bytes() - pss
        return {
            "rss_mb": grown_rss / MIB,
            "pss_mb": grown_pss / MIB,
            "kb_per_connection": grown_rss / 1024 / count,
            "total_rss_mb": (rss + grown_rss) / MIB,
        }


@contextlib.contextmanager
def _connected(endpoint: Endpoint, count: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(endpoint.connect()).ask(frames.api_versions())
        yield


WORKLOADS = (
    Workload("produce-plaintext", PLAINTEXT, _produce),
    Workload("produce-tls", SSL, _produce),
    Workload("produce-secured", SASL_SSL, _produce),
    Workload("consume-plaintext", PLAINTEXT, _consume),
    Workload("consume-tls", SSL, _consume),
    Workload("consume-secured", SASL_SSL, _consume),
    Workload("login", SASL_SSL, _log_in, warm_rounds=2),
    Workload("login-plaintext", SASL_PLAINTEXT, _log_in, warm_rounds=2),
    Workload("memory", SSL, _memory, warm_rounds=0),
)


def _rate(name: str, title: str, floor: float | None) -> Measure:
    return Measure(name, title, name, "records_per_s", "records/s", "higher", floor)


def _cpu(workload: str, title: str) -> Measure:
    return Measure(f"cpu-{workload}", title, workload, "cpu_us_per_record", "µs", "lower", None)


MEASURES = (
    _rate("produce-plaintext", "produce 100 B, acks=1, plaintext", None),
    _rate("produce-tls", "produce 100 B, acks=1, TLS", 1.2),
    _rate("produce-secured", "produce 100 B, acks=1, TLS, SCRAM, ACLs, quotas", None),
    _cpu("produce-plaintext", "CPU per record, produce, plaintext"),
    _cpu("produce-tls", "CPU per record, produce, TLS"),
    _cpu("produce-secured", "CPU per record, produce, all of it"),
    _rate("consume-plaintext", "consume 100 B, librdkafka, plaintext", None),
    _rate("consume-tls", "consume 100 B, librdkafka, TLS", 1.0),
    _rate("consume-secured", "consume 100 B, librdkafka, TLS, SCRAM, ACLs, quotas", None),
    _cpu("consume-plaintext", "CPU per record, consume, plaintext"),
    _cpu("consume-tls", "CPU per record, consume, TLS"),
    _cpu("consume-secured", "CPU per record, consume, all of it"),
    Measure("login", "connections with SCRAM, SASL_SSL", "login", "per_s", "logins/s", "higher", None),
    Measure("cpu-login", "CPU per login, SASL_SSL", "login", "cpu_ms", "ms", "lower", None),
    Measure(
        "login-plaintext", "connections with SCRAM, SASL_PLAINTEXT", "login-plaintext", "per_s", "logins/s", "higher",
        None,
    ),
    Measure("cpu-login-plaintext", "CPU per login, SASL_PLAINTEXT", "login-plaintext", "cpu_ms", "ms", "lower", None),
    Measure("memory", "memory of 1,000 TLS connections", "memory", "rss_mb", "MB", "lower", None),
    Measure("memory-total", "resident memory with them", "memory", "total_rss_mb", "MB", "lower", None),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """One workload beside another on the same kind of broker; the floor is for ours."""

    title: str
    with_it: str
    without: str
    floor: float | None = None


COSTS = tuple(
    Cost(f"{what}: {title}", f"{what}-{with_it}", f"{what}-{without}", floor)
    for what in ("produce", "consume")
    for title, with_it, without, floor in (
        ("SCRAM, ACLs, quotas beside TLS alone", "secured", "tls", 0.95),
        ("all of it beside plaintext", "secured", "plaintext", None),
        ("TLS beside plaintext", "tls", "plaintext", None),
    )
)


def chosen(only: list[str]) -> list[Measure]:
    """The measures with one of these prefixes in name or workload; all if there are none."""
    names = tuple(only)
    return [each for each in MEASURES if not names or each.name.startswith(names) or each.workload.startswith(names)]


def compare(
    ours: Moldau, theirs: ApacheKafka | None, wanted: list[Measure], setting: Setting, extent: Extent, *,
    rounds: int, say: Say,
) -> dict[str, Any]:  # fmt: skip
    """Medians of alternating rounds."""
    due = [each for each in WORKLOADS if any(measure.workload == each.name for measure in wanted)]
    taken: dict[str, dict[str, list[Figures]]] = {}
    with contextlib.ExitStack() as stack:
        context = Context(setting, extent, make_files(setting.workdir / "files"))
        kinds: dict[str, Which] = {"ours": ours} if theirs is None else {"ours": ours, "theirs": theirs}
        sides = [stack.enter_context(_side(label, kind, context, say)) for label, kind in kinds.items()]
        ciphers = {side.label: _cipher(side.at(SSL)) for side in sides}
        for workload in due:
            taken[workload.name] = {side.label: [] for side in sides}
            for side in list(sides) * workload.warm_rounds:
                say(f"{workload.name}, warming {side.label}")
                workload.run(context, side, side.at(workload.protocol))
        for number in range(rounds):
            _round(number, rounds, due, sides, context, say, taken)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(setting.jars),
        "ours": f"{ours.name} {ours.version}",
        "theirs": f"{theirs.name} {theirs.version}" if theirs else None,
        "rounds": rounds,
        "consumer": setting.consumer,
        "sizes": {name: getattr(extent.sizes, name) for name in Sizes.__slots__},
        "scram": {"mechanism": MECHANISM, "iterations": ITERATIONS},
        "ciphers": ciphers,
        "measures": [summarise(measure, taken[measure.workload]) for measure in wanted],
        "costs": costs(taken),
        "figures": taken,
    }


def _round(
    number: int, rounds: int, due: Sequence[Workload], sides: Sequence[Side], context: Context, say: Say,
    taken: dict[str, dict[str, list[Figures]]],
) -> None:  # fmt: skip
    """Every workload on every side. The orders alternate, so that none always goes second."""
    turn = 1 if number % 2 == 0 else -1
    peers = _peers(sides)
    for workload in due[::turn]:
        for side in sides[::turn]:
            say(f"{workload.name}, round {number + 1} of {rounds}: {side.label}")
            endpoint = side.at(workload.protocol)
            idle = idle_cpu(peers, endpoint.peer)
            figures = workload.run(context, side, endpoint)
            figures["other_cpu_s"] = idle_cpu(peers, endpoint.peer) - idle
            taken[workload.name][side.label].append(figures)


def _peers(sides: Sequence[Side]) -> list[Peer]:
    return [broker.peer for side in sides for broker in (side.open, side.secured)]


@contextlib.contextmanager
def _side(label: str, kind: Which, context: Context, say: Say) -> Iterator[Side]:
    workdir, files = context.setting.workdir, context.files
    say(f"starting {label}: two brokers of {kind.name} {kind.version}")
    with (
        running_open(kind, files, workdir, label) as opened,
        running_secured(kind, files, workdir, f"{label}-secured") as secured,
    ):
        yield Side(label, kind, opened, secured)


def _cipher(endpoint: Endpoint) -> str:
    with endpoint.connect() as connection:
        return connection.cipher


def costs(taken: dict[str, dict[str, list[Figures]]]) -> list[dict[str, Any]]:
    """Ratios of rates, and of CPU per record, of one workload to another of the same side."""
    rows = []
    for cost in COSTS:
        if cost.with_it not in taken or cost.without not in taken:
            continue
        for label, rounds in taken[cost.with_it].items():
            for figure, unit, better in RATED:
                floor = cost.floor if label == "ours" and better == "higher" else None
                measure = Measure(cost.with_it, cost.title, cost.with_it, figure, unit, better, floor)
                row = summarise(measure, {"ours": rounds, "theirs": taken[cost.without][label]})
                with_it, without = row.pop("ours"), row.pop("theirs")
                rows.append({**row, "broker": label, "with": with_it, "without": without})
    return rows
