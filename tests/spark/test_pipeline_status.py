"""What `moldau pipeline status` says while a broker is away, and how far a query is behind its topics."""

import json
import os
import time
from pathlib import Path

import pytest

from support.brokers.processes import AnyBroker, BrokerProcess
from support.clients import confluent
from support.clients.cli import interrupt, succeed
from support.clients.raw import RawClient
from support.spark.pipelines import PATIENCE_S, Pipelines, await_true

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

from moldau.base.ids import TopicPartition
from moldau.spark.pipelines.control import pipeline_status
from moldau.spark.pipelines.interception import PlannedQuery
from moldau.spark.pipelines.status import now_ms
from moldau.spark.pipelines.topic_lag import BrokerSilent, QueryTopics, SilentBrokers
from moldau.spark.plans import SinkPlan, SourcePlan
from moldau.spark.source import stream_offsets
from moldau.spark.source.stream_offsets import StreamOffset

COPY = """
def main(spark):
    rows = spark.readStream.format("moldau").option("subscribe", "orders").option("maxOffsetsPerTrigger", 200).load()
    writer = rows.writeStream.format("moldau").option("topic", "copy").option("delivery", "exactly-once")
    writer.queryName("copied").start()
"""
FULL = bool(os.environ.get("MOLDAU_FULL"))
BUSY = 2000  # records of ten batches
AWAY_S = 120 if FULL else 0  # longer than until the status says so
FAILS_TWICE = """
import os
import pathlib
import sys


def main(spark):
    seen = pathlib.Path(sys.argv[1])
    before = seen.read_text() if seen.exists() else ""
    seen.write_text(f"{before}{os.getpid()} ")
    if len(before.split()) < 2:
        raise ValueError("not yet")
    spark.readStream.format("rate").load().writeStream.format("noop").queryName("rates").start()
"""


def at(*offsets: int, topic: str = "orders") -> str:
    reached = {TopicPartition(topic, number): offset for number, offset in enumerate(offsets)}
    return json.dumps(stream_offsets.write(StreamOffset(reached)))


def planned(bootstrap: str, *topics: str, target: str | None = None) -> PlannedQuery:
    where = {"kafka.bootstrap.servers": bootstrap}
    reads = [SourcePlan("moldau", {**where, "subscribe": topic}) for topic in topics]
    sink = SinkPlan("q", "moldau", "append", None, {"kafka.bootstrap.servers": target or bootstrap, "topic": "copy"})
    return PlannedQuery([*reads, SourcePlan("rate")], sink, "/nowhere")


def create(bootstrap: str, topic: str, partitions: int) -> None:
    with RawClient(bootstrap) as client:
        client.create_topic(topic, partitions)


def produce(bootstrap: str, topic: str, *partitions: int) -> None:
    confluent.write(bootstrap, topic, [{"value": b"v", "partition": number} for number in partitions])


def test_lag_by_a_look_at_the_topics(own_broker: BrokerProcess) -> None:
    bootstrap = own_broker.bootstrap
    create(bootstrap, "orders", 2)
    create(bootstrap, "notes", 1)
    produce(bootstrap, "orders", 0, 0, 0, 1)
    produce(bootstrap, "notes", 0, 0)
    topics = QueryTopics(planned(bootstrap, "orders", "notes"))
    assert topics.behind(None, SilentBrokers()) is None, "not known before the first batch"
    assert topics.behind([at(1, 1), at(0, topic="notes"), None], SilentBrokers()) == [2, 0, 2]
    assert topics.behind([at(3), at(2, topic="notes"), None], SilentBrokers()) == [0, 1, 0], (
        "a new partition counts whole"
    )

    own_broker.stop()
    silent = SilentBrokers()
    gone = topics.behind([at(1, 1), at(0, topic="notes"), None], silent)
    assert isinstance(gone, BrokerSilent)
    assert bootstrap in gone.reason
    other = QueryTopics(planned(bootstrap, "orders"))
    assert other.behind(None, silent) is gone, "a cluster is asked once in a round"
    own_broker.start()
    assert topics.behind([at(3, 1), at(2, topic="notes"), None], SilentBrokers()) == [0, 0, 0]
    topics.close()
    other.close()


def test_a_sink_whose_broker_is_away(own_broker: BrokerProcess) -> None:
    create(own_broker.bootstrap, "orders", 1)
    topics = QueryTopics(planned(own_broker.bootstrap, "orders", target="127.0.0.1:1"))
    found = topics.behind([at(0), None], SilentBrokers())
    assert isinstance(found, BrokerSilent)
    assert "127.0.0.1:1" in found.reason
    topics.close()


@pytest.mark.timeout(1800)
def test_a_broker_that_goes_away_and_comes_back(tmp_path: Path, own_broker: BrokerProcess, python_path: str) -> None:
    """Quietly, between batches, and before a stop: nothing is lost, and nothing is there twice."""
    bootstrap = own_broker.bootstrap
    create(bootstrap, "orders", 1)
    create(bootstrap, "copy", 1)
    sent = send(bootstrap, 0, 3)
    pipelines = Pipelines(tmp_path, bootstrap, python_path)
    running = pipelines.start(pipelines.write("orders.py", COPY), "--from", "earliest")

    def state() -> str:
        """From the library, as the command reads it: a command each time would take Spark's processor."""
        return str(pipeline_status(str(tmp_path / "data"), "orders").overall(now_ms()))

    await_true(lambda: pipelines.has_begun("orders"), running)
    await_true(lambda: state() == "idle", running)
    found = pipelines.status("orders")["queries"]["copied"]
    assert (found["lag"], found["metrics"]["maxOffsetsBehindLatest"]) == (0, 0)

    own_broker.kill()
    await_true(lambda: state() == "waiting", running)
    time.sleep(AWAY_S)
    document = pipelines.status("orders")
    away = document["queries"]["copied"]
    assert (document["state"], away["lag"], away["rows_per_second"]) == ("waiting", None, None)
    assert away["reason"].startswith("waiting for the broker: ")
    assert f"orders, query copied: {away['reason']} (since {away['since']}, " in succeed(pipelines.run("status"))

    own_broker.start()
    await_true(lambda: state() == "idle", running)
    sent += send(bootstrap, len(sent), BUSY)
    await_true(lambda: len(copied(bootstrap)) > BUSY // 4, running)
    own_broker.kill()
    await_true(lambda: state() == "waiting", running)
    time.sleep(AWAY_S)
    own_broker.start()
    await_true(lambda: len(copied(bootstrap)) >= len(sent), running)
    assert sorted(copied(bootstrap)) == sorted(sent)

    own_broker.kill()
    await_true(lambda: state() == "waiting", running)
    ended, _, said = interrupt(running)
    assert ended == 0, said


def send(bootstrap: str, first: int, count: int) -> list[bytes]:
    values = [b"%d" % number for number in range(first, first + count)]
    confluent.write(bootstrap, "orders", values)
    return values


def copied(bootstrap: str) -> list[bytes]:
    return [record.value or b"" for record in confluent.read(bootstrap, "copy")]


def test_a_failed_pipeline_is_started_again(tmp_path: Path, broker: AnyBroker, python_path: str) -> None:
    """Each time in a fresh process of the same id, under the same locks; `stop` ends the wait for the next try."""
    pipelines = Pipelines(tmp_path, broker.bootstrap, python_path)
    seen = tmp_path / "seen"
    policy = ("--restart", "on-failure", "--restart-delay", "2s")
    running = pipelines.start(pipelines.write("orders.py", FAILS_TWICE), *policy, "--", str(seen))
    await_true(lambda: seen.exists() and len(seen.read_text().split()) == 3, running)
    assert seen.read_text().split() == [str(running.pid)] * 3
    lines = pipelines.run("status", "orders").stdout.splitlines()
    assert lines[-1].startswith("orders: failed 2 times in a row")
    assert pipeline_status(str(tmp_path / "data"), "orders").restarts == 2
    assert "stopped" in succeed(pipelines.run("stop", "orders"))
    said = running.communicate(timeout=PATIENCE_S)[1]
    assert running.returncode == 0, said
    assert "The pipeline orders failed once, and starts again in 2 s: main in " in said
    assert "The pipeline orders failed 2 times in a row, and starts again in 4 s: main in " in said
