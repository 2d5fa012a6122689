"""`moldau pipeline` as people use it: the command, a real Spark, a real broker."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients import confluent
from support.clients.cli import MOLDAU, fail, interrupt, succeed
from support.spark.pipelines import PATIENCE_S, SMALL, Pipelines, await_true

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

COPY = """
import sys


def main(spark):
    source, target, name, trigger = sys.argv[1:]
    rows = spark.readStream.format("moldau").option("subscribe", source).load()
    writer = rows.select("key", "value").writeStream.format("moldau").option("topic", target).queryName(name)
    now = {"availableNow": True} if trigger == "now" else {"processingTime": "200 milliseconds"}
    query = writer.trigger(**now).start()
    if trigger != "now":
        query.awaitTermination()  # a stop gets through to those who wait themselves, too
"""
TWO_MISTAKES = """
import sys
from pyspark.sql.functions import udf


def fails(value):
    raise ValueError("no such product")


def main(spark):
    rows = spark.readStream.format("rate").load()
    if sys.argv[1:] == ["nameless"]:
        rows.writeStream.format("noop").start()
    broken = rows.select(udf(fails, "long")("value"))
    broken.writeStream.format("noop").queryName("broken").start().awaitTermination()
"""
RATES = """
def main(spark):
    spark.readStream.format("rate").load().writeStream.format("noop").queryName("rates").start()
"""
BUSY = """
import pathlib
import sys


def main(spark):
    pathlib.Path(sys.argv[1]).touch()
    spark._jvm.java.lang.Thread.sleep(600_000)
"""
PLANNED = """
def main(spark):
    rows = spark.readStream.format("moldau").option("subscribe", "{there}").load()
    rows.writeStream.format("moldau").option("topic", "copy").queryName("good").start().awaitTermination()
    spark.range(3).write.format("noop").mode("overwrite").save()
    other = spark.readStream.format("moldau").option("subscribe", "{gone}").load()
    other.writeStream.format("moldau").option("topik", "copy").queryName("bad").start()
    raise SystemExit(0)
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


def committed(bootstrap: str, group: str, topic: str) -> int:
    from confluent_kafka import ConsumerGroupTopicPartitions

    admin = confluent.admin(bootstrap)
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    return sum(max(0, each.offset) for each in answer.topic_partitions if each.topic == topic)


def test_a_pipeline_goes_on_where_it_was(
    pipelines: Pipelines, broker: AnyBroker, create_topic: CreateTopic, produce: Any, consume: Any
) -> None:
    topic, copy = create_topic(2), create_topic(1)
    query = f"{topic}-query"
    produce(topic, [{"value": b"%d" % number} for number in range(100)])
    file = pipelines.write("copy.py", COPY)

    running = pipelines.start(file, "--from", "earliest", "--", topic, copy, query, "often")
    await_true(lambda: len(consume(copy)) >= 100, running)
    await_true(lambda: committed(broker.bootstrap, query, topic) == 100, running)
    status = pipelines.status("copy")
    assert status["state"] in ("running", "idle")
    await_true(lambda: pipelines.status("copy")["queries"][query].get("lag") == 0, running)
    assert query in succeed(pipelines.run("list"))
    fail(pipelines.run("run", file), 1, "copy is already running", "moldau pipeline stop copy")
    assert "copy is stopped" in succeed(pipelines.run("stop", "copy"))
    said = running.communicate()[1]
    assert running.returncode == 0, said
    assert "The pipeline copy is stopped." in said
    assert "Exception" not in said
    fail(pipelines.run("stop", "copy"), 1, "not running: it is stopped")

    produce(topic, [{"value": b"%d" % number} for number in range(100, 150)])
    done = pipelines.run("run", file, *SMALL, "--from", "latest", "--", topic, copy, query, "now")
    assert done.returncode == 0, done.stderr
    assert "The pipeline copy is finished." in done.stderr
    assert sorted(int(record.value) for record in consume(copy)) == list(range(150)), "the checkpoint wins over --from"
    assert committed(broker.bootstrap, query, topic) == 150
    assert pipelines.status("copy")["state"] == "finished"


def test_what_fails_is_told_in_one_line(pipelines: Pipelines) -> None:
    file = pipelines.write("mistakes.py", TWO_MISTAKES)
    failed = pipelines.run("run", file, *SMALL)
    assert failed.returncode == 1
    line = failed.stderr.splitlines()[-1]
    log = pipelines.folder / "data" / "pipelines" / "mistakes" / "log"
    assert line.startswith("moldau: ")
    assert "ValueError: no such product" in line
    assert str(log) in line
    assert "Traceback" not in failed.stderr
    assert "Traceback" in log.read_text()
    status = pipelines.status("mistakes")
    assert status["state"] == "failed"
    assert "no such product" in status["reason"]

    running = pipelines.start(pipelines.write("rates.py", RATES))
    await_true(lambda: pipelines.has_begun("rates"), running)
    assert pipelines.status("rates")["state"] in ("starting", "running")
    for child in psutil.Process(running.pid).children():
        child.kill()  # the JVM
    said = running.communicate(timeout=PATIENCE_S)[1]
    assert running.returncode == 1, said
    lines = said.splitlines()
    assert "Spark's JVM is gone" in lines[-1]
    known = ("Spark ", "The pipeline rates is running", "Watch it", "Stop it", "Started query", "moldau: Spark's JVM")
    assert [line for line in lines if not line.startswith(known)] == [], "a line, and no traceback"
    assert pipelines.status("rates")["state"] == "failed"

    nameless = pipelines.run("run", file, *SMALL, "--name", "other", "--", "nameless")
    assert nameless.returncode == 1
    assert "has no name" in nameless.stderr.splitlines()[-1]
    assert '.queryName("…")' in nameless.stderr.splitlines()[-1]


def test_a_dry_run_starts_nothing(pipelines: Pipelines, create_topic: CreateTopic) -> None:
    topic = create_topic(1)
    file = pipelines.write("planned.py", PLANNED.format(there=topic, gone=f"{topic}-gone"))
    done = pipelines.run("run", file, *SMALL, "--dry-run", "-o", "json")
    assert done.returncode == 1, done.stderr
    line = done.stderr.splitlines()[-1]
    assert "query bad: topik is not an option for writing; did you mean topic?" in line
    assert f"query bad: there is no topic '{topic}-gone'; create it with: moldau topic create {topic}-gone" in line
    assert "query good" not in line
    found = json.loads(done.stdout)
    good = found["queries"][0]
    assert (good["name"], good["reads"], good["writes"]) == ("good", [f"moldau {topic}"], "moldau copy")
    assert good["checkpoint"].endswith("data/pipelines/planned/checkpoints/good")
    assert good["resumes"] is False
    assert found["batch_writes"] == 1
    assert not (pipelines.folder / "data").exists()


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--dry-run",), 130)])
def test_ctrl_c_while_main_waits_for_the_jvm(pipelines: Pipelines, options: tuple[str, ...], code: int) -> None:
    called = pipelines.folder / "called"
    running = pipelines.start(pipelines.write("busy.py", BUSY), *options, "--", str(called))
    await_true(called.exists, running)
    ended, _, said = interrupt(running)
    assert ended == code, said
    assert "bug" not in said


def test_what_is_typed_wrongly(pipelines: Pipelines) -> None:
    good = pipelines.write("good.py", "def main(spark): ...")
    bad = pipelines.write("bad.py", "def main(spark): ...\nx =")
    fail(pipelines.run("run", str(pipelines.folder / "nowhere.py")), 1, "nowhere.py: No such file")
    fail(pipelines.run("run", bad), 1, "bad.py is not valid Python: invalid syntax (line 2)")
    fail(pipelines.run("run", good, "--master", "lokal"), 1, "'lokal' is not a Spark master. Use local[N]")
    fail(pipelines.run("run", good, "--master", "spark://127.0.0.1:1"), 1, "cannot reach the master")
    fail(pipelines.run("run", good, "--from", "whenever"), 2, "--from 'whenever' is not a position")
    fail(pipelines.run("run", good, "--bootstrap", "127.0.0.1:1"), 1, "cannot reach a broker at 127.0.0.1:1")
    fail(pipelines.run("run", good, "--name", "a/b"), 1, "'a/b' is not a valid pipeline name")
    fail(pipelines.run("run", good, "--conf", "spark.driver.memory"), 2, "--conf", "key=value")
    fail(pipelines.run("run", good, "--conf", "memory=1g"), 1, "memory is not a Spark setting")
    fail(pipelines.run("run", good, "--pack", "nowhere", "--master", "yarn"), 1, "there is no archive")
    fail(pipelines.run("run", good, "--no-such"), 2, "no such option: --no-such")
    fail(pipelines.run("run"), 2, "missing argument")
    fail(pipelines.run("run", good, "--dir", good), 1, "cannot write to")
    assert json.loads(succeed(pipelines.run("list", "--json"))) == [], "none of these has started"
    fail(pipelines.run("status", "orders"), 1, "there is no pipeline 'orders'")
    fail(pipelines.run("stop", "orders"), 1, "there is no pipeline 'orders'")


def test_the_fixture(tmp_path: Path, python_path: str) -> None:
    """The example in docs/testing.md, as a project of its own would run it."""
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    example = next(
        part.partition("```")[0] for part in page.split("```python\n") if "moldau_spark" in part.split("```")[0]
    )
    (tmp_path / "test_example.py").write_text(example)
    plugin = [] if "moldau" in _registered() else ["-p", "moldau.testing.plugin"]
    done = subprocess.run(
        [MOLDAU[0], "-m", "pytest", "-q", *plugin, "-p", "no:cacheprovider", "test_example.py"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": python_path},
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def _registered() -> list[str]:
    from importlib.metadata import entry_points

    return [each.name for each in entry_points(group="pytest11")]
