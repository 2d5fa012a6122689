"""PostgreSQL and MariaDB as child processes, on 127.0.0.1, without a password, and without care for the disk.

Both refuse to run as root: the tests' user starts them, or `nobody` if that is root.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moldau.ensemble.ports import HOST
from support.brokers.processes import free_port
from support.eventually import eventually

USER = "moldau"
STOP_S = 60
WITHOUT_CARE = ("--debug-no-sync", "--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0")


@dataclass(frozen=True)
class Server:
    """A running server with an empty database `moldau`, and a user of that name."""

    port: int

    def postgresql(self) -> str:
        """For psycopg."""
        return f"host={HOST} port={self.port} user={USER} dbname={USER}"

    def mariadb(self) -> dict[str, Any]:
        """For pymysql."""
        return {"host": HOST, "port": self.port, "user": USER, "database": USER}

    def url(self, driver: str) -> str:
        """For SQLAlchemy: `postgresql+psycopg`, `mysql+pymysql`."""
        return f"{driver}://{USER}@{HOST}:{self.port}/{USER}"


def _program(name: str, folders: str) -> str | None:
    found = shutil.which(name)
    if found:
        return found
    installed = sorted(Path("/").glob(f"{folders}/{name}"), key=lambda path: (len(str(path)), str(path)))
    return str(installed[-1]) if installed else None


def _owner() -> str:
    return "nobody" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name


@contextmanager
def _directory() -> Iterator[Path]:
    """A directory that the server's user may enter, which those of pytest are not."""
    path = Path(tempfile.mkdtemp(prefix="moldau-db-"))
    shutil.chown(path, _owner())
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _run(command: list[str], directory: Path) -> None:
    user = _owner() if os.getuid() == 0 else None
    done = subprocess.run(command, cwd=directory, user=user, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def _serving(command: list[str], directory: Path, port: int) -> Iterator[None]:
    user = _owner() if os.getuid() == 0 else None
    log = directory / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=directory, user=user, stdout=output, stderr=output)

    def listens() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")
        with socket.socket() as peer:
            return peer.connect_ex((HOST, port)) == 0

    try:
        eventually(listens, f"{command[0]} accepts connections", lambda: log.read_text(errors="replace"))
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def postgresql() -> Iterator[Server]:
    initdb = _program("initdb", "usr/lib/postgresql/*/bin")
    if initdb is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    import psycopg

    with _directory() as directory:
        data, port = directory / "data", free_port()
        _run([initdb, "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"], directory)
        settings = {"listen_addresses": HOST, "port": port, "unix_socket_directories": "", "fsync": "off"}
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with _serving([str(Path(initdb).with_name("postgres")), "-D", str(data), *given], directory, port):
            server = Server(port)

            def creates() -> bool:
                try:
                    with psycopg.connect(
                        f"host={HOST} port={port} user={USER} dbname=postgres", autocommit=True
                    ) as own:
                        own.execute(f"CREATE DATABASE {USER}")
                except psycopg.OperationalError:  # it starts up
                    return False
                return True

            eventually(creates, "PostgreSQL creates a database")
            yield server


@contextmanager
def mariadb() -> Iterator[Server]:
    mariadbd, install = _program("mariadbd", "usr/sbin"), _program("mariadb-install-db", "usr/bin")
    if mariadbd is None or install is None:
        pytest.skip("MariaDB is not installed; on Debian: apt-get install mariadb-server")
    with _directory() as directory:
        data, port = directory / "data", free_port()
        _run([install, "--no-defaults", f"--datadir={data}", "--skip-test-db", "--skip-name-resolve"], directory)
        start = directory / "start.sql"
        who = f"{USER}@'{HOST}'"
        statements = f"CREATE DATABASE {USER};\nCREATE USER {who};\nGRANT ALL ON {USER}.* TO {who};\n"
        start.write_text(statements, encoding="utf-8")
        start.chmod(0o644)
        command = [
            mariadbd,
            "--no-defaults",
            f"--datadir={data}",
            f"--port={port}",
            f"--bind-address={HOST}",
            "--skip-name-resolve",
        ]
        files = [f"--socket={directory / 'socket'}", f"--pid-file={directory / 'pid'}", f"--init-file={start}"]
        with _serving([*command, *files, *WITHOUT_CARE], directory, port):
            yield Server(port)
