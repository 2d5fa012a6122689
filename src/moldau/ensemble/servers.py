"""ZooKeeper servers as child processes, for tools and tests: configuration, start, kill, stop.

The server is one of PySpark's jars, so nothing else needs to be installed. It runs on the same Java as Spark.
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
# Only the jars that the server needs: with all of Spark's jars it takes twice as long to start.
JARS = ("zookeeper-[0-9]*.jar", "zookeeper-jute-*.jar", "metrics-core-*.jar", "slf4j-api-*.jar", "snappy-java-*.jar")
LOG_JARS = ("log4j-api-*.jar", "log4j-core-*.jar", "log4j-slf4j2-impl-*.jar")
TLS_JARS = ("netty-*.jar",)
# For a fast start: no C2 compiler, serial garbage collector, shared classes.
JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData")
SERVER_OPTIONS = (
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.admin.enableServer=false",
    # Servers that start together miss each other's first notifications: repeat them soon, not after up to a minute.
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
SERVER = "server-"  # with a number: directory of a server
START_S = 120.0
STOP_S = 20.0
ASK_S = 2.0
POLL_S = 0.02


class EnsembleFailed(Exception):
    """The servers did not start; the text has the reason."""


class EnsembleMissing(EnsembleFailed):
    """PySpark or Java is missing; the text says how to install it."""


class PortTaken(EnsembleFailed):
    """Another program listens on the port."""


class DirectoryTaken(EnsembleFailed):
    """Other servers use the directory, or it has data of another ensemble."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Client, peer and election port of a server. A standalone server uses only the first."""

    client: int
    peer: int
    election: int


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings that differ between a durable ensemble and one for a test."""

    tick_ms: int = 2000  # the minimum session timeout is two ticks
    force_sync: bool = True
    log: bool = True  # adds half a second to the start
    heap_mb: int = 512
    secure: "Secure | None" = None


@dataclass(frozen=True, slots=True)
class Secure:
    """A second client port of each server, with TLS, beside the plain one. The files are PEM."""

    ports: tuple[int, ...]  # of each server
    keystore: Path
    truststore: Path  # with the authority of the clients, which need a certificate


def find_command(log: bool, secure: bool = False) -> list[str]:
    """Command with Java and class path; raises EnsembleMissing."""
    from moldau.spark.java import NoJava, find_java  # here: most imports of `moldau.testing` start no server

    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnsembleMissing(
            f"the ZooKeeper server is part of PySpark, which is not installed. Install it with: {INSTALL}"
        )
    jars = Path(spec.origin).parent / "jars"
    wanted = (*JARS, *(LOG_JARS if log else ()), *(TLS_JARS if secure else ()))
    found = [path for name in wanted for path in sorted(jars.glob(name))]
    if not any(path.name.startswith("zookeeper-") for path in found):
        raise EnsembleMissing(f"this PySpark has no ZooKeeper server in {jars}. Install another one with: {INSTALL}")
    java = find_java(asker="ZooKeeper")
    if isinstance(java, NoJava):
        raise EnsembleMissing(java.reason)
    return [str(java.command), *JAVA_OPTIONS, *SERVER_OPTIONS, "-cp", ":".join(map(str, found))]


class Server:
    """One server process, with its own directory for configuration, data and log."""

    def __init__(self, number: int, directory: Path, ports: Sequence[Ports], tuning: Tuning) -> None:
        self._number = number  # from 1, as in ZooKeeper
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
        """Process id; None if it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def launch(self, command: Sequence[str], claim: IO[bytes]) -> None:
        """Start the process; `serves` tells when it is ready. It inherits the lock of the directory."""
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
            # A separate process group: Ctrl-C goes to us, and we stop the server cleanly.
            self._process = subprocess.Popen(
                [*command, *options, MAIN_CLASS, str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                pass_fds=(claim.fileno(),),
            )
        self._dismiss_guard()  # of a server that exited
        self._guard = Guard(self._process.pid)

    def serves(self) -> bool:
        """Tell whether it serves as leader, follower or standalone; raises EnsembleFailed if it has exited."""
        if self._process is None or self._process.poll() is not None:
            raise EnsembleFailed(f"the ZooKeeper server on port {self.port} exited: {self.last_words()}")
        try:
            with socket.create_connection((HOST, self.port), ASK_S) as link:
                link.sendall(b"srvr")
                answer = link.makefile("rb").read()
        except OSError:
            return False
        return b"Mode: " in answer

    def last_words(self) -> str:
        """The last line of its log, and the path of the log."""
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line and line[0] not in " \t"]
        return f"{said[-1] if said else 'its log is empty'} (see {self._log})"

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.pid is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self._dismiss_guard()

    def ask_to_stop(self) -> None:
        self.signal(signal.SIGCONT)  # a paused process does not handle SIGTERM
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
            "maxClientCnxns=0",  # no limit: all clients of a machine share one address
            "preAllocSize=4096",  # KB; the default is 64 MB per transaction log file
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
        if self._tuning.secure is not None:
            lines += _secure_lines(self._tuning.secure, self._number)
        return "".join(f"{line}\n" for line in lines)


def _secure_lines(secure: Secure, number: int) -> list[str]:
    return [
        f"secureClientPort={secure.ports[number - 1]}",
        f"secureClientPortAddress={HOST}",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"ssl.keyStore.location={secure.keystore}",
        "ssl.keyStore.type=PEM",
        f"ssl.trustStore.location={secure.truststore}",
        "ssl.trustStore.type=PEM",
    ]


class Ensemble:
    """An ensemble of servers. Nothing runs before `start`; `stop` keeps the data."""

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
        """Start all servers that do not run, and wait until each one serves."""
        self.launch()
        self.wait_until_serving(self.servers)

    def launch(self) -> None:
        """Start the processes of all servers that do not run."""
        command = find_command(self._tuning.log, self._tuning.secure is not None)
        claim = self._claim_directory()
        self._check_ports()
        try:
            for server in self.servers:
                server.launch(command, claim)
        except OSError as error:
            raise EnsembleFailed(f"cannot use {error.filename or self._directory}: {error.strerror}") from None

    def restart(self, server: Server, *, wait: bool) -> None:
        """Start a server again, and kill it first if it runs."""
        server.kill()
        server.launch(find_command(self._tuning.log, self._tuning.secure is not None), self._claim_directory())
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
                        f"the ZooKeeper server on port {server.port} did not start serving within {START_S:.0f} s: "
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
        """Lock the directory: ZooKeeper does not detect two servers on the same data. Held while any server runs."""
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
        import fcntl  # here: it does not exist on Windows, where `moldau.testing` can be imported

        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryTaken(f"another ZooKeeper uses the directory {self._directory}") from None
        there, wanted = len(list(self._directory.glob(f"{SERVER}[0-9]*"))), len(self.servers)
        if there not in (0, wanted):
            raise DirectoryTaken(f"{self._directory} has data of an ensemble of {there}, not of {wanted}")
        for number in range(1, wanted + 1):
            (self._directory / f"{SERVER}{number}").mkdir(exist_ok=True)


def ports_for(nodes: int) -> list[Ports]:
    """Free ports for that many servers."""
    numbers = free_ports(nodes * 3)
    return [Ports(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
