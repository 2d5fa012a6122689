"""Which log directory holds which partition, and what is to be done where two say that they do. Opens no log."""

import logging
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID, uuid4

from moldau.base.ids import TopicPartition
from moldau.log.checkpoints import MalformedCheckpointError, read_topic_id
from moldau.log.directory import MOVED, DirectoryRefused, LogDirectory
from moldau.log.files import read_whole, remove, replace

logger = logging.getLogger("moldau.log")

STRAY = "belongs to no topic"
LONGEST_DELETED = 215  # of a name that takes 40 letters more, and file systems allow 255
LONGEST_STRAY = 216  # and 39


def deletion_path(path: Path) -> Path:
    """Where a partition's directory goes that is to be removed, under the name that Kafka gives to such."""
    return path.with_name(f"{path.name[:LONGEST_DELETED]}.{uuid4().hex}-delete")


def rename_stray(path: Path, why: str) -> None:
    """A directory stands in a partition's place that is not its log: keep it, under Kafka's kind of name."""
    if path.exists():
        stray = path.rename(path.with_name(f"{path.name[:LONGEST_STRAY]}.{uuid4().hex}-stray"))
        logger.warning("%s %s; it was put aside as %s", path, why, stray)


def mark_moved(path: str, log_start: int) -> None:
    """A complete copy of the partition at `path` is about to get its name in another directory.

    The log start goes with it: what DeleteRecords took away must not come back where no checkpoint tells of it yet.
    """
    replace(f"{path}/{MOVED}", b"%d" % log_start)


def unmark_moved(path: str | Path) -> None:
    remove([Path(path) / MOVED])


def _marked_start(path: Path) -> int:
    text = read_whole(path / MOVED) or b""
    return int(text) if text.isdigit() else 0


def _other_topics(one: Path, two: Path, topic_id: UUID | None) -> Path | None:
    """Which of two belongs to another topic of the same name: it was away when that was deleted and made again."""
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
    """The directory of each partition. `topic_ids` are those of the topics that there are.

    A move to another directory that was cut short after its last step but one leaves two, of which one is marked as
    moved: that one goes. Otherwise nobody can say which is right: the node does not start, as Kafka does not. While the
    disk of a directory does not work, one that is marked is nobody's home: the copy may be there, with more in it.
    """
    found: dict[TopicPartition, tuple[LogDirectory, Path]] = {}
    for directory in directories:
        for key, path in directory.partitions().items():
            if key not in found:
                found[key] = (directory, path)
                continue
            old_directory, old = found[key]
            stray = _other_topics(old, path, topic_ids.get(key[0]))
            if stray is not None:
                found[key] = (directory, path) if stray == old else found[key]
                (old_directory if stray == old else directory).forget(key)
                rename_stray(stray, STRAY)
                continue
            if (old / MOVED).exists():
                found[key] = (directory, path)
                path, directory = old, old_directory
            elif not (path / MOVED).exists():
                raise DirectoryRefused(
                    f"{old} and {path} are both partition {key[1]} of topic {key[0]}; "
                    "find out which is right (moldau log check), and take the other one away"
                )
            logger.warning("%s was moved to %s before the last stop: removing it", path, found[key][1])
            starts = found[key][0].log_starts
            starts[key] = max(starts.get(key, 0), directory.log_starts.get(key, 0), _marked_start(path))
            directory.forget(key)
            path.rename(deletion_path(path))
    if any(directory.offline for directory in directories):
        return {key: directory for key, (directory, path) in found.items() if not (path / MOVED).exists()}
    for _, path in found.values():
        unmark_moved(path)  # without a second directory the move did not get that far
    return {key: directory for key, (directory, _) in found.items()}


def interrupted_moves(directories: list[LogDirectory]) -> dict[TopicPartition, LogDirectory]:
    """Where partitions were on their way to; their unfinished copies are removed."""
    unfinished = {key: directory for directory in directories for key in directory.future_logs()}
    for directory in directories:
        remove(directory.future_logs().values())
    return unfinished
