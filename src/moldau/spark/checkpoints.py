"""Spark's checkpoints in local directories: the offsets of each batch as Spark logs them. Reads; writes nothing.

    offsets/N    before batch N: where it ends. Lines: the version, the batch's metadata, the offset of each source
    commits/N    after batch N. Without it the batch is repeated when the query starts again

An offset is one line of JSON, or `-` for a source without one.
"""

from dataclasses import dataclass
from pathlib import Path

VERSION = "v1"
NO_OFFSET = "-"
OFFSETS, COMMITS = "offsets", "commits"


class UnreadableCheckpoint(Exception):
    """The directory is not a checkpoint that this version understands: one sentence that names the file."""


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """One file of the log of offsets. `metadata` is Spark's, kept as it is."""

    number: int
    metadata: str
    offsets: tuple[str | None, ...]

    def text(self) -> str:
        """The content of the file."""
        return "\n".join((VERSION, self.metadata, *(NO_OFFSET if each is None else each for each in self.offsets)))


def logged_batches(checkpoint: Path) -> list[int]:
    """Numbers of the batches with offsets, ascending."""
    return _numbers(checkpoint / OFFSETS)


def committed_batches(checkpoint: Path) -> list[int]:
    """Numbers of the finished batches, ascending."""
    return _numbers(checkpoint / COMMITS)


def read_batch(checkpoint: Path, number: int) -> LoggedBatch:
    file = checkpoint / OFFSETS / str(number)
    try:
        lines = file.read_text().split("\n")
    except (OSError, UnicodeDecodeError) as failed:
        raise UnreadableCheckpoint(f"cannot read {file}: {failed}") from failed
    if lines[0] != VERSION:
        raise UnreadableCheckpoint(f"{file} has the version {lines[0][:20]!r}, not {VERSION}")
    if len(lines) < 3:
        raise UnreadableCheckpoint(f"{file} names no offsets")
    return LoggedBatch(number, lines[1], tuple(None if line == NO_OFFSET else line for line in lines[2:]))


def finished_offsets(checkpoint: Path) -> tuple[str | None, ...] | None:
    """Where the last finished batch ended, per source; None if there is none, or no checkpoint."""
    both = set(logged_batches(checkpoint)) & set(committed_batches(checkpoint))
    return read_batch(checkpoint, max(both)).offsets if both else None


def _numbers(directory: Path) -> list[int]:
    try:
        return sorted(int(each.name) for each in directory.iterdir() if each.name.isdecimal())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as failed:
        raise UnreadableCheckpoint(f"cannot read {directory}: {failed.strerror}") from failed
