"""The comparison itself: both brokers up, warmed, and loaded in turn, round by round; returns a plain value.

Only one broker is under load at a time. The other one idles; it is not paused, because a paused Apache Kafka finds its
own broker session expired when it wakes. What the idle one uses meanwhile is recorded beside each round.
"""

import contextlib
import datetime
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.jars import Jars
from benchmarks.measures import Figures, Measure, Setting, Sizes, peers_of, warm_up, workloads_of
from benchmarks.peers import Kind, Peer, running
from benchmarks.stats import summarise

Say = Callable[[str], None]
Results = dict[str, Any]


def compare(
    ours: Kind, theirs: Kind | None, measures: list[Measure], setting: Setting, *, rounds: int, say: Say
) -> Results:
    """Runs every needed workload `rounds` times on each broker, in turn."""
    taken: dict[str, dict[str, list[Figures]]] = {}
    with contextlib.ExitStack() as stack:
        peers: list[Peer] = []
        for label, kind in peers_of(ours, theirs):
            say(f"starting {label}: {kind.name} {kind.version}")
            peers.append(stack.enter_context(running(kind, setting.workdir, label)))
        for peer in peers:
            say(f"warming {peer.label} with {setting.sizes.warm_up:,} records")
            warm_up(setting, peer)
        for workload in workloads_of(measures):
            taken[workload.name] = {peer.label: [] for peer in peers}
            for number in range(rounds):
                # The order alternates, so that neither always goes second.
                for peer in peers if number % 2 == 0 else reversed(peers):
                    say(f"{workload.name}, round {number + 1} of {rounds}: {peer.label}")
                    idle = idle_cpu(peers, peer)
                    figures = workload.run(setting, peer)
                    figures["other_cpu_s"] = idle_cpu(peers, peer) - idle
                    taken[workload.name][peer.label].append(figures)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(setting.jars),
        "ours": f"{ours.name} {ours.version}",
        "theirs": f"{theirs.name} {theirs.version}" if theirs else None,
        "rounds": rounds,
        "consumer": setting.consumer,
        "sizes": {name: getattr(setting.sizes, name) for name in Sizes.__slots__},
        "measures": [summarise(measure, taken[measure.workload]) for measure in measures],
        "figures": taken,
    }


def idle_cpu(peers: list[Peer], loaded: Peer) -> float:
    return sum(peer.cpu_seconds() for peer in peers if peer is not loaded)


def machine(jars: Jars | None) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": jars.java_version if jars else None,
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()
