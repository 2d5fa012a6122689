"""One log directory: whose it is, that nobody else uses it, and the checkpoints of all its partitions.

The order at a clean stop matters: logs are closed, checkpoints written, and only then the marker of a clean stop. The
marker is taken away when the directory is opened, so that a crash finds none.
"""

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID, uuid4

from moldau.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    MalformedCheckpointError,
    Partition,
    read_offsets,
    read_properties,
    uuid_of,
    uuid_text,
    write_offsets,
    write_properties,
)
from moldau.log.files import replace, sync_directory

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_VERSION = "1"
_held: set[Path] = set()  # locked by this process: POSIX locks do not keep a process from its own files


class DirectoryInUseError(OSError):
    """Another broker, ours or Apache Kafka, has the directory locked."""


class DirectoryMismatchError(ValueError):
    """The directory belongs to another cluster or node."""


class LogDirectory:
    """`open` locks it; `close` marks a clean stop and lets it go."""

    __slots__ = (
        "_lock",
        "clean",
        "cluster_id",
        "directory_id",
        "high_watermarks",
        "log_starts",
        "node_id",
        "path",
        "recovery_points",
    )

    def __init__(self, path: Path, lock: int) -> None:
        """Not for callers: `LogDirectory.open`."""
        self.path = path
        self._lock = lock
        self.clean = False
        self.cluster_id = ""
        self.node_id = -1
        self.directory_id = UUID(int=0)
        self.recovery_points: dict[Partition, int] = {}
        self.high_watermarks: dict[Partition, int] = {}
        self.log_starts: dict[Partition, int] = {}

    @classmethod
    def open(cls, path: Path, *, cluster_id: str, node_id: int) -> "LogDirectory":
        """Locks the directory, creating it where necessary, and reads what the last run left. Removes its marker."""
        path.mkdir(parents=True, exist_ok=True)
        path = path.resolve()
        directory = cls(path, _lock(path))
        try:
            directory._identify(cluster_id, node_id)
            directory.recovery_points = read_offsets(path / RECOVERY_POINTS)
            directory.high_watermarks = read_offsets(path / HIGH_WATERMARKS)
            directory.log_starts = read_offsets(path / LOG_STARTS)
            directory.clean = (path / CLEAN_SHUTDOWN).exists()
            if directory.clean:
                (path / CLEAN_SHUTDOWN).unlink()
                sync_directory(path)
        except BaseException:
            directory._unlock()
            raise
        return directory

    def _identify(self, cluster_id: str, node_id: int) -> None:
        path = self.path / META_PROPERTIES
        found = read_properties(path)
        if found is None:
            found = {
                "version": META_VERSION,
                "cluster.id": cluster_id,
                "node.id": str(node_id),
                "directory.id": uuid_text(uuid4()),
            }
            write_properties(path, found)
        if found.get("version") != META_VERSION:
            raise MalformedCheckpointError(f"{path}: version {found.get('version')!r} is not known")
        if (found.get("cluster.id"), found.get("node.id")) != (cluster_id, str(node_id)):
            raise DirectoryMismatchError(
                f"{self.path} belongs to node {found.get('node.id')} of cluster {found.get('cluster.id')}, "
                f"not to node {node_id} of cluster {cluster_id}"
            )
        self.cluster_id, self.node_id = cluster_id, node_id
        try:
            self.directory_id = uuid_of(found.get("directory.id", ""))
        except ValueError:
            raise MalformedCheckpointError(f"{path}: directory.id is missing or not an id") from None

    def partitions(self) -> dict[Partition, Path]:
        """Directories of partitions; Kafka's metadata log and what waits for removal are left out."""
        found = {}
        for entry in self.path.iterdir():
            topic, _, number = entry.name.rpartition("-")
            if topic and number.isdecimal() and topic != "__cluster_metadata" and entry.is_dir():
                found[topic, int(number)] = entry
        return found

    def condemned(self) -> list[Path]:
        """Directories of deleted partitions that an earlier run did not get to remove."""
        return [entry for entry in self.path.iterdir() if entry.name.endswith("-delete") and entry.is_dir()]

    def write_checkpoints(
        self,
        recovery_points: Mapping[Partition, int],
        high_watermarks: Mapping[Partition, int],
        log_starts: Mapping[Partition, int],
    ) -> None:
        """Syncs three files: belongs in a thread."""
        write_offsets(self.path / RECOVERY_POINTS, recovery_points)
        write_offsets(self.path / HIGH_WATERMARKS, high_watermarks)
        write_offsets(self.path / LOG_STARTS, log_starts)

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """`clean` says that all logs are closed and the checkpoints written."""
        if clean:
            marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
            replace(self.path / CLEAN_SHUTDOWN, marker.encode())
        self._unlock()

    def _unlock(self) -> None:
        os.close(self._lock)
        _held.discard(self.path)


def identity(path: Path) -> dict[str, str] | None:
    """The `meta.properties` of a directory that is not open yet: its cluster, node and directory ids."""
    return read_properties(path / META_PROPERTIES)


def _lock(directory: Path) -> int:
    if directory in _held:
        raise DirectoryInUseError(errno.EAGAIN, "this process uses the log directory already", str(directory))
    fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kind of lock that Java takes, so each sees the other's
    except OSError as error:
        os.close(fd)
        raise DirectoryInUseError(error.errno, "another broker uses the log directory", str(directory)) from None
    _held.add(directory)
    return fd
