"""How long a record takes from one topic through a query to another: a producer and a consumer in one process.

A job of `benchmarks.worker`; the query runs elsewhere.
"""

import threading
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

PATIENCE_S = 60.0
PERCENTILES = (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))


def passage(job: dict[str, Any]) -> dict[str, float]:
    """Sends at a steady rate; percentiles of the time until each record is seen behind the query.

    Counted are `seconds` that begin `warm_up_s` after the first record came through: a query takes its time to start.
    """
    through, done = threading.Event(), threading.Event()
    sent: list[int] = []
    sender = threading.Thread(target=_send, args=(job, through, done, sent))
    sender.start()
    try:
        taken = _receive(job, through, done, sent)
    finally:
        done.set()
        sender.join()
    counted_from = taken[0][1] + int(job["warm_up_s"] * 1e9)
    steady = sorted((seen - began) / 1e6 for began, seen in taken if began >= counted_from)
    return {
        "records": len(steady),
        "avg_ms": sum(steady) / len(steady),
        "max_ms": steady[-1],
        **{name: steady[int(len(steady) * share)] for name, share in PERCENTILES},
    }


def _send(job: dict[str, Any], through: threading.Event, done: threading.Event, sent: list[int]) -> None:
    """Goes on for as long as wanted after the first record came through; then says `done`."""
    producer = Producer({"bootstrap.servers": job["bootstrap"], "linger.ms": 0})
    interval, due = 1 / job["rate"], time.perf_counter()
    left = int(job["rate"] * (job["warm_up_s"] + job["seconds"]))
    while left and not done.is_set():
        now = time.perf_counter_ns()
        producer.produce(job["topic"], (b"%020d" % now).ljust(job["size"], b"~"), key=b"%d" % len(sent))
        sent.append(now)
        producer.poll(0)
        left -= through.is_set()
        due += interval
        time.sleep(max(0.0, due - time.perf_counter()))
    producer.flush(PATIENCE_S)
    done.set()


def _receive(
    job: dict[str, Any], through: threading.Event, done: threading.Event, sent: list[int]
) -> list[tuple[int, int]]:
    """When each record was sent and seen."""
    consumer = Consumer({"bootstrap.servers": job["bootstrap"], "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(job["target"], index, OFFSET_BEGINNING) for index in range(job["partitions"])])
    taken: list[tuple[int, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while not done.is_set() or len(taken) < len(sent):
            message = consumer.poll(0.1)
            if message is not None:
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                taken.append((int((message.value() or b"")[:20]), time.perf_counter_ns()))
                through.set()
                deadline = time.monotonic() + PATIENCE_S
            elif time.monotonic() > deadline:
                raise TimeoutError(f"only {len(taken)} of {len(sent)} records came through the query")
    finally:
        consumer.close()
    return taken
