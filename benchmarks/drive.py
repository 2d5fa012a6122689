"""Load generators that treat both brokers alike: Kafka's ProducerPerformance, and librdkafka in own processes."""

import contextlib
import json
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.jars import Jars
from benchmarks.peers import Peer
from benchmarks.topics import Topic


class Served(Protocol):
    """A target for clients: one broker, or a cluster."""

    @property
    def bootstrap(self) -> str: ...


PERF_CLASS = "org.apache.kafka.tools.ProducerPerformance"
PERF_JVM = ("-Xmx512m",)
COORDINATED = Path(__file__).with_name("Coordinated.java")
LIMIT_S = 900.0
KCAT_SETTINGS = (  # those of the worker's consumer
    "fetch.message.max.bytes=4194304",
    "fetch.max.bytes=67108864",
    "receive.message.max.bytes=104857600",
    "queued.min.messages=2000000",
    "queued.max.messages.kbytes=1048576",
)

_NUMBER = r"([\d.]+)"
_SUMMARY = re.compile(
    rf"^(\d+) (steady state )?records sent, {_NUMBER} records/sec \({_NUMBER} MB/sec\), {_NUMBER} ms avg latency, "
    rf"{_NUMBER} ms max latency, {_NUMBER} ms 50th, {_NUMBER} ms 95th, {_NUMBER} ms 99th, {_NUMBER} ms 99\.9th\.$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    """What a producer sends; the first `warm_up` records are sent too, but not counted in its rate and latencies."""

    records: int
    record_size: int
    warm_up: int = 0
    throughput: int = -1
    settings: Mapping[str, str] = field(default_factory=dict)
    config: Path | None = None  # a file of further settings, for Java


@dataclass(frozen=True, slots=True)
class CoordinatedLoad:
    """What `Coordinated.java` does: `clients` at once, each `warm_up` and then `count` commits or transactions."""

    mode: str
    clients: int
    warm_up: int
    count: int


@dataclass(frozen=True, slots=True)
class ProduceResult:
    records: int
    records_per_s: float
    mb_per_s: float
    avg_ms: float
    max_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    records: int
    records_per_s: float
    client_cpu_s: float
    tool: str


def parse_summary(output: str) -> ProduceResult:
    """The last summary of ProducerPerformance: of the steady state if there was a warm-up.

    Its progress lines look alike but have no percentiles.
    """
    found = list(_SUMMARY.finditer(output))
    if not found:
        raise ValueError(f"ProducerPerformance printed no summary: {output[-500:]!r}")
    records, _, *numbers = found[-1].groups()
    return ProduceResult(int(records), *(float(number) for number in numbers))


def produce(jars: Jars | None, peer: Served, topic: Topic, load: ProduceLoad) -> ProduceResult:
    """Kafka's ProducerPerformance; librdkafka without Java, with a rate but no latencies."""
    if jars is None:
        return _produce_with_librdkafka(peer, topic, load)
    arguments = ["--bootstrap-server", peer.bootstrap, "--topic", topic.name, "--record-size", str(load.record_size)]
    arguments += ["--num-records", str(load.records), "--throughput", str(load.throughput)]
    if load.warm_up:
        arguments += ["--warmup-records", str(load.warm_up)]
    if load.config is not None:
        arguments += ["--command-config", str(load.config)]
    if load.settings:
        arguments += ["--command-property", *(f"{key}={value}" for key, value in load.settings.items())]
    return parse_summary(_run(jars.command(PERF_CLASS, *arguments, options=PERF_JVM)))


def _produce_with_librdkafka(peer: Served, topic: Topic, load: ProduceLoad) -> ProduceResult:
    result = work(
        "produce", bootstrap=peer.bootstrap, topic=topic.name, records=load.records, record_size=load.record_size,
        warm_up=load.warm_up, settings=dict(load.settings),
    )  # fmt: skip
    rate = result["records_per_s"]
    unknown = float("nan")
    return ProduceResult(load.records, rate, rate * load.record_size / 2**20, *[unknown] * 6)


def consume(
    peer: Served,
    topic: Topic,
    records: int,
    *,
    tool: str = "confluent-kafka",
    settings: Mapping[str, str] | None = None,
) -> ConsumeResult:
    """Reads the whole topic once, from a process of its own; `settings` are librdkafka's."""
    if tool == "kcat":
        return _consume_with_kcat(peer, topic, records, settings or {})
    result = work(
        "consume", bootstrap=peer.bootstrap, topic=topic.name, partitions=topic.partitions, records=records,
        settings=dict(settings or {}),
    )  # fmt: skip
    rate = result["records"] / result["seconds"]
    return ConsumeResult(int(result["records"]), rate, result["client_cpu_s"], tool)


def _consume_with_kcat(peer: Served, topic: Topic, records: int, settings: Mapping[str, str]) -> ConsumeResult:
    """kcat prints nothing per record, but its time includes its start and its first metadata."""
    kcat = shutil.which("kcat")
    if kcat is None:
        raise RuntimeError("there is no `kcat` on this machine")
    command = [kcat, "-C", "-b", peer.bootstrap, "-t", topic.name, "-o", "beginning", "-q", "-f", ""]
    command += ["-c", str(records)]
    for setting in (*KCAT_SETTINGS, *(f"{name}={value}" for name, value in settings.items())):
        command += ["-X", setting]
    before, began = _children_cpu(), time.perf_counter()
    _run(command)
    seconds = time.perf_counter() - began
    return ConsumeResult(records, records / seconds, _children_cpu() - before, "kcat")


def coordinated(jars: Jars, peer: Peer, topic: Topic, load: CoordinatedLoad) -> dict[str, float]:
    """Run Kafka's consumers or transactional producers, each in a loop."""
    arguments = [load.mode, peer.bootstrap, topic.name, str(load.clients), str(load.warm_up), str(load.count)]
    result: dict[str, float] = json.loads(_run(jars.command(str(COORDINATED), *arguments, options=PERF_JVM)))
    return result


def rebalance(peer: Peer, topic: Topic, *, protocol: str, members: int, times: int) -> dict[str, float]:
    """How long a group takes to settle when half of its members join at once; see `members`."""
    host, port = peer.address
    return work(
        "rebalance", host=host, port=port, pid=peer.pid, topic=topic.name, topic_id=str(topic.id),
        partitions=topic.partitions, protocol=protocol, members=members, times=times,
    )  # fmt: skip


def latency(peer: Peer, topic: Topic, *, rate: int, seconds: float, record_size: int = 100) -> dict[str, float]:
    """Percentiles in fractions of a millisecond (ProducerPerformance rounds to whole ones), with librdkafka."""
    return work(
        "latency", bootstrap=peer.bootstrap, topic=topic.name, rate=rate, seconds=seconds, record_size=record_size,
        warm_up=0.2, settings={"acks": "1"},
    )  # fmt: skip


def work(job: str, **arguments: Any) -> dict[str, float]:
    """Runs one job of `benchmarks.worker` to its end."""
    result: dict[str, float] = json.loads(_run(_worker(job, arguments)))
    return result


@contextlib.contextmanager
def disturbing(job: str, **arguments: Any) -> Iterator[dict[str, float]]:
    """Run an endless job of `benchmarks.worker` in the background; its result is in the mapping afterwards."""
    outcome: dict[str, float] = {}
    process = subprocess.Popen(
        _worker(job, arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield outcome
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=LIMIT_S)
        if process.returncode:
            raise RuntimeError(f"{job} failed: {errors.strip().splitlines()[-1:]}")
        outcome.update(json.loads(output))
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _worker(job: str, arguments: dict[str, Any]) -> list[str]:
    return [sys.executable, "-m", "benchmarks.worker", job, json.dumps(arguments)]


def _run(command: list[str]) -> str:
    finished = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, start_new_session=True)
    if finished.returncode:
        last = "\n".join(finished.stderr.strip().splitlines()[-5:])
        raise RuntimeError(f"{command[0]} failed with code {finished.returncode}: {last}")
    return finished.stdout


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
