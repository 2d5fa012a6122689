"""kcat against a broker, where the machine has it."""

import json
import shutil
import subprocess

import pytest

from support.brokers.disk import stored_batches
from support.brokers.processes import AnyBroker, CreateTopic
from support.log.batches import CODECS

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed; on Debian: apt-get install kcat")


def kcat(broker: AnyBroker, *arguments: str, stdin: str = "") -> str:
    """Run kcat to its end; it must succeed."""
    command = [str(KCAT), "-b", broker.bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_metadata(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=3)
    found = json.loads(kcat(broker, "-L", "-J", "-t", name))
    assert [node["name"] for node in found["brokers"]] == [broker.bootstrap]
    assert found["controllerid"] in [node["id"] for node in found["brokers"]]
    assert [part["partition"] for part in found["topics"][0]["partitions"]] == [0, 1, 2]


@pytest.mark.parametrize("codec", CODECS)
def test_what_goes_in_comes_out(broker: AnyBroker, create_topic: CreateTopic, codec: str) -> None:
    name = create_topic()
    lines = [
        f"key{number}:a value that compresses well, a value that compresses well {number}" for number in range(100)
    ]
    more = ["-z", codec] if codec != "none" else []
    produce = ["-P", "-t", name, "-p", "0", "-K", ":", "-H", "source=kcat", *more]
    kcat(broker, *produce, stdin="".join(f"{line}\n" for line in lines))
    read = kcat(broker, "-C", "-t", name, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %h %k:%s\n")
    assert read.splitlines() == [f"{number} source=kcat {line}" for number, line in enumerate(lines)]
    assert {found.codec for found in stored_batches(broker, name)} == {CODECS[codec]}


def test_offsets_by_position_and_time(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic()
    kcat(broker, "-P", "-t", name, "-p", "0", stdin="a\nb\nc\n")
    assert kcat(broker, "-C", "-t", name, "-p", "0", "-o", "-1", "-e", "-q") == "c\n"
    assert kcat(broker, "-C", "-t", name, "-p", "0", "-o", "1", "-c", "1", "-q") == "b\n"
    assert kcat(broker, "-C", "-t", name, "-p", "0", "-o", "s@0", "-e", "-q") == "a\nb\nc\n"
    assert f"{name} [0] offset 0" in kcat(broker, "-Q", "-t", f"{name}:0:-2")
    assert f"{name} [0] offset 3" in kcat(broker, "-Q", "-t", f"{name}:0:-1")
