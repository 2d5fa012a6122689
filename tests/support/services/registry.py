"""Schema registries as processes, and a small HTTP client for them."""

import json
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from moldau.ensemble.ports import HOST
from support.brokers.fork_server import ForkedProcess
from support.brokers.processes import MOLDAU, broker_environment, free_port, start_process
from support.eventually import eventually

READY_SECONDS = 60
STOP_SECONDS = 30
TIMEOUT_S = 60
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def code(self) -> int:
        """The error code in the body."""
        return int(self.body["error_code"])


class RegistryProcess:
    """`moldau registry` on a free port; its topic and group belong to it and to those given the same names."""

    def __init__(self, directory: Path, bootstrap: str, name: str, *options: str) -> None:
        self.bootstrap = bootstrap
        self.port = free_port()
        self.topic, self.group = f"_schemas-{name}", f"registry-{name}"
        self.log_file = directory / f"registry-{self.port}.log"
        self.options = options
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def start(self, *, ready: bool = True) -> "RegistryProcess":
        names = ["--topic", self.topic, "--group", self.group]
        command = [*MOLDAU, "-b", self.bootstrap, "registry", "--listen", f"{HOST}:{self.port}", *names, *self.options]
        with self.log_file.open("ab") as log:
            self.process = start_process(command, broker_environment(), log)
        if ready:
            self.await_ready()
        return self

    def await_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            with suppress(OSError):  # it does not listen yet
                if self.ask("GET", "/ready").status == 200:
                    return
            assert self.process is not None
            assert self.process.poll() is None, self.log_text()
            assert time.monotonic() < deadline, self.log_text()
            time.sleep(0.05)

    def await_line(self, text: str) -> None:
        """Wait until the process has written this, for one that plain requests cannot ask."""
        eventually(lambda: text in self.log_text(), f"the registry says {text!r}", self.log_text)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(STOP_SECONDS)
            self.process = None
            assert code == 0, self.log_text()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def log_text(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        return ask(self.port, method, path, body, headers)

    def register(self, subject: str, schema: object, **more: object) -> Answer:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": text, **more})


def ask(port: int, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
    """One request on a connection of its own; JSON answers are read."""
    connection = HTTPConnection(HOST, port, timeout=TIMEOUT_S)
    try:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": MEDIA_TYPE, **(headers or {})})
        response = connection.getresponse()
        text = response.read()
        return Answer(response.status, json.loads(text) if text.strip() else None)
    finally:
        connection.close()


def record(name: str, /, **fields: str) -> dict[str, object]:
    """An Avro record with fields of these types."""
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}
