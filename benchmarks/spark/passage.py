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

    What was sent in the first `warm_up_s` seconds is not counted.
    """
    count = int(job["rate"] * job["seconds"])
    sender = threading.Thread(target=_send, args=(job, count))
    began = time.perf_counter_ns()
    sender.start()
    taken = _receive(job, count)
    sender.join()
    counted_from = began + int(job["warm_up_s"] * 1e9)
    steady = sorted((seen - sent) / 1e6 for sent, seen in taken if sent >= counted_from)
    if not steady:
        raise RuntimeError("nothing was sent after the warm-up")
    return {
        "records": len(steady),
        "avg_ms": sum(steady) / len(steady),
        "max_ms": steady[-1],
        **{name: steady[int(len(steady) * share)] for name, share in PERCENTILES},
    }


def _send(job: dict[str, Any], count: int) -> None:
    producer = Producer({"bootstrap.servers": job["bootstrap"], "linger.ms": 0})
    interval, due = 1 / job["rate"], time.perf_counter()
    for number in range(count):
        stamp = b"%020d" % time.perf_counter_ns()
        producer.produce(job["topic"], stamp.ljust(job["size"], b"~"), key=b"%d" % number)
        producer.poll(0)
        due += interval
        time.sleep(max(0.0, due - time.perf_counter()))
    producer.flush(PATIENCE_S)


def _receive(job: dict[str, Any], count: int) -> list[tuple[int, int]]:
    """When each record was sent and seen."""
    consumer = Consumer({"bootstrap.servers": job["bootstrap"], "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(job["target"], index, OFFSET_BEGINNING) for index in range(job["partitions"])])
    taken: list[tuple[int, int]] = []
    deadline = time.monotonic() + job["seconds"] + PATIENCE_S
    try:
        while len(taken) < count:
            message = consumer.poll(0.1)
            if message is not None:
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                taken.append((int((message.value() or b"")[:20]), time.perf_counter_ns()))
            elif time.monotonic() > deadline:
                raise TimeoutError(f"only {len(taken)} of {count} records came through the query")
    finally:
        consumer.close()
    return taken
