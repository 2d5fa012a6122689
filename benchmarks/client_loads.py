"""The same work with each Python client: `python -m benchmarks.client_loads CLIENT LOAD JSON` prints one JSON line.

Internal; `clients` starts it, one process for each load. Records have 100 bytes and no key. Producers are idempotent
with acks=all and linger 5 ms; consumers are the only member of a group, and read from the beginning.
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from moldau.client.consumer.options import DEFAULTS

Job = dict[str, Any]
Figures = dict[str, Any]

SIZE = 100
CHUNK = 1_000
LINGER_S = 0.005
NOTHING: Mapping[str, object] = {}
# librdkafka waits 1 s when its queue is full. Moldau's client changes that; so does this for confluent-kafka.
TUNED: Mapping[str, object] = {"fetch.queue.backoff.ms": DEFAULTS["fetch.queue.backoff.ms"]}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _timed(records: int, work: Callable[[], object]) -> Figures:
    cpu, began = _cpu_s(), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    return {"records_per_s": records / seconds, "cpu_us": (_cpu_s() - cpu) / records * 1e6}


def _latencies(taken: list[float]) -> Figures:
    ordered = sorted(taken)
    return {"p50_ms": ordered[len(ordered) // 2] * 1000, "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000}


def _pace(job: Job, send: Callable[[float], object]) -> None:
    """Call `send` at a steady rate, with the time at which it was due."""
    began = time.perf_counter()
    for number in range(job["records"]):
        due = began + number / job["rate"]
        while (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        send(due)


# ── Moldau ──


def moldau_produce(job: Job) -> Figures:
    from moldau import Producer

    value = os.urandom(SIZE)
    with Producer(job["bootstrap"]) as producer:
        producer.send(job["topic"], value).result(60)

        def work() -> None:
            for _ in range(job["records"]):
                producer.send(job["topic"], value)
            producer.flush()

        return _timed(job["records"], work)


def moldau_produce_batches(job: Job) -> Figures:
    from moldau import Producer

    values = [os.urandom(SIZE)] * CHUNK
    with Producer(job["bootstrap"]) as producer:
        producer.send(job["topic"], values[0]).result(60)

        def work() -> None:
            for _ in range(job["records"] // CHUNK):
                producer.send_many(job["topic"], values)
            producer.flush()

        return _timed(job["records"], work)


def moldau_consume(job: Job) -> Figures:
    from moldau import Consumer

    with Consumer(job["bootstrap"], job["topic"], group=job["group"]) as consumer:
        messages = iter(consumer)
        next(messages)
        left = job["records"] - 1

        def work() -> None:
            size = 0
            for _ in range(left):
                size += len(next(messages).value or b"")

        return _timed(left, work)


def moldau_consume_batches(job: Job) -> Figures:
    from moldau import Consumer

    with Consumer(job["bootstrap"], job["topic"], group=job["group"]) as consumer:
        batches = consumer.batches(CHUNK)
        left = job["records"] - len(next(batches))

        def work() -> None:
            seen = size = 0
            while seen < left:
                for message in (batch := next(batches)):
                    size += len(message.value or b"")
                seen += len(batch)

        return _timed(left, work)


def moldau_latency(job: Job) -> Figures:
    from moldau import Producer

    taken: list[float] = []
    with Producer(job["bootstrap"], linger=0) as producer:
        producer.send(job["topic"], b"first").result(60)

        def send(due: float) -> None:
            producer.send(
                job["topic"], b"x" * SIZE, on_delivery=lambda delivery: taken.append(time.perf_counter() - due)
            )

        _pace(job, send)
    return _latencies(taken)


# ── confluent-kafka ──


def _confluent_producer(job: Job, linger_s: float) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "enable.idempotence": True,
            "linger.ms": linger_s * 1000,
            "partitioner": "murmur2_random",
        }
    )


def confluent_produce(job: Job) -> Figures:
    """With a delivery report for each record, as the other clients have."""
    return _confluent_produce(job, 1, reports=True)


def confluent_produce_batches(job: Job) -> Figures:
    """The same, polling once per thousand records."""
    return _confluent_produce(job, CHUNK, reports=True)


def confluent_produce_unreported(job: Job) -> Figures:
    """The fastest that it can do: nobody learns what became of a record."""
    return _confluent_produce(job, CHUNK, reports=False)


def _confluent_produce(job: Job, serve_every: int, *, reports: bool) -> Figures:
    value, failures, producer = os.urandom(SIZE), [], _confluent_producer(job, LINGER_S)
    producer.produce(job["topic"], value)
    producer.flush()

    def report(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    told = {"on_delivery": report} if reports else {}

    def work() -> None:
        for number in range(job["records"]):
            while True:
                try:
                    producer.produce(job["topic"], value, **told)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % serve_every == 0:
                producer.poll(0)
        producer.flush()

    figures = _timed(job["records"], work)
    if failures:
        raise RuntimeError(str(failures[0]))
    return figures


def _confluent_consumer(job: Job, settings: Mapping[str, object]) -> Any:
    from confluent_kafka import Consumer

    usual = {"bootstrap.servers": job["bootstrap"], "group.id": job["group"], "auto.offset.reset": "earliest"}
    consumer = Consumer({**usual, **settings})
    consumer.subscribe([job["topic"]])
    while consumer.poll(1.0) is None:
        pass
    return consumer


def confluent_consume(job: Job, settings: Mapping[str, object] = NOTHING) -> Figures:
    consumer, left = _confluent_consumer(job, settings), job["records"] - 1

    def work() -> None:
        seen = size = 0
        while seen < left:
            message = consumer.poll(1.0)
            if message is not None:
                size += len(message.value() or b"")
                seen += 1

    figures = _timed(left, work)
    consumer.close()
    return figures


def confluent_consume_batches(job: Job, settings: Mapping[str, object] = NOTHING) -> Figures:
    consumer, left = _confluent_consumer(job, settings), job["records"] - 1

    def work() -> None:
        seen = size = 0
        while seen < left:
            for message in (batch := consumer.consume(CHUNK, 0.1)):
                size += len(message.value() or b"")
            seen += len(batch)

    figures = _timed(left, work)
    consumer.close()
    return figures


def confluent_latency(job: Job) -> Figures:
    taken: list[float] = []
    producer = _confluent_producer(job, 0)
    producer.produce(job["topic"], b"first")
    producer.flush()

    def send(due: float) -> None:
        producer.produce(
            job["topic"], b"x" * SIZE, on_delivery=lambda error, message: taken.append(time.perf_counter() - due)
        )
        producer.poll(0)

    began = time.perf_counter()
    for number in range(job["records"]):
        due = began + number / job["rate"]
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        send(due)
    producer.flush()
    return _latencies(taken)


# ── aiokafka ──


def aiokafka_produce(job: Job) -> Figures:
    from aiokafka import AIOKafkaProducer

    async def run() -> Figures:
        value = os.urandom(SIZE)
        producer = AIOKafkaProducer(
            bootstrap_servers=job["bootstrap"], enable_idempotence=True, acks="all", linger_ms=int(LINGER_S * 1000)
        )
        await producer.start()
        await producer.send_and_wait(job["topic"], value)
        cpu, began = _cpu_s(), time.perf_counter()
        for _ in range(job["records"]):
            await producer.send(job["topic"], value)
        await producer.flush()
        seconds = time.perf_counter() - began
        figures = {"records_per_s": job["records"] / seconds, "cpu_us": (_cpu_s() - cpu) / job["records"] * 1e6}
        await producer.stop()
        return figures

    return asyncio.run(run())


def aiokafka_consume(job: Job) -> Figures:
    return _aiokafka_consume(job, batches=False)


def aiokafka_consume_batches(job: Job) -> Figures:
    return _aiokafka_consume(job, batches=True)


def _aiokafka_consume(job: Job, *, batches: bool) -> Figures:
    from aiokafka import AIOKafkaConsumer

    async def run() -> Figures:
        consumer = AIOKafkaConsumer(
            job["topic"], bootstrap_servers=job["bootstrap"], group_id=job["group"], auto_offset_reset="earliest"
        )
        await consumer.start()
        await consumer.getone()
        left, seen, size = job["records"] - 1, 0, 0
        cpu, began = _cpu_s(), time.perf_counter()
        while seen < left:
            if batches:
                for messages in (await consumer.getmany(timeout_ms=1000, max_records=CHUNK)).values():
                    seen += len(messages)
                    for message in messages:
                        size += len(message.value or b"")
            else:
                size += len((await consumer.getone()).value or b"")
                seen += 1
        seconds = time.perf_counter() - began
        figures = {"records_per_s": left / seconds, "cpu_us": (_cpu_s() - cpu) / left * 1e6}
        await consumer.stop()
        return figures

    return asyncio.run(run())


def aiokafka_latency(job: Job) -> Figures:
    from aiokafka import AIOKafkaProducer

    async def run() -> Figures:
        taken: list[float] = []
        producer = AIOKafkaProducer(bootstrap_servers=job["bootstrap"], enable_idempotence=True, acks="all")
        await producer.start()
        await producer.send_and_wait(job["topic"], b"first")
        began = time.perf_counter()
        for number in range(job["records"]):
            due = began + number / job["rate"]
            if (left := due - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            sent = await producer.send(job["topic"], b"x" * SIZE)
            sent.add_done_callback(lambda _, due=due: taken.append(time.perf_counter() - due))
        await producer.stop()
        return _latencies(taken)

    return asyncio.run(run())


# ── kafka-python ──


def kafka_python_produce(job: Job) -> Figures:
    from kafka import KafkaProducer

    value = os.urandom(SIZE)
    producer = KafkaProducer(
        bootstrap_servers=job["bootstrap"], enable_idempotence=True, acks="all", linger_ms=int(LINGER_S * 1000)
    )
    producer.send(job["topic"], value).get(60)

    def work() -> None:
        for _ in range(job["records"]):
            producer.send(job["topic"], value)
        producer.flush()

    figures = _timed(job["records"], work)
    producer.close()
    return figures


def kafka_python_consume(job: Job) -> Figures:
    return _kafka_python_consume(job, batches=False)


def kafka_python_consume_batches(job: Job) -> Figures:
    return _kafka_python_consume(job, batches=True)


def _kafka_python_consume(job: Job, *, batches: bool) -> Figures:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        job["topic"], bootstrap_servers=job["bootstrap"], group_id=job["group"], auto_offset_reset="earliest"
    )
    next(consumer)
    left = job["records"] - 1

    def work() -> None:
        seen = size = 0
        while seen < left:
            if batches:
                for messages in consumer.poll(1000, max_records=CHUNK).values():
                    seen += len(messages)
                    for message in messages:
                        size += len(message.value or b"")
            else:
                size += len(next(consumer).value or b"")
                seen += 1

    figures = _timed(left, work)
    consumer.close()
    return figures


def kafka_python_latency(job: Job) -> Figures:
    from kafka import KafkaProducer

    taken: list[float] = []
    producer = KafkaProducer(bootstrap_servers=job["bootstrap"], enable_idempotence=True, acks="all", linger_ms=0)
    producer.send(job["topic"], b"first").get(60)

    def send(due: float) -> None:
        sent = producer.send(job["topic"], b"x" * SIZE)
        sent.add_callback(lambda _: taken.append(time.perf_counter() - due))

    _pace(job, send)
    producer.close()
    return _latencies(taken)


LOADS: dict[str, dict[str, Callable[[Job], Figures]]] = {
    "produce": {
        "moldau": moldau_produce,
        "confluent-kafka": confluent_produce,
        "aiokafka": aiokafka_produce,
        "kafka-python": kafka_python_produce,
    },
    "produce-batches": {
        "moldau": moldau_produce_batches,
        "confluent-kafka": confluent_produce_batches,
        "confluent-kafka, no reports": confluent_produce_unreported,
    },
    "consume": {
        "moldau": moldau_consume,
        "confluent-kafka": confluent_consume,
        "confluent-kafka, tuned": partial(confluent_consume, settings=TUNED),
        "aiokafka": aiokafka_consume,
        "kafka-python": kafka_python_consume,
    },
    "consume-batches": {
        "moldau": moldau_consume_batches,
        "confluent-kafka": confluent_consume_batches,
        "confluent-kafka, tuned": partial(confluent_consume_batches, settings=TUNED),
        "aiokafka": aiokafka_consume_batches,
        "kafka-python": kafka_python_consume_batches,
    },
    "latency": {
        "moldau": moldau_latency,
        "confluent-kafka": confluent_latency,
        "aiokafka": aiokafka_latency,
        "kafka-python": kafka_python_latency,
    },
}


if __name__ == "__main__":
    client, load, job = sys.argv[1:]
    print(json.dumps(LOADS[load][client](json.loads(job))))
