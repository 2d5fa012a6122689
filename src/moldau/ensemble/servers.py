"""Real ZooKeeper servers as child processes: configuration, start, kill, stop. Not a client, and no broker uses it.

The server comes with PySpark, which has it among its jars, and so nothing else needs to be installed. It runs on any
Java that Spark runs on.
"""

import contextlib
import importlib.util
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from moldau.ensemble.guard import Guard
from moldau.ensemble.ports import HOST, free_ports

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
INSTALL = "pip install '.[cluster,spark]' in a clone of Moldau"
# What the server loads, and no more: a class path of all of Spark's jars takes twice as long to start.
JARS = ("zookeeper-[0-9]*.jar", "zookeeper-jute-*.jar", "metrics-core-*.jar", "slf4j-api-*.jar", "snappy-java-*.jar")
LOG_JARS = ("log4j-api-*.jar", "log4j-core-*.jar", "log4j-slf4j2-impl-*.jar")
# A small server that starts at once: no second compiler, no threads for collecting garbage, classes from the archive.
JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData")
SERVER_OPTIONS = (
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.admin.enableServer=false",
    # Servers that start together miss each other's first notifications: say it again soon, not after up to a minute.
    "-Dzookeeper.fastleader.maxNotificationInterval=400",
)
LOG_CONFIGURATION = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n%xEx
"""
SERVER = "server-"  # and a number: a server's directory
START_S = 120.0
STOP_S = 20.0
ASK_S = 2.0
POLL_S = 0.02


class EnsembleFailed(Exception):
    """The servers did not start; the text says why."""


class EnsembleMissing(EnsembleFailed):
    """PySpark or Java is not there; the text says how to get it."""


class PortTaken(EnsembleFailed):
    """Another program listens there."""


class DirectoryTaken(EnsembleFailed):
    """Other servers use the directory, or have left data of theirs in it."""


@dataclass(frozen=True, slots=True)
class Ports:
    """One server's three: clients, the other servers, and elections. A server that is alone uses the first only."""

    client: int
    peer: int
    election: int


@dataclass(frozen=True, slots=True)
class Tuning:
    """What differs between an ensemble that keeps data and one that lives as long as a test."""

    tick_ms: int = 2000  # sessions are at least two ticks long
    force_sync: bool = True
    log: bool = True  # costs half a second at start
    heap_mb: int = 512


def find_command(log: bool) -> list[str]:
    """Java and the class path, or EnsembleMissing with what is missing."""
    from moldau.spark.java import NoJava, find_java  # here: most who import `moldau.testing` start no server

    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnsembleMissing(f"the ZooKeeper server comes with PySpark, which is not installed. Get it: {INSTALL}")
    jars = Path(spec.origin).parent / "jars"
    found = [path for name in (*JARS, *(LOG_JARS if log else ())) for path in sorted(jars.glob(name))]
    if not any(path.name.startswith("zookeeper-") for path in found):
        raise EnsembleMissing(f"this PySpark has no ZooKeeper server in {jars}. Get one that has: {INSTALL}")
    java = find_java(asker="ZooKeeper")
    if isinstance(java, NoJava):
        raise EnsembleMissing(java.reason)
    return [str(java.command), *JAVA_OPTIONS, *SERVER_OPTIONS, "-cp", ":".join(map(str, found))]


class Server:
    """One server process, with its configuration, data and log in a directory of its own."""

    def __init__(self, number: int, directory: Path, ports: Sequence[Ports], tuning: Tuning) -> None:
        self._number = number  # from 1, as ZooKeeper counts
        self._directory = directory
        self._ports = ports
        self._tuning = tuning
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    @property
    def port(self) -> int:
        return self._ports[self._number - 1].client

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def launch(self, command: Sequence[str], claim: IO[bytes]) -> None:
        """Start the process; `serves` tells when it is ready. It keeps the claim on the directory until it ends."""
        if self.pid is not None:
            return
        (self._directory / "data").mkdir(exist_ok=True)
        (self._directory / "data" / "myid").write_text(f"{self._number}\n")
        configuration = self._directory / "zoo.cfg"
        configuration.write_text(self._configuration())
        options = [f"-Xmx{self._tuning.heap_mb}m"]
        if not self._tuning.force_sync:
            options.append("-Dzookeeper.forceSync=no")
        if self._tuning.log:
            logging = self._directory / "log4j2.properties"
            logging.write_text(LOG_CONFIGURATION)
            options.append(f"-Dlog4j2.configurationFile={logging}")
        with open(self._log, "ab") as log:
            # A process group of its own: Ctrl-C is for us, who then stop the server in order.
            self._process = subprocess.Popen(
                [*command, *options, MAIN_CLASS, str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                pass_fds=(claim.fileno(),),
            )
        self._dismiss_guard()  # of a server that ended by itself
        self._guard = Guard(self._process.pid)

    def serves(self) -> bool:
        """Whether it answers as a leader, a follower or alone; EnsembleFailed if it has ended."""
        if self._process is None or self._process.poll() is not None:
            raise EnsembleFailed(f"the ZooKeeper server on port {self.port} ended at once: {self.last_words()}")
        try:
            with socket.create_connection((HOST, self.port), ASK_S) as link:
                link.sendall(b"srvr")
                answer = link.makefile("rb").read()
        except OSError:
            return False
        return b"Mode: " in answer

    def last_words(self) -> str:
        """The last line of what it said, and where the rest is."""
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line and line[0] not in " \t"]
        return f"{said[-1] if said else 'it said nothing'} (see {self._log})"

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.pid is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self._dismiss_guard()

    def ask_to_stop(self) -> None:
        self.signal(signal.SIGCONT)  # a paused process would not hear the other one
        self.signal(signal.SIGTERM)

    def wait_until_stopped(self) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None

    @property
    def _log(self) -> Path:
        return self._directory / "server.log"

    def _configuration(self) -> str:
        lines = [
            f"dataDir={self._directory / 'data'}",
            f"clientPort={self.port}",
            f"clientPortAddress={HOST}",
            f"tickTime={self._tuning.tick_ms}",
            "maxSessionTimeout=120000",
            "maxClientCnxns=0",  # all clients of a machine share one address
            "preAllocSize=4096",  # KB; 64 MB for each file of the transaction log is much for a laptop
            "autopurge.purgeInterval=24",
            "admin.enableServer=false",
        ]
        if len(self._ports) > 1:
            ticks = max(10_000 // self._tuning.tick_ms, 5)
            lines += [f"initLimit={ticks}", f"syncLimit={max(ticks // 2, 5)}"]
            lines += [
                f"server.{number}={HOST}:{ports.peer}:{ports.election}"
                for number, ports in enumerate(self._ports, start=1)
            ]
        return "".join(f"{line}\n" for line in lines)


class Ensemble:
    """Servers that know each other. Nothing runs before `start`; `stop` leaves the data where it is."""

    def __init__(self, directory: Path, ports: Sequence[Ports], tuning: Tuning) -> None:
        self._tuning = tuning
        self._directory = directory.resolve()
        self._ports = ports
        self._claim: IO[bytes] | None = None
        self.servers = [
            Server(number, self._directory / f"{SERVER}{number}", ports, tuning) for number in range(1, len(ports) + 1)
        ]

    @property
    def connect(self) -> str:
        return ",".join(f"{HOST}:{server.port}" for server in self.servers)

    def start(self) -> None:
        """Start all that do not run, and wait until each serves."""
        self.launch()
        self.wait_until_serving(self.servers)

    def launch(self) -> None:
        """Start the processes of all that do not run."""
        command = find_command(self._tuning.log)
        claim = self._claim_directory()
        self._check_ports()
        try:
            for server in self.servers:
                server.launch(command, claim)
        except OSError as error:
            raise EnsembleFailed(f"cannot use {error.filename or self._directory}: {error.strerror}") from None

    def restart(self, server: Server, *, wait: bool) -> None:
        """Start one again, which is killed first if it runs."""
        server.kill()
        server.launch(find_command(self._tuning.log), self._claim_directory())
        if wait:
            self.wait_until_serving([server])

    def stop(self) -> None:
        for server in self.servers:
            server.ask_to_stop()
        for server in self.servers:
            server.wait_until_stopped()
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def wait_until_serving(self, servers: Sequence[Server]) -> None:
        until = time.monotonic() + START_S
        for server in servers:
            while not server.serves():
                if time.monotonic() > until:
                    raise EnsembleFailed(
                        f"the ZooKeeper server on port {server.port} does not serve after {START_S:.0f} s: "
                        f"{server.last_words()}"
                    )
                time.sleep(POLL_S)

    def _check_ports(self) -> None:
        for server, ports in zip(self.servers, self._ports, strict=True):
            used = (ports.client, ports.peer, ports.election) if len(self.servers) > 1 else (ports.client,)
            for port in used if server.pid is None else ():
                with socket.socket() as trial:
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
                    try:
                        trial.bind((HOST, port))
                    except OSError:
                        raise PortTaken(f"port {port} is in use") from None

    def _claim_directory(self) -> IO[bytes]:
        """ZooKeeper does not notice when two servers have the same data. The lock lasts while any of ours runs."""
        if self._claim is None:
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
                with contextlib.ExitStack() as stack:
                    claim = stack.enter_context(open(self._directory / ".lock", "ab"))
                    self._check_directory(claim)
                    self._claim = claim
                    stack.pop_all()
            except OSError as error:
                raise EnsembleFailed(f"cannot use the directory {self._directory}: {error.strerror}") from None
        return self._claim

    def _check_directory(self, claim: IO[bytes]) -> None:
        import fcntl  # here: who imports `moldau.testing` on Windows need not start a server

        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryTaken(f"another ZooKeeper uses the directory {self._directory}") from None
        there, wanted = len(list(self._directory.glob(f"{SERVER}[0-9]*"))), len(self.servers)
        if there not in (0, wanted):
            raise DirectoryTaken(f"{self._directory} has the data of an ensemble of {there}, not of {wanted}")
        for number in range(1, wanted + 1):
            (self._directory / f"{SERVER}{number}").mkdir(exist_ok=True)


def ports_for(nodes: int) -> list[Ports]:
    """Free ports for that many servers."""
    numbers = free_ports(nodes * 3)
    return [Ports(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
