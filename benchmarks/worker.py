"""Load that runs in a process of its own: `python -m benchmarks.worker JOB JSON` prints one JSON line. Internal.

Each job is one function and one row in JOBS; `drive` and `isolation` start them.
"""

import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from benchmarks import frames, logins, members
from benchmarks.measures import BATCH_RECORDS_100
from benchmarks.saturation_load import Load
from benchmarks.saturation_measures import produce_tapes
from benchmarks.spark import passage

CONSUME_BATCH = 10_000
CONSUME_LIMIT_S = 300.0
POLITE = 5  # other load has a lower priority than the measured producer


def consume(job: dict[str, Any]) -> dict[str, float]:
    """Reads a whole topic by partition with librdkafka, with the largest buffers."""
    consumer = Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "fetch.message.max.bytes": 4 << 20,
            "fetch.max.bytes": 64 << 20,
            "receive.message.max.bytes": 100 << 20,
            "queued.min.messages": 2_000_000,
            "queued.max.messages.kbytes": 1 << 20,
            **job["settings"],
        }
    )
    consumer.assign([TopicPartition(job["topic"], index, OFFSET_BEGINNING) for index in range(job["partitions"])])
    seen, began, deadline = 0, time.perf_counter(), time.monotonic() + CONSUME_LIMIT_S
    while seen < job["records"]:
        messages = consumer.consume(CONSUME_BATCH, 0.1)
        if messages and messages[-1].error() is not None:
            raise RuntimeError(str(messages[-1].error()))
        seen += len(messages)
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {seen} of {job['records']} records in {CONSUME_LIMIT_S} s")
    seconds = time.perf_counter() - began
    return {"records": seen, "seconds": seconds, "client_cpu_s": _own_cpu()}


def produce(job: dict[str, Any]) -> dict[str, float]:
    """Send as fast as librdkafka can; replaces ProducerPerformance on machines without Java."""
    producer = Producer(
        {"bootstrap.servers": job["bootstrap"], "queue.buffering.max.messages": 1_000_000, **job["settings"]}
    )
    value, topic, pause_s = os.urandom(job["record_size"]), job["topic"], 0.01
    warm, total = job["warm_up"], job["records"]
    began = steady = time.perf_counter()
    for number in range(total):
        if number == warm:
            steady = time.perf_counter()
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(pause_s)
    producer.flush()
    ended = time.perf_counter()
    return {"records_per_s": (total - warm) / (ended - steady), "whole_records_per_s": total / (ended - began)}


def latency(job: dict[str, Any]) -> dict[str, float]:
    """Sends at a steady rate; percentiles, in milliseconds, of the time until each record was acknowledged."""
    producer = Producer({"bootstrap.servers": job["bootstrap"], "linger.ms": 0, **job["settings"]})
    taken: list[float] = []
    failures: list[str] = []

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            failures.append(str(error))
        else:
            taken.append((message.latency() or 0.0) * 1000)

    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            producer.poll(0.1)

    poller = threading.Thread(target=serve)
    poller.start()
    value, interval = os.urandom(job["record_size"]), 1 / job["rate"]
    due = time.perf_counter()
    for _ in range(int(job["rate"] * job["seconds"])):
        producer.produce(job["topic"], value, on_delivery=delivered)
        due += interval
        time.sleep(max(0.0, due - time.perf_counter()))
    producer.flush(30)
    done.set()
    poller.join()
    if failures:
        raise RuntimeError(f"{len(failures)} records were not acknowledged: {failures[0]}")
    steady = sorted(taken[int(len(taken) * job["warm_up"]) :])
    return {
        "records": len(steady),
        "avg_ms": sum(steady) / len(steady),
        "max_ms": steady[-1],
        **{f"p{name}_ms": steady[int(len(steady) * share)] for name, share in PERCENTILES},
    }


PERCENTILES = (("50", 0.5), ("95", 0.95), ("99", 0.99), ("999", 0.999))


def ask_metadata(job: dict[str, Any]) -> dict[str, float]:
    """Request the metadata of all topics until it is stopped."""
    request = frames.metadata_of_all_topics()
    return _until_stopped(job, lambda connection: iter(lambda: connection.ask(request).size, 0))


def append_one_by_one(job: dict[str, Any]) -> dict[str, float]:
    """Appends a batch, waits for the answer, appends the next; with `flush.messages=1` each one is an fsync."""
    request = frames.produce(uuid.UUID(job["topic_id"]), [(0, frames.batch(10, 1000))])

    def steps(connection: frames.Connection) -> Iterator[int]:
        while True:
            answer = connection.ask(request)
            frames.check_produced(answer, 1)
            yield len(request)

    return _until_stopped(job, steps)


def produce_all(job: dict[str, Any]) -> dict[str, float]:
    """Send batches of 150 × 100 B as fast as they are answered, as the saturating load does, until it is stopped."""
    tapes = produce_tapes(uuid.UUID(job["topic_id"]), frames.batch(BATCH_RECORDS_100, 100))
    stopped = _stoppable()
    began = time.perf_counter()
    with Load((job["host"], job["port"]), tapes) as sender:
        while not stopped.is_set():
            sender.play(0.1, sys.maxsize)
        rounds = sender.drain()
        return {"rounds": rounds, "bytes": sender.sent_bytes, "seconds": time.perf_counter() - began}


def read_cold(job: dict[str, Any]) -> dict[str, float]:
    """Reads a whole topic from the disk, partition by partition, drops it from the page cache, and starts over."""
    topic, data = uuid.UUID(job["topic_id"]), Path(job["data"])

    def steps(connection: frames.Connection) -> Iterator[int]:
        while True:
            drop_cache(data, job["topic"])
            for partition in range(job["partitions"]):
                offset = 0
                while offset < job["end_offset"]:
                    answer = connection.ask(frames.fetch(topic, [(partition, offset)], partition_bytes=8 << 20))
                    batches = frames.check_fetched(answer).records_size // job["batch_bytes"]
                    offset += max(1, batches) * job["batch_records"]
                    yield answer.size

    return _until_stopped(job, steps)


def drop_cache(data: Path, topic: str) -> None:
    """Asks the kernel to forget the cached pages of a topic's segments."""
    for file in data.glob(f"{topic}-*/*.log"):
        with file.open("rb") as handle:
            os.fdatasync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _until_stopped(job: dict[str, Any], steps: Callable[[frames.Connection], Iterator[int]]) -> dict[str, float]:
    """Takes one step after the other until SIGTERM; each yields the bytes that it moved."""
    stopped = _stoppable()
    rounds = moved = 0
    began = time.perf_counter()
    with frames.Connection((job["host"], job["port"])) as connection:
        for count in steps(connection):
            rounds, moved = rounds + 1, moved + count
            if stopped.is_set():
                break
    return {"rounds": rounds, "bytes": moved, "seconds": time.perf_counter() - began}


def _stoppable() -> threading.Event:
    """Set by SIGTERM. What runs until then has a lower priority than the measured producer."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    os.nice(POLITE)
    return stopped


def _own_cpu() -> float:
    times = os.times()
    return times.user + times.system


JOBS: dict[str, Callable[[dict[str, Any]], dict[str, float]]] = {
    "consume": consume,
    "produce": produce,
    "latency": latency,
    "rebalance": members.rebalance,
    "log-in": logins.log_in_repeatedly,
    "passage": passage.passage,
    "ask-metadata": ask_metadata,
    "append-one-by-one": append_one_by_one,
    "produce-all": produce_all,
    "read-cold": read_cold,
}


if __name__ == "__main__":
    print(json.dumps(JOBS[sys.argv[1]](json.loads(sys.argv[2]))))
