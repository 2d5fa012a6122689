"""The log directory of each partition, and cleaning up where two directories have it. Opens no log."""

import logging
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID, uuid4

from moldau.base.ids import TopicPartition
from moldau.log.checkpoints import MalformedCheckpointError, read_topic_id
from moldau.log.directory import MOVED, DirectoryRefused, LogDirectory
from moldau.log.files import read_whole, remove, replace

logger = logging.getLogger("moldau.log")

STRAY = "is a stray partition: it belongs to no topic"
LONGEST_DELETED = 215  # characters; 40 more follow, and file systems allow 255
LONGEST_STRAY = 216  # 39 more follow


def deletion_path(path: Path) -> Path:
    """The name that Kafka gives to the directory of a deleted partition."""
    return path.with_name(f"{path.name[:LONGEST_DELETED]}.{uuid4().hex}-delete")


def rename_stray(path: Path, why: str) -> None:
    """Rename a directory that is not the log of its partition to a `-stray` name, as Kafka does."""
    if path.exists():
        stray = path.rename(path.with_name(f"{path.name[:LONGEST_STRAY]}.{uuid4().hex}-stray"))
        logger.warning("%s %s. Renamed to %s; delete it when it is not needed.", path, why, stray)


def mark_moved(path: str, log_start: int) -> None:
    """Note in the directory at `path` that its future log, in another directory, is complete and will replace it.

    With the log start offset, so that deleted records do not return where no checkpoint has it yet.
    """
    replace(f"{path}/{MOVED}", b"%d" % log_start)


def unmark_moved(path: str | Path) -> None:
    remove([Path(path) / MOVED])


def _marked_start(path: Path) -> int:
    text = read_whole(path / MOVED) or b""
    return int(text) if text.isdigit() else 0


def _other_topics(one: Path, two: Path, topic_id: UUID | None) -> Path | None:
    """The directory of an earlier topic of the same name, which was offline when that topic was deleted."""
    ids = [_id_in(one), _id_in(two)]
    if None in ids or ids.count(topic_id) != 1:
        return None
    return two if ids[0] == topic_id else one


def _id_in(path: Path) -> UUID | None:
    try:
        return read_topic_id(path)
    except (OSError, MalformedCheckpointError):
        return None


def locate_partitions(
    directories: list[LogDirectory], topic_ids: Mapping[str, UUID]
) -> dict[TopicPartition, LogDirectory]:
    """The log directory of each partition. `topic_ids` are those of the topics in the metadata.

    A move that was interrupted before its last step leaves two directories; the one marked as moved is deleted. Without
    a mark the right one is unknown, and the broker does not start, as in Kafka. While a log directory is offline, a
    partition marked as moved is in no directory: the offline one may have its newer copy.
    """
    found: dict[TopicPartition, tuple[LogDirectory, Path]] = {}
    for directory in directories:
        for name, path in directory.partitions().items():
            if name not in found:
                found[name] = (directory, path)
                continue
            old_directory, old = found[name]
            stray = _other_topics(old, path, topic_ids.get(name[0]))
            if stray is not None:
                found[name] = (directory, path) if stray == old else found[name]
                (old_directory if stray == old else directory).forget(name)
                rename_stray(stray, STRAY)
                continue
            if (old / MOVED).exists():
                found[name] = (directory, path)
                path, directory = old, old_directory
            elif not (path / MOVED).exists():
                raise DirectoryRefused(
                    f"{name} is in two log directories, {old} and {path}; "
                    "compare them with `moldau log check`, and move one away"
                )
            logger.warning("%s was moved to %s before the last shutdown; deleting it.", path, found[name][1])
            starts = found[name][0].log_starts
            starts[name] = max(starts.get(name, 0), directory.log_starts.get(name, 0), _marked_start(path))
            directory.forget(name)
            path.rename(deletion_path(path))
    if any(directory.offline for directory in directories):
        return {name: directory for name, (directory, path) in found.items() if not (path / MOVED).exists()}
    for _, path in found.values():
        unmark_moved(path)  # there is no second directory, so the move was not completed
    return {name: directory for name, (directory, _) in found.items()}


def interrupted_moves(directories: list[LogDirectory]) -> dict[TopicPartition, LogDirectory]:
    """The targets of moves that were interrupted. Removes the unfinished copies."""
    unfinished = {name: directory for directory in directories for name in directory.future_logs()}
    for directory in directories:
        remove(directory.future_logs().values())
    return unfinished
