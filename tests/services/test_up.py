"""The services beside `moldau up`: their addresses, their end, and their death."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from moldau.ensemble.ports import HOST
from support.brokers.processes import broker_environment, free_port
from support.eventually import eventually
from support.services.registry import ask, record

LINE_S = 60
REGISTRY = re.compile(r"Schema registry at http://127\.0\.0\.1:(\d+)")


class Up:
    """`moldau up` with lines of its output."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "moldau", "up", "--dir", str(directory), "--listen", f"{HOST}:{self.port}"]
        self.process = subprocess.Popen(
            [*command, *options],
            env=broker_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def await_line(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        while True:
            found = re.search(pattern, self._lines.get(timeout=LINE_S))
            if found:
                return found

    def rest(self) -> str:
        """What it printed since, when it has ended."""
        self._reader.join(LINE_S)
        return "".join(self._lines.queue)

    def services(self) -> list[psutil.Process]:
        return [each for each in psutil.Process(self.process.pid).children() if runs_services(each)]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


def runs_services(process: psutil.Process) -> bool:
    try:
        return "moldau.services.process" in process.cmdline()
    except psutil.Error:  # it has ended
        return False


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*options: str) -> Up:
        started.append(Up(tmp_path / f"data-{len(started)}", *options))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


def test_up_starts_a_registry_that_ends_with_it(up: Callable[..., Up]) -> None:
    broker = up("--registry", f"{HOST}:0")
    port = int(broker.await_line(REGISTRY)[1])
    assert ask(port, "POST", "/subjects/s/versions", {"schema": '"string"'}).body["id"] == 1
    (service,) = broker.services()
    assert broker.end() == 0
    assert not service.is_running()


def test_ctrl_c_stops_both(up: Callable[..., Up]) -> None:
    broker = up("--registry", f"{HOST}:0")
    broker.await_line(REGISTRY)
    (service,) = broker.services()
    os.killpg(broker.process.pid, signal.SIGINT)  # as a terminal does
    assert broker.process.wait(60) == 0
    assert not service.is_running()
    assert "Connection refused" not in broker.rest(), "librdkafka's lines, twenty a second"


def test_ctrl_c_while_the_services_start_is_quiet(up: Callable[..., Up]) -> None:
    broker = up("--registry", f"{HOST}:0")
    broker.await_line("Stop with Ctrl-C")
    eventually(broker.services, "their process is there, and imports")
    os.killpg(broker.process.pid, signal.SIGINT)
    assert broker.process.wait(60) == 0
    rest = broker.rest()
    assert "Stopped" in rest
    assert "Traceback" not in rest
    assert "starting it again" not in rest


def test_services_that_die_are_started_again(up: Callable[..., Up]) -> None:
    broker = up("--registry", f"{HOST}:0")
    broker.await_line(REGISTRY)
    (service,) = broker.services()
    service.kill()
    broker.await_line(r"process was ended by SIGKILL; starting it again in 1 s")
    port = int(broker.await_line(REGISTRY)[1])
    assert ask(port, "GET", "/subjects").body == []
    assert broker.end() == 0


def test_services_end_when_the_broker_is_killed(up: Callable[..., Up]) -> None:
    broker = up("--registry", f"{HOST}:0")
    broker.await_line(REGISTRY)
    (service,) = broker.services()
    broker.process.kill()
    eventually(lambda: not service.is_running(), "the services end")


def test_a_port_in_use_is_one_line_and_not_the_end_of_the_broker(up: Callable[..., Up]) -> None:
    first = up("--registry", f"{HOST}:0")
    port = first.await_line(REGISTRY)[1]
    second = up("--registry", f"{HOST}:{port}")
    second.await_line(f"The schema registry does not start: cannot listen on {HOST}:{port}: address already in use")
    eventually(lambda: not second.services(), "no service is left")
    assert second.process.poll() is None
    assert second.end() == 0


def test_without_services(up: Callable[..., Up]) -> None:
    broker = up("--no-services")
    broker.await_line("Stop with Ctrl-C")
    assert not broker.services()
    assert broker.end() == 0


def test_a_registration_outlives_broker_and_registry(up: Callable[..., Up], tmp_path: Path) -> None:
    broker = up("--registry", f"{HOST}:0")
    port = int(broker.await_line(REGISTRY)[1])
    ask(port, "POST", "/subjects/s/versions", {"schema": str(record("R")).replace("'", '"')})
    assert broker.end() == 0
    again = Up(tmp_path / "data-0", "--registry", f"{HOST}:0")
    try:
        port = int(again.await_line(REGISTRY)[1])
        assert ask(port, "GET", "/subjects").body == ["s"]
    finally:
        again.end()
