"""LogDirectory: one of `log.dirs`, with its lock, `meta.properties` and checkpoints.

The order of a clean shutdown matters: logs are closed, checkpoints written, and only then the clean-shutdown marker.
Opening the directory removes the marker, so that a crash leaves none.
"""

import errno
import fcntl
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID, uuid4

from moldau.base.ids import Epoch, Offset, TopicPartition
from moldau.base.uuids import text_of, uuid_of
from moldau.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    MalformedCheckpointError,
    read_offsets,
    read_properties,
    write_offsets,
    write_properties,
)
from moldau.log.files import is_transient, replace, sync_directory
from moldau.log.reserve import DiskReserve

logger = logging.getLogger("moldau.log")

LOCK = ".lock"
METADATA_LOG = "__cluster_metadata-0"  # Apache Kafka's own, not a partition of a topic
PARTITION = re.compile(r"(?P<topic>.+)-(?P<number>0|[1-9][0-9]{0,9})")
PENDING_DELETION = re.compile(r".+\.[0-9a-f]+-delete")  # a long name loses its end, number included
FUTURE = re.compile(r"(?P<topic>.+)-(?P<number>0|[1-9][0-9]{0,9})\.[0-9a-f]+-future")  # Kafka's future log
MOVED = "moved"  # in a partition's directory: its future log, in another one, is complete
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RESERVE = ".moldau-reserve"
RESERVE_BYTES = 1024 * 1024  # the checkpoints of about 15,000 partitions
META_VERSION = "1"
NO_LOCK = -1
_held: set[Path] = set()  # by this process: POSIX locks do not exclude their own process


class DirectoryRefused(Exception):
    """The log directory cannot be used; the text says why and what to do."""


class DirectoryFailed(DirectoryRefused):
    """The disk failed. A broker with other log directories starts without this one."""


class LogDirectory:
    """`open` locks the directory; `close` writes the clean-shutdown marker and unlocks it."""

    __slots__ = (
        "_lock",
        "_reserve",
        "clean",
        "cluster_id",
        "cordoned",
        "directory_id",
        "high_watermarks",
        "log_starts",
        "node_id",
        "offline",
        "path",
        "recovery_points",
    )

    def __init__(self, path: Path, lock: int) -> None:
        """Use `LogDirectory.open` instead."""
        self.path = path
        self._lock = lock
        self._reserve = DiskReserve(path / RESERVE, RESERVE_BYTES)
        self.clean = False
        self.cluster_id = ""
        self.node_id = -1
        self.directory_id = UUID(int=0)
        self.cordoned = False  # it gets no new replicas (KIP-1066)
        self.offline = False  # its disk failed: not used before the next start
        self.recovery_points: dict[TopicPartition, Offset] = {}
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        self.log_starts: dict[TopicPartition, Offset] = {}

    @classmethod
    def open(cls, path: Path) -> "LogDirectory":
        """Lock the directory, create it if missing, and read its checkpoints. Removes the clean-shutdown marker.

        DirectoryFailed if its disk fails, DirectoryRefused if anything else is wrong.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            path = path.resolve()
            directory = cls(path, _lock(path))
        except FileExistsError:
            raise DirectoryFailed(f"cannot use the log directory {path}: it is a file") from None
        except OSError as problem:
            raise _unusable(f"the log directory {path}", problem) from None
        try:
            directory._read()
        except OSError as problem:
            directory._unlock()
            raise _unusable(problem.filename or path, problem) from None
        except MalformedCheckpointError as problem:
            directory._unlock()
            raise DirectoryRefused(f"cannot use the log directory {path}: {problem}") from None
        return directory

    @classmethod
    def failed(cls, path: Path) -> "LogDirectory":
        """An offline log directory: configured, but not read or written."""
        directory = cls(Path(os.path.realpath(path)), NO_LOCK)
        if directory.path in _held:
            raise _named_twice(directory.path)
        _held.add(directory.path)
        directory.offline = True
        return directory

    def _read(self) -> None:
        path = self.path
        self._identify(path / META_PROPERTIES)
        self.partitions()  # raises OSError if the disk failed
        marker = path / CLEAN_SHUTDOWN
        self.clean = marker.exists()
        self.recovery_points = self._offsets(RECOVERY_POINTS)
        self.high_watermarks = self._offsets(HIGH_WATERMARKS)
        self.log_starts = self._offsets(LOG_STARTS)
        if marker.exists():
            marker.unlink()
            sync_directory(path)

    def _offsets(self, name: str) -> dict[TopicPartition, Offset]:
        """A malformed checkpoint counts as missing, as in Kafka; then all logs are checked."""
        try:
            return read_offsets(self.path / name)
        except MalformedCheckpointError as fault:
            logger.warning("%s. Continuing without this checkpoint; all logs of the directory are checked.", fault)
            self.clean = False
            return {}

    def _identify(self, path: Path) -> None:
        found = read_properties(path)
        if found is None:
            return
        if "version" not in found:
            raise MalformedCheckpointError(f"{path} is damaged: it has no version")
        if found["version"] != META_VERSION:
            raise MalformedCheckpointError(f"{path}: unknown version {found['version']!r}")
        try:
            self.cluster_id, self.node_id = found["cluster.id"], int(found["node.id"])
            self.directory_id = uuid_of(found["directory.id"])
        except (KeyError, ValueError):
            raise MalformedCheckpointError(f"{path}: cluster.id, node.id or directory.id is missing or wrong") from None

    def ensure_owner(self, cluster_id: str, node_id: int) -> None:
        """Write `meta.properties`, or check that it names this cluster and node; DirectoryRefused if not."""
        if not self.cluster_id:
            self.cluster_id, self.node_id, self.directory_id = cluster_id, node_id, uuid4()
            properties = {
                "version": META_VERSION,
                "cluster.id": cluster_id,
                "node.id": str(node_id),
                "directory.id": text_of(self.directory_id),
            }
            try:
                write_properties(self.path / META_PROPERTIES, properties)
            except OSError as problem:
                raise _unusable(f"the log directory {self.path}", problem) from None
        if self.node_id != node_id:
            raise DirectoryRefused(
                f"the log directory {self.path} belongs to node {self.node_id}, not to node {node_id}; "
                f"start that node with --set node.id={self.node_id}"
            )
        if self.cluster_id != cluster_id:
            raise DirectoryRefused(
                f"the log directory {self.path} belongs to cluster {self.cluster_id}, not to cluster {cluster_id}"
            )
        self._reserve.fill()

    def forget(self, partition: TopicPartition) -> None:
        """Drop the checkpoints of a deleted partition, so that a later one of its name starts without them."""
        for known in (self.recovery_points, self.high_watermarks, self.log_starts):
            known.pop(partition, None)

    def partitions(self) -> dict[TopicPartition, Path]:
        """The directories of partitions, without Kafka's metadata log and those pending deletion."""
        found = {}
        for entry in self._entries():
            name = PARTITION.fullmatch(entry.name)
            if name and entry.name != METADATA_LOG and entry.is_dir():
                found[TopicPartition(name["topic"], int(name["number"]))] = entry
        return found

    def future_logs(self) -> dict[TopicPartition, Path]:
        """Future logs: unfinished copies of partitions from other directories."""
        found = {}
        for entry in self._entries():
            name = FUTURE.fullmatch(entry.name)
            if name and entry.is_dir():
                found[TopicPartition(name["topic"], int(name["number"]))] = entry
        return found

    def pending_deletion(self) -> list[Path]:
        """Directories of deleted partitions that an earlier run did not remove."""
        return [entry for entry in self._entries() if PENDING_DELETION.fullmatch(entry.name) and entry.is_dir()]

    def _entries(self) -> Iterable[Path]:
        """The entries of the directory; none if it is offline."""
        return () if self.offline else self.path.iterdir()

    def write_checkpoints(
        self,
        recovery_points: Mapping[TopicPartition, Offset],
        high_watermarks: Mapping[TopicPartition, Offset],
        log_starts: Mapping[TopicPartition, Offset],
        *,
        reserve: bool = False,
    ) -> None:
        """Write and sync three files, in a thread; with `reserve` also where the disk is full."""

        def write() -> None:
            write_offsets(self.path / RECOVERY_POINTS, recovery_points)
            write_offsets(self.path / HIGH_WATERMARKS, high_watermarks)
            write_offsets(self.path / LOG_STARTS, log_starts)

        if reserve:
            self._reserve.use(write)
        else:
            write()
            self._reserve.fill()

    def close(self, *, clean: bool, broker_epoch: Epoch = -1) -> None:
        """Unlock it; `clean`: all logs are closed and the checkpoints written."""
        try:
            if clean:
                marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
                replace(self.path / CLEAN_SHUTDOWN, marker.encode())
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock != NO_LOCK:
            os.close(self._lock)
        _held.discard(self.path)


def _unusable(what: object, problem: OSError) -> DirectoryRefused:
    """A full disk has not failed: the broker stops, to be started again when there is room."""
    kind = DirectoryRefused if is_transient(problem) else DirectoryFailed
    return kind(f"cannot use {what}: {problem.strerror}")


def _named_twice(path: Path) -> DirectoryRefused:
    return DirectoryRefused(f"the log directory {path} is named twice in log.dirs")


def _lock(directory: Path) -> int:
    if directory in _held:
        raise _named_twice(directory)
    fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kind of lock that Java takes
    except OSError as error:
        os.close(fd)
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        raise DirectoryRefused(
            f"the log directory {directory} is in use by another broker; stop that one first"
        ) from None
    _held.add(directory)
    return fd
