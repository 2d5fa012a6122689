"""The small text files of a log directory: their formats, reading and writing. Holds no state.

Offsets by partition (`recovery-point-offset-checkpoint` and the like), `leader-epoch-checkpoint`, `partition.metadata`
and `meta.properties`. Each is replaced as a whole. A malformed file raises an error with its name; callers can do
without the file.
"""

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from moldau.base.ids import Epoch, Offset, TopicPartition
from moldau.base.uuids import text_of, uuid_of
from moldau.log.files import read_whole, replace

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"


class MalformedCheckpointError(ValueError):
    """A checkpoint file does not have the right format."""


def _rows(path: str | Path, width: int) -> list[list[str]]:
    """Rows of a checkpoint: version 0, the number of rows, the rows. None if the file is missing or empty."""
    data = read_whole(path)
    if not data:
        return []
    lines = data.decode("utf-8", "replace").split("\n")
    try:
        version, count = int(lines[0]), int(lines[1])
        rows = [line.split() for line in lines[2 : 2 + count]]
    except (ValueError, IndexError):
        raise MalformedCheckpointError(f"{path} is not a checkpoint file") from None
    if version != 0:
        raise MalformedCheckpointError(f"{path}: unknown version {version}")
    if len(rows) != count or any(len(row) != width for row in rows):
        raise MalformedCheckpointError(f"{path}: wrong number of rows or columns")
    return rows


def read_offsets(path: Path) -> dict[TopicPartition, Offset]:
    rows = _rows(path, 3)
    try:
        return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError:
        raise MalformedCheckpointError(f"{path}: a row is not 'topic partition offset'") from None


def write_offsets(path: Path, offsets: Mapping[TopicPartition, Offset]) -> None:
    rows = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items()]
    replace(path, f"0\n{len(rows)}\n{''.join(rows)}".encode())


def read_epochs(path: str | Path) -> list[tuple[Epoch, Offset]]:
    """(epoch, first offset), oldest first."""
    rows = _rows(path, 2)
    try:
        return [(int(epoch), int(start)) for epoch, start in rows]
    except ValueError:
        raise MalformedCheckpointError(f"{path}: a row is not 'epoch offset'") from None


def epochs_file(entries: list[tuple[Epoch, Offset]]) -> bytes:
    rows = [f"{epoch} {start}\n" for epoch, start in entries]
    return f"0\n{len(rows)}\n{''.join(rows)}".encode()


def read_topic_id(directory: str | Path) -> UUID | None:
    """The topic id in a partition's `partition.metadata`, or None without such a file."""
    path = f"{directory}/{PARTITION_METADATA}"
    data = read_whole(path)
    if data is None:
        return None
    fields = dict(line.partition(": ")[::2] for line in data.decode("utf-8", "replace").splitlines())
    if fields.get("version") != "0":
        raise MalformedCheckpointError(f"{path}: unknown version {fields.get('version')!r}")
    try:
        return uuid_of(fields.get("topic_id", ""))
    except ValueError:
        raise MalformedCheckpointError(f"{path} has no topic id") from None


def write_topic_id(directory: Path, topic_id: UUID, *, durable: bool = True) -> None:
    replace(directory / PARTITION_METADATA, f"version: 0\ntopic_id: {text_of(topic_id)}".encode(), durable=durable)


def read_properties(path: Path) -> dict[str, str] | None:
    """`key=value` lines of a Java properties file (no escapes: Kafka's ids need none), or None without the file."""
    data = read_whole(path)
    if data is None:
        return None
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    return {key.strip(): value.strip() for key, _, value in pairs}


def write_properties(path: Path, values: Mapping[str, str]) -> None:
    replace(path, ("#\n" + "".join(f"{key}={value}\n" for key, value in values.items())).encode())
