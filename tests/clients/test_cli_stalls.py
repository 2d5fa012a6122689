"""What commands say, and how soon, when brokers cannot be reached or take nothing."""

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.testing import Broker
from support.brokers.processes import BrokerProcess, free_port
from support.clients.cli import fail, interrupt, runner, start, succeed
from support.eventually import eventually

SOON_S = 12.0  # starting a process included, on a loaded machine; librdkafka's time-outs are 15 and 30 s


def said_soon(process: subprocess.Popen[str], *words: str) -> None:
    """One line on stderr, soon, with these words; then the command is ended."""
    assert process.stderr is not None
    try:
        assert select.select([process.stderr], [], [], SOON_S)[0], "it said nothing"
        line = process.stderr.readline()
        for word in words:
            assert word in line
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def misadvertised() -> Iterator[tuple[str, str]]:
    """The address of a broker that can be reached, and the one that it advertises, which cannot."""
    bound, port = free_port(), free_port()
    listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{bound}"}
    with Broker(**listeners, **{"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}):
        yield f"127.0.0.1:{bound}", f"127.0.0.1:{port}"


def test_produce_names_the_advertised_address(misadvertised: tuple[str, str]) -> None:
    bootstrap, advertised = misadvertised
    process = start(bootstrap, "produce", "t")
    assert process.stdin is not None
    process.stdin.write("hello\n")
    process.stdin.flush()
    said_soon(process, f"advertises {advertised}, which cannot be reached", "refused", "Still trying")


@pytest.mark.parametrize("more", [(), ("--group", "g")])
def test_consume_names_the_advertised_address(misadvertised: tuple[str, str], more: tuple[str, ...]) -> None:
    bootstrap, advertised = misadvertised
    Producer({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics("t", timeout=10)  # creates it
    process = start(bootstrap, "consume", "t", *more)
    said_soon(process, f"advertises {advertised}, which cannot be reached")


def test_a_broker_that_goes_away_under_a_producer_is_named() -> None:
    with Broker() as broker:
        process = start(broker.bootstrap_servers, "produce", "t", "-o", "json")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        moldau = runner(broker.bootstrap_servers)
        eventually(lambda: "first" in moldau("consume", "t").stdout, "the first record is written")
    process.stdin.write("second\n")
    process.stdin.flush()
    said_soon(process, f"cannot reach a broker at {broker.bootstrap_servers}", "refused", "Still trying")


@pytest.fixture
def pausable() -> Iterator[Broker]:
    """A broker that a test may pause: it goes on before it is stopped."""
    with Broker() as broker:
        try:
            yield broker
        finally:
            os.kill(broker.pid, signal.SIGCONT)


def test_ctrl_c_ends_a_member_whose_coordinator_does_not_answer(pausable: Broker) -> None:
    bootstrap = pausable.bootstrap_servers
    succeed(runner(bootstrap)("produce", "t", stdin="first\n"))
    process = start(bootstrap, "consume", "t", "--group", "g", "--follow")
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    os.kill(pausable.pid, signal.SIGSTOP)
    code, _, said = interrupt(process)
    assert code == 130
    assert "The coordinator of group g does not answer." in said


def test_ctrl_c_says_what_a_producer_waits_for_and_a_second_one_ends_it(pausable: Broker) -> None:
    bootstrap = pausable.bootstrap_servers
    succeed(runner(bootstrap)("topic", "create", "t"))
    process = start(bootstrap, "produce", "t")
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write("first\n")
    process.stdin.flush()
    moldau = runner(bootstrap)
    eventually(lambda: moldau("consume", "t", "-n", "1").stdout == "first\n", "the first record is written")
    os.kill(pausable.pid, signal.SIGSTOP)
    process.stdin.write("second\n")
    process.stdin.flush()
    lines = iter(process.stderr.readline, "")
    assert any("Waiting: cannot reach a broker" in line for line in lines), "the second line was read"
    process.send_signal(signal.SIGINT)
    assert any("Waiting for 1 record to be written; Ctrl-C again" in line for line in lines)
    code, _, said = interrupt(process)
    assert code == 130
    assert "Stopped waiting for 1 record" in said


def test_ctrl_c_ends_perf_when_nothing_is_acknowledged(pausable: Broker) -> None:
    bootstrap = pausable.bootstrap_servers
    succeed(runner(bootstrap)("topic", "create", "t"))
    process = start(bootstrap, "perf", "produce", "t", "-n", "100000000", "--rate", "1000")
    moldau = runner(bootstrap)
    eventually(lambda: moldau("consume", "t", "-n", "1", "--format", "hex").stdout, "the first record is written")
    os.kill(pausable.pid, signal.SIGSTOP)
    code, out, said = interrupt(process)
    assert (code, "throughput" in out) == (130, True), said
    assert "Without an acknowledgement" in said


def test_tls_to_a_plain_listener_is_named(bootstrap: str) -> None:
    moldau = runner(bootstrap)
    for command in (("topic", "list"), ("txn", "list")):
        began = time.monotonic()
        fail(moldau(*command, "-X", "security.protocol=ssl"), 1, "TLS", "Leave out -X security.protocol=ssl")
        assert time.monotonic() - began < SOON_S


def test_producers_are_idempotent_unless_told_otherwise(bootstrap: str) -> None:
    moldau = runner(bootstrap)
    for index, (options, idempotent) in enumerate(
        {(): True, ("--no-idempotent",): False, ("--acks", "1"): False}.items()
    ):
        topic = f"cli-idempotent-{index}-{time.time_ns()}"
        succeed(moldau("produce", topic, *options, stdin="x\n"))
        assert (moldau("txn", "producers", topic, "-o", "json").stdout != "[]\n") is idempotent


def test_suggestions_repeat_the_bootstrap_address(bootstrap: str) -> None:
    moldau = runner("127.0.0.1:1")
    fail(moldau("group", "describe", "cli-none", "-b", bootstrap), 1, f"moldau group list -b {bootstrap}")
    fail(moldau("-b", bootstrap, "topic", "describe", "cli-none"), 1, f"moldau topic list -b {bootstrap}")


@pytest.fixture
def full(small_disk: Path, tmp_path: Path) -> Iterator[str]:
    """A broker with a record in the topic t, on a disk without room."""
    own = BrokerProcess(tmp_path / "broker")
    own.data = small_disk / "data"
    try:
        own.start()
        moldau = runner(own.bootstrap)
        succeed(moldau("topic", "create", "t", "--partitions", "1"))
        succeed(moldau("produce", "t", stdin="x\n"))
        (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free))
        yield own.bootstrap
    finally:
        own.stop()


def test_a_full_disk_is_named(full: str) -> None:
    done = runner(full)("doctor")
    assert done.returncode == 1
    assert "is full (0 bytes left)" in done.stdout
    assert "Delete topics or lower retention" in done.stdout
    said_soon(start(full, "consume", "t", "--group", "g"), "log directory", "is full (0 bytes left)")
    said_soon(start(full, "perf", "produce", "t"), "log directory", "is full (0 bytes left)", "Still trying")
    process = start(full, "produce", "t")
    assert process.stdin is not None
    process.stdin.write("x" * 100_000 + "\n")
    process.stdin.flush()
    said_soon(process, "log directory", "is full (0 bytes left)", "Still trying")
