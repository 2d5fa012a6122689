"""franz-go against a broker, by way of the small program in go/. Built once per session where `go` is there."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.batches import CODECS
from support.brokers import AnyBroker, CreateTopic
from support.disk import stored_batches

GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
SOURCE = Path(__file__).with_name("go")
pytestmark = pytest.mark.skipif(GO is None, reason="go is not installed; on Debian: apt-get install golang")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client, compiled; skipped where its modules cannot be downloaded or the compiler is too old."""
    built = tmp_path_factory.mktemp("go") / "client"
    command = [str(GO), "build", "-buildvcs=false", "-o", str(built), "."]
    done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False)
    if done.returncode and any(hint in done.stderr for hint in ("dial tcp", "go.mod requires go", "toolchain")):
        pytest.skip(f"go cannot build the client here: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr
    return built


def client(program: Path, command: str, broker: AnyBroker, *arguments: object) -> Any:
    called = [str(program), command, broker.bootstrap, *map(str, arguments)]
    done = subprocess.run(called, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("codec", CODECS)
def test_what_goes_in_comes_out(program: Path, broker: AnyBroker, create_topic: CreateTopic, codec: str) -> None:
    name = create_topic()
    assert client(program, "produce", broker, name, codec, 200) == list(range(200))
    stored = stored_batches(broker, name)
    assert {found.codec for found in stored} == {CODECS[codec]}
    assert all(found.producer_id >= 0 for found in stored), "franz-go is idempotent by default"
    found = client(program, "consume", broker, name, 0, 200)
    assert found == [
        {
            "Offset": number,
            "Timestamp": 1_600_000_000_000 + number,
            "Key": "key",
            "Value": f"a value that compresses, a value that compresses {number}",
            "Headers": ["source=franz-go"],
        }
        for number in range(200)
    ]
    assert [row["Offset"] for row in client(program, "consume", broker, name, 150, 50)] == list(range(150, 200))


def test_administration(program: Path, broker: AnyBroker, topic: str) -> None:
    told = client(program, "admin", broker, topic)
    assert (told["retention.ms"], told["max.message.bytes"]) == ("123456", "5000")
    assert (told["partitions"], told["ends"], told["deleted"]) == (3, 3, True)
    assert told["controller"] in told["brokers"]


def test_refusals(program: Path, broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic(configs={"max.message.bytes": "1000"})
    assert client(program, "errors", broker, name) == {
        "created again": "TOPIC_ALREADY_EXISTS",
        "bad name": "INVALID_TOPIC_EXCEPTION",
        "deleted": "UNKNOWN_TOPIC_OR_PARTITION",
        "unknown": "UNKNOWN_TOPIC_OR_PARTITION",
        "too large": "MESSAGE_TOO_LARGE",
    }
