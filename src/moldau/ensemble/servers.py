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

HOST = "127.0.0.1"
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
INSTALL = "pip install 'moldau[cluster,spark]'"
# What the server loads, and no more: a class path of all of Spark's jars takes twice as long to start.
JARS = ("zookeeper-[0-9]*.jar", "zookeeper-jute-*.jar", "metrics-core-*.jar", "slf4j-api-*.jar", "snappy-java-*.jar")
LOG_JARS = ("log4j-api-*.jar", "log4j-core-*.jar", "log4j-slf4j2-impl-*.jar")
# A small server that starts at once: no second compiler, no threads for collecting garbage, classes from the archive.
JAVA_OPTIONS = ("-Xmx160m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData")
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
START_S = 60.0
STOP_S = 20.0
ASK_S = 2.0
POLL_S = 0.02


class EnsembleFailed(Exception):
    """The servers did not start; the text says why."""


class EnsembleMissing(EnsembleFailed):
    """PySpark or Java is not there; the text says how to get it."""


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

    @property
    def port(self) -> int:
        return self._ports[self._number - 1].client

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def launch(self, command: Sequence[str]) -> None:
        """Start the process; `serves` tells when it is ready."""
        if self.pid is not None:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "data").mkdir(exist_ok=True)
        (self._directory / "data" / "myid").write_text(f"{self._number}\n")
        configuration = self._directory / "zoo.cfg"
        configuration.write_text(self._configuration())
        options = [] if self._tuning.force_sync else ["-Dzookeeper.forceSync=no"]
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
            )

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

    @property
    def ended(self) -> bool:
        return self.pid is None

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
        root = directory.resolve()
        self.servers = [Server(number, root / f"server-{number}", ports, tuning) for number in range(1, len(ports) + 1)]

    @property
    def connect(self) -> str:
        return ",".join(f"{HOST}:{server.port}" for server in self.servers)

    def start(self) -> None:
        """Start all and wait until each serves."""
        self.start_some(self.servers)

    def start_some(self, servers: Sequence[Server], *, wait: bool = True) -> None:
        command = find_command(self._tuning.log)
        for server in servers:
            server.launch(command)
        if wait:
            self.wait_until_serving(servers)

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

    def stop(self) -> None:
        for server in self.servers:
            server.ask_to_stop()
        for server in self.servers:
            server.wait_until_stopped()


def free_ports(nodes: int) -> list[Ports]:
    """Ports that nobody has now. All are held until the last is known, so that none is given twice."""
    with contextlib.ExitStack() as stack:
        numbers = []
        for _ in range(nodes * 3):
            held = stack.enter_context(socket.socket())
            held.bind((HOST, 0))
            numbers.append(held.getsockname()[1])
    return [Ports(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
