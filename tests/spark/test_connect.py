"""Spark Connect: a client without a JVM uses `format("moldau")` of a server. The tests' session is that server."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.brokers.processes import AnyBroker, CreateTopic

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")
pytest.importorskip("grpc", reason="needs the client of Spark Connect: pip install 'pyspark[connect]'")

CLIENT = Path(__file__).parent / "programs" / "connect_client.py"


def test_a_remote_session(
    spark: Any, broker: AnyBroker, create_topic: CreateTopic, tmp_path: Path, python_path: str
) -> None:
    topic = create_topic()
    port = spark.conf.get("spark.connect.grpc.binding.port")
    command = [sys.executable, str(CLIENT), f"sc://127.0.0.1:{port}", broker.bootstrap, topic, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["read"] == list(range(10))
    assert (told["awaited"], told["exception"], told["once"]) == (True, "None", 10)
    assert told["metrics"] == [f"moldau[{topic}]"]
    assert (told["batches"], told["in batches"]) == (True, 10)
    assert "exactly-once is not possible in foreachBatch over Spark Connect" in told["exactly once in batches"]
    assert "startingofsets is not an option for reading; did you mean startingOffsets?" in told["unknown option"]
    assert "the topic not-there does not exist; create it" in told["batch"]
    assert "moldau does not support Update mode" in told["update"], "refused by Spark, without our hint"
