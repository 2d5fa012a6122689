"""`moldau cluster up`: a ZooKeeper and brokers as child processes of one foreground command, on this machine alone.

Everything lies in one directory: `zookeeper/`, `broker-1/` and so on, and what the brokers log in `broker-1.log`. The
same directory goes on where it stopped. Brokers are stopped one after the other, so that each can hand over what it
leads, then ZooKeeper.
"""

import importlib.util
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import moldau
from moldau.client.direct.connection import Connection
from moldau.ensemble.guard import Guard
from moldau.ensemble.servers import INSTALL, DirectoryTaken, Ensemble, EnsembleFailed, Ports, Tuning
from moldau.tools.broker.launch import own_command
from moldau.tools.common.failure import (
    FAILED,
    INTERRUPTED,
    MISUSED,
    OK,
    CommandError,
    announce,
    misused,
    note,
    split_pair,
)
from moldau.tools.common.stops import StopAsked, Stops
from moldau.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

HOST = "localhost"
DEFAULT_BROKERS = 3
COPIES = 3  # of topics, where there are as many brokers
HIGHEST_PORT = 65535
PEER_PORTS, ELECTION_PORTS = 707, 1707  # from a ZooKeeper server's port to its others: 2181, 2888, 3888
START_S = 60.0
STOP_S = 60.0
ASK_S = 5.0
LOOK_AGAIN_S = 0.05
WATCH_S = 0.5
# What --set cannot give all brokers alike.
OWN = ("advertised.listeners", "broker.id", "listeners", "log.dir", "log.dirs", "node.id", "zookeeper.connect")
REMEDIES: dict[type[EnsembleFailed], str] = {
    DirectoryTaken: "Stop the other cluster, or give its --zookeeper-nodes, or another --dir",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """The command line as typed."""

    directory: Path
    brokers: int | None
    port: int
    zookeeper_nodes: int
    zookeeper_port: int
    settings: tuple[str, ...] = ()


def run(wish: Wish) -> int:
    """Until it is told to stop; returns the exit code."""
    with Stops() as stops:
        try:
            return _run(wish, stops)
        except StopAsked:  # once more than was waited for
            return INTERRUPTED


def _run(wish: Wish, stops: Stops) -> int:
    count = _broker_count(wish)
    settings = _settings(wish)
    _check_installed()
    _check_ports(wish, count)
    ensemble = _ensemble(wish)
    children = [Child(wish, number, count, ensemble.connect, settings) for number in range(1, count + 1)]
    try:
        with stops.held():
            ensemble.launch()
        ensemble.wait_until_serving(ensemble.servers)
        with stops.held():
            for child in children:
                child.launch()
        for child in children:
            child.await_ready(count)
        _announce(wish, children, ensemble)
        return _watch(children)
    except StopAsked:
        note("Stopping.")
        return OK
    except EnsembleFailed as problem:
        raise CommandError(str(problem), remedy=REMEDIES.get(type(problem), "")) from problem
    finally:
        _stop_all(children, ensemble, stops)


def _settings(wish: Wish) -> dict[str, str]:
    settings = dict(split_pair(text, "--set") for text in wish.settings)
    for name in settings:
        if name in OWN:
            raise misused(f"--set {name} is for one broker, and here it would be for all of them")
    return settings


def _check_installed() -> None:
    """Says at once what else every broker would say, one after the other, in its log."""
    if importlib.util.find_spec("kazoo") is None:
        raise CommandError(f"a cluster needs the package kazoo, which is not installed. Get it: {INSTALL}")


def _broker_count(wish: Wish) -> int:
    try:
        numbers = [path.name.partition("-")[2] for path in wish.directory.glob("broker-*") if path.is_dir()]
    except OSError as error:
        raise _unusable(wish, error) from error
    before = max((int(number) for number in numbers if number.isdecimal()), default=0)
    wanted = wish.brokers or before or DEFAULT_BROKERS
    if wanted < before:
        remedy = f"Decommission the last ones and remove their directories first, or give --brokers {before}"
        raise misused(f"{wish.directory} has {before} brokers, and --brokers says {wanted}", remedy=remedy)
    return wanted


def _check_ports(wish: Wish, count: int) -> None:
    """Says at once whose port is taken, which is commonly an earlier cluster that still runs."""
    ports = [wish.port + number for number in range(count)]
    for server in _zookeeper_ports(wish):
        ports += [server.client] if wish.zookeeper_nodes == 1 else [server.client, server.peer, server.election]
    if max(ports) > HIGHEST_PORT:
        raise misused(f"port {max(ports)} would be needed, and ports end at {HIGHEST_PORT}", remedy="Give lower ports")
    if len(set(ports)) < len(ports):
        raise misused("brokers and ZooKeeper need ports of their own", remedy="Give other --port or --zookeeper-port")
    for port in ports:
        with socket.socket() as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                link.bind((HOST, port))
            except OSError as error:
                remedy = "Does another cluster run? Else give --port or --zookeeper-port"
                raise CommandError(f"port {port} cannot be used ({error.strerror})", remedy=remedy) from error


def _zookeeper_ports(wish: Wish) -> list[Ports]:
    first = wish.zookeeper_port
    return [
        Ports(first + number, first + PEER_PORTS + number, first + ELECTION_PORTS + number)
        for number in range(wish.zookeeper_nodes)
    ]


def _ensemble(wish: Wish) -> Ensemble:
    try:
        wish.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(wish, error) from error
    return Ensemble(wish.directory / "zookeeper", _zookeeper_ports(wish), Tuning())


def _unusable(wish: Wish, error: OSError) -> CommandError:
    return misused(f"cannot use --dir {wish.directory}: {(error.strerror or str(error)).lower()}")


class Child:
    """One broker's process."""

    def __init__(self, wish: Wish, number: int, count: int, zookeeper: str, settings: Mapping[str, str]) -> None:
        self.number = number
        self.port = wish.port + number - 1
        self.log = wish.directory / f"broker-{number}.log"
        copies = str(min(count, COPIES))
        self._settings = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": str(wish.directory / f"broker-{number}"),
            "zookeeper.connect": zookeeper,
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def ended(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._process.poll() if self._process is not None else None

    def launch(self) -> None:
        options = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        try:
            log = open(self.log, "ab")  # noqa: SIM115 - closed below
        except OSError as error:
            raise CommandError(f"cannot write {self.log}: {(error.strerror or str(error)).lower()}") from error
        with log:
            # A process group of its own: Ctrl-C is for us, who then stop one broker after the other.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moldau", "broker", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._guard = Guard(self._process.pid)

    def await_ready(self, count: int) -> None:
        """Until it knows that all of them are there."""
        until = time.monotonic() + START_S
        while self._knows() < count:
            if self.ended is not None:
                code = MISUSED if self.ended == MISUSED else FAILED  # a mistake in --set
                raise CommandError(f"broker {self.number} {self.how_ended()}", exit_code=code)
            if time.monotonic() > until:
                raise CommandError(f"broker {self.number} does not answer after {START_S:.0f} s. See {self.log}")
            time.sleep(LOOK_AGAIN_S)

    def _knows(self) -> int:
        """How many brokers are there, as far as this one can tell."""
        try:
            connection = Connection(HOST, self.port, client_id="moldau-cli", timeout_s=ASK_S)
            try:
                request = DescribeClusterRequest(include_cluster_authorized_operations=False)
                return len(connection.ask(request, DescribeClusterResponse).brokers)
            finally:
                connection.close()
        except OSError:
            return 0

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return f"{lines[-1].strip().removeprefix('moldau: ') if lines else 'it said nothing'} (see {self.log})"

    def how_ended(self) -> str:
        code = self.ended or 0
        if code < 0:
            return f"was ended by {signal.Signals(-code).name} (see {self.log})"
        return f"has ended with exit code {code}: {self.last_words()}"

    def stop(self) -> None:
        """In order; at once if it does not."""
        if self._process is not None and self.ended is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                note(f"Broker {self.number} did not stop within {STOP_S:.0f} s, and was killed.")
        self.kill()

    def kill(self) -> None:
        if self._process is not None and self.ended is None:
            self._process.kill()
            self._process.wait()
        if self._guard is not None:
            self._guard.dismiss()


def _announce(wish: Wish, children: list[Child], ensemble: Ensemble) -> None:
    bootstrap = ",".join(child.address for child in children)
    command = own_command()
    lines = (
        f"Moldau {moldau.__version__}: {len(children)} brokers are ready.",
        f"  Bootstrap   {bootstrap}",
        f"  ZooKeeper   {ensemble.connect}",
        f"  Data        {wish.directory.resolve()}",
        "Try, in another terminal:",
        f"  {command} cluster describe -b {children[0].address}",
        "Stop with Ctrl-C.",
    )
    announce(lines)


def _watch(children: list[Child]) -> int:
    """Tells of brokers that end by themselves; ends when none is left."""
    told: set[int] = set()
    while len(told) < len(children):
        for child in children:
            if child.ended is not None and child.number not in told:
                told.add(child.number)
                note(f"Broker {child.number} {child.how_ended()}. The others go on; Ctrl-C stops them.")
        time.sleep(WATCH_S)
    return FAILED


def _stop_all(children: list[Child], ensemble: Ensemble, stops: Stops) -> None:
    try:
        for child in children:
            child.stop()
    except StopAsked:  # asked again: no more waiting
        note("Killing what is left.")
    finally:
        stops.ignore()
        for child in children:
            child.kill()
        ensemble.stop()
