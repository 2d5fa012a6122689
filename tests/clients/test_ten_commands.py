"""docs/security.md, "ten commands": run as they are on the page, in their order, in an empty directory."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.processes import broker_environment, free_port
from support.eventually import eventually

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
SECTION = re.compile(r"^## From nothing .*?$(.*?)^## ", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(\d+)\\\. .*?^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = "9093"  # on the page
SECONDS = 60


def commands() -> list[str]:
    section = SECTION.search(PAGE.read_text())
    assert section is not None
    found = COMMAND.findall(section[1])
    assert [int(number) for number, _ in found] == list(range(1, 11))
    assert section[1].count("```sh") == 10
    return [text for _, text in found]


class Terminal:
    """A shell in an empty directory. The command behind `&` runs until the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.log = folder.parent / "broker.log"
        found = [str(Path(sys.executable).parent), os.environ["PATH"]]
        self.environment = {**broker_environment(), "PATH": os.pathsep.join(found)}
        self.background: subprocess.Popen[bytes] | None = None

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-euo", "pipefail", "-c", text.replace(PORT, str(self.port))]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def start(self, text: str) -> None:
        with self.log.open("wb") as log:
            command = ["bash", "-c", f"exec {text.strip().removesuffix('&')}"]
            self.background = subprocess.Popen(command, cwd=self.folder, env=self.environment, stderr=log)
        eventually(lambda: "is ready at" in self.log.read_text(), "the broker is ready", told=self.log.read_text)

    def end(self) -> None:
        if self.background is not None:
            self.background.terminate()
            assert self.background.wait(SECONDS) == 0


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    folder = tmp_path / "empty"
    folder.mkdir()
    made = Terminal(folder)
    yield made
    made.end()


def test_ten_commands_from_nothing_to_tls_scram_and_acls(terminal: Terminal) -> None:
    for text in commands():
        if text.rstrip().endswith("&"):
            terminal.start(text)
            continue
        done = terminal.run(text)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    read = terminal.run("moldau consume orders -X @admin.properties")
    assert "hello" in read.stdout, read.stderr
    refused = terminal.run("moldau topic create mine -X @alice.properties")
    assert refused.returncode == 1
    assert "authoriz" in refused.stderr.lower(), refused.stderr
    stranger = terminal.run("moldau topic list -b localhost:9093")
    assert stranger.returncode == 1
    private = [*terminal.folder.glob("*.password"), *terminal.folder.glob("a*.properties")]
    private += [terminal.folder / "certs" / "broker.pem", terminal.folder / "data" / "moldau-metadata.sqlite"]
    assert len(private) == 6
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
