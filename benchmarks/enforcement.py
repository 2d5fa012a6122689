"""What a schema costs: produce to a topic that declares one, beside one that does not, on the same broker.

One connection, one request at a time, so that the time of a request is its latency. Records have 100 bytes of JSON.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import frames
from moldau.testing import Broker
from moldau.wire.compression import Codec
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

RECORDS, RECORD_BYTES = 160, 100
WARM_UP = 50
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "name": {"type": "string", "maxLength": 40},
        "total": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id", "name", "total"],
    "additionalProperties": False,
}
TOPICS = {"without a schema": {}, "with a JSON Schema": {"moldau.value.schema": json.dumps(SCHEMA)}}


class Checked(NamedTuple):
    what: str
    records_per_s: float
    median_ms: float
    p99_ms: float
    broker_us: float  # CPU of the broker per record
    worker_us: float  # of its workers


def study(workdir: Path, requests: int, say: Callable[[str], None]) -> Iterator[Checked]:
    batch = frames.compressed_batch([value(number) for number in range(RECORDS)], Codec.NONE)
    with Broker(workdir / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        host, _, port = broker.bootstrap_servers.rpartition(":")
        for number, (what, configs) in enumerate(TOPICS.items()):
            say(what)
            name = f"topic-{number}"
            admin.create_topics([NewTopic(name, 1, 1, config=configs)])[name].result()
            with frames.Connection((host, int(port))) as connection:
                yield _measured(what, connection, broker.pid, name, batch, requests)


def value(number: int) -> bytes:
    order = {"id": number, "name": f"customer-{number}", "total": number * 1.25, "tags": ["new", "blue"]}
    return json.dumps(order).encode().ljust(RECORD_BYTES)


def _measured(what: str, connection: frames.Connection, pid: int, name: str, batch: bytes, requests: int) -> Checked:
    asked = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
    topic_id = frames.call(connection, asked, MetadataResponse, frames.METADATA_VERSION).topics[0].topic_id
    frame = frames.produce(topic_id, [(0, batch)], acks=1)
    for _ in range(WARM_UP):
        frames.check_produced(connection.ask(frame), 1)
    broker = psutil.Process(pid)
    processes = [broker, *broker.children(recursive=True)]
    before, begun, times = [_cpu(each) for each in processes], time.perf_counter(), []
    for _ in range(requests):
        sent = time.perf_counter()
        frames.check_produced(connection.ask(frame), 1)
        times.append((time.perf_counter() - sent) * 1000)
    seconds, records = time.perf_counter() - begun, requests * RECORDS
    used = [(_cpu(each) - was) * 1e6 / records for each, was in zip(processes, before, strict=True)]
    return Checked(what, records / seconds, median(times), quantiles(times, n=100)[98], used[0], sum(used[1:]))


def _cpu(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)
