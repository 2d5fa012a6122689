"""Quotas: the rate that a client reaches beside its quota, on Moldau and Apache Kafka at the same time.

Each client runs as fast as it can. What counts are the bytes of values from the first one on, over the given time.
"""

import contextlib
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.jars import Jars
from benchmarks.peers import Kind, Peer, running
from benchmarks.topics import Topic, create, fill
from moldau.client.admin.cluster import open_cluster
from moldau.client.admin.quotas import alter_quotas
from moldau.client.admin.target import Target

VALUE_SIZE = 1_000
BATCH_RECORDS = 50
JAVA_START_S = 60.0
JVM = ("-Xmx256m",)
POLL_S = 0.02
MIB = 1024 * 1024

_CONSUMED = re.compile(r"^(\d+), \d+, ([\d.]+),", re.MULTILINE)  # time in ms, …, MiB so far


@dataclass(frozen=True, slots=True)
class Row:
    client: str
    broker: str
    ratio: float  # of what it reached to its quota


@dataclass(frozen=True, slots=True)
class Run:
    """One client of one broker, with its own client id and topic."""

    peer: Peer
    topic: Topic
    client_id: str
    seconds: float
    jars: Jars | None


def study(
    kinds: Sequence[Kind], jars: Jars | None, scratch: Path, rate: int, seconds: float, say: Callable[[str], None]
) -> Iterator[Row]:
    """Rates of every client, on all brokers at once."""
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(running(kind, scratch, kind.name.lower().replace(" ", "-"))) for kind in kinds]
        for name, measure in CLIENTS.items():
            if jars is None and name.startswith("Java"):
                continue
            say(f"{name}, {seconds:.0f} s")
            runs = [_prepared(peer, rate, seconds, jars) for peer in peers]
            for peer, reached in zip(peers, _at_once(measure, runs), strict=True):
                yield Row(name, peer.kind.name, reached / rate)


def _prepared(peer: Peer, rate: int, seconds: float, jars: Jars | None) -> Run:
    """A topic with more than the client may consume, and a client id with quotas."""
    client_id = f"quota-{uuid.uuid4().hex[:8]}"
    made = create(peer, 1)
    fill(peer, made, records=int(2 * rate * seconds / VALUE_SIZE), value_size=VALUE_SIZE, batch_records=BATCH_RECORDS)
    with open_cluster(Target(peer.bootstrap)) as cluster:
        quotas = {"producer_byte_rate": float(rate), "consumer_byte_rate": float(rate)}
        alter_quotas(cluster, {"client-id": client_id}, quotas)
    return Run(peer, made, client_id, seconds, jars)


def _at_once(measure: Callable[[Run], float], runs: list[Run]) -> list[float]:
    results = [0.0] * len(runs)

    def work(place: int) -> None:
        results[place] = measure(runs[place])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _produce(run: Run) -> float:
    """librdkafka: bytes of acknowledged values per second."""
    first = 0.0
    done = 0

    def delivered(error: object, message: object) -> None:
        nonlocal first, done
        first = first or time.monotonic()
        done += 0 if error else VALUE_SIZE

    settings = {"linger.ms": 5, "batch.num.messages": BATCH_RECORDS, "queue.buffering.max.kbytes": 4_000}
    producer = Producer({"bootstrap.servers": run.peer.bootstrap, "client.id": run.client_id, **settings})
    value = bytes(VALUE_SIZE)
    while not first or time.monotonic() - first < run.seconds:
        try:
            producer.produce(run.topic.name, value, on_delivery=delivered)
            producer.poll(0)
        except BufferError:
            producer.poll(POLL_S)
    rate = done / (time.monotonic() - first)
    producer.purge()
    producer.flush(1)
    return rate


def _consume(run: Run) -> float:
    """librdkafka: bytes of values per second."""
    consumer = Consumer(
        {"bootstrap.servers": run.peer.bootstrap, "client.id": run.client_id, "group.id": run.client_id}
    )
    consumer.assign([TopicPartition(run.topic.name, 0, 0)])
    first, got = 0.0, 0
    while not first or time.monotonic() - first < run.seconds:
        found = consumer.consume(100, POLL_S)
        if found:
            first = first or time.monotonic()
        got += sum(len(message.value() or b"") for message in found)
    rate = got / (time.monotonic() - first)
    consumer.close()
    return rate


def _produce_with_java(run: Run) -> float:
    """ProducerPerformance: bytes of values per second, by the end of the partition."""
    watcher = Consumer({"bootstrap.servers": run.peer.bootstrap, "group.id": "watcher"})

    def end() -> int:
        return int(watcher.get_watermark_offsets(TopicPartition(run.topic.name, 0), timeout=30)[1])

    begin, deadline = end(), time.monotonic() + JAVA_START_S
    records = ("--num-records", "100000000", "--record-size", str(VALUE_SIZE), "--throughput", "-1")
    names = ("--bootstrap-server", run.peer.bootstrap, "--topic", run.topic.name)
    settings = ("--command-property", f"client.id={run.client_id}", f"batch.size={VALUE_SIZE * BATCH_RECORDS}")
    with _java(run, "org.apache.kafka.tools.ProducerPerformance", *names, *records, *settings):
        while end() == begin and time.monotonic() < deadline:
            time.sleep(POLL_S)
        first = time.monotonic()
        time.sleep(run.seconds)
        return (end() - begin) * VALUE_SIZE / (time.monotonic() - first)


def _consume_with_java(run: Run) -> float:
    """ConsumerPerformance: bytes of values per second, as it reports them about every second."""
    names = ("--bootstrap-server", run.peer.bootstrap, "--topic", run.topic.name, "--num-records", "100000000")
    shown = (
        "--show-detailed-stats",
        "--reporting-interval",
        "1000",
        "--date-format",
        "yyyyMMddHHmmssSSS",
        "--timeout",
        "60000",
    )
    settings = ("--command-property", f"client.id={run.client_id}", "auto.offset.reset=earliest")
    with _java(run, "org.apache.kafka.tools.ConsumerPerformance", *names, *shown, *settings) as process:
        assert process.stdout is not None
        first, got = 0.0, 0.0
        for line in process.stdout:
            found = _CONSUMED.match(line)
            if found is None:
                continue
            first = first or time.monotonic()
            if time.monotonic() - first > run.seconds:
                break
            got = float(found[2]) * MIB
        return got / run.seconds


@contextlib.contextmanager
def _java(run: Run, tool: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    assert run.jars is not None
    command = run.jars.command(tool, *arguments, options=JVM)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


CLIENTS: dict[str, Callable[[Run], float]] = {
    "librdkafka producer": _produce,
    "librdkafka consumer": _consume,
    "Java producer": _produce_with_java,
    "Java consumer": _consume_with_java,
}
