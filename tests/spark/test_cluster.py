"""A standalone cluster whose workers have a Python without packages runs the same queries, and an executor may die.

`moldau spark pack` brings what tasks need.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel

from moldau.spark.java import Java, find_java
from moldau.spark.pack import make_pack
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients import confluent
from support.clients.confluent import end_offset, read, write
from support.eventually import eventually
from support.spark.cluster import SparkCluster, bare_python
from support.spark.process import PATIENCE_S, SparkFailed, SparkProcess, records

KEYS = 5
RECORDS = 500
IN_A_BATCH = 100
SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_pack(tmp_path_factory.mktemp("pack") / "packages.tar.gz").file)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    java = find_java()
    if not isinstance(java, Java) or java.packaged:
        pytest.skip("Spark's scripts need a whole Java 17: on Debian, apt-get install openjdk-17-jre-headless")
    directory = tmp_path_factory.mktemp("cluster")
    with SparkCluster(directory, java, bare_python(directory / "python")) as started:
        yield started


@pytest.fixture
def driver(cluster: SparkCluster, pack: str, python_path: str, tmp_path: Path) -> Iterator[SparkProcess]:
    conf = {**SMALL, "moldau.pack": pack}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    process = SparkProcess(
        tmp_path / "driver.log",
        master=cluster.master,
        conf=conf,
        environment={**environment, "PYTHONPATH": python_path, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    yield process
    process.kill()


@pytest.mark.skipif(not os.environ.get("MOLDAU_FULL"), reason="the sums below read too; set MOLDAU_FULL=1 for both")
def test_it_reads_what_is_there(
    cluster: SparkCluster, driver: SparkProcess, broker: AnyBroker, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=2)
    write(broker.bootstrap, topic, [{"value": b"%d" % number, "headers": [("h", b"x")]} for number in range(100)])
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    found = records(driver.ask("read", format="moldau", options=options))
    assert found == read(broker.bootstrap, topic)


def test_sums_are_right_though_an_executor_dies(
    cluster: SparkCluster, driver: SparkProcess, broker: AnyBroker, create_topic: CreateTopic, tmp_path: Path
) -> None:
    source, target = create_topic(partitions=2), create_topic()
    numbers = [(b"k%d" % (number % KEYS), number) for number in range(RECORDS)]
    write(broker.bootstrap, source, [{"key": key, "value": b"%d" % number} for key, number in numbers])
    where = {"kafka.bootstrap.servers": broker.bootstrap}
    limit = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(IN_A_BATCH)}
    driver.ask(
        "count",
        format="moldau",
        source={**where, **limit, "subscribe": source},
        sink={**where, "topic": target, "delivery": "exactly-once"},
        checkpoint=str(tmp_path / "checkpoint"),
    )
    admin = confluent.admin(broker.bootstrap)
    eventually(lambda: end_offset(admin, target, IsolationLevel.READ_COMMITTED), "first sums", cluster.said, PATIENCE_S)
    cluster.executors()[0].kill()
    driver.ask("finish")

    found = [(record.key, json.loads(record.value or b"")) for record in read(broker.bootstrap, target)]
    last = dict(found)
    assert {key: sums["records"] for key, sums in last.items()} == Counter(key for key, _ in numbers)
    assert {key: sums["total"] for key, sums in last.items()} == {
        key: sum(number for other, number in numbers if other == key) for key in last
    }
    for key in last:
        counts = [sums["records"] for other, sums in found if other == key]
        assert counts == sorted(set(counts)), "no batch was written twice"


def test_another_python_is_named(
    cluster: SparkCluster, pack: str, python_path: str, broker: AnyBroker, create_topic: CreateTopic, tmp_path: Path
) -> None:
    other = next((name for name in ("python3.12", "python3.11", "python3.13") if _is_other(name)), None)
    if other is None:
        pytest.skip("needs a second Python on the PATH, such as python3.12")
    topic = create_topic()
    write(broker.bootstrap, topic, [{"value": b"x"}])
    python = bare_python(tmp_path / "other", other) / "python"
    conf = {**SMALL, "moldau.pack": pack, "spark.pyspark.python": str(python)}
    environment = {**os.environ, "PYTHONPATH": python_path, "SPARK_LOCAL_IP": "127.0.0.1"}
    driver = SparkProcess(tmp_path / "driver.log", master=cluster.master, conf=conf, environment=environment)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    with pytest.raises(SparkFailed, match="Python in worker has different version"):
        driver.ask("read", format="moldau", options=options)
    driver.kill()


def _is_other(name: str) -> bool:
    """Whether there is such a Python, and not only a name for one."""
    if shutil.which(name) is None or name == f"python3.{sys.version_info.minor}":
        return False
    return subprocess.run([name, "-c", "import venv"], capture_output=True, check=False).returncode == 0
