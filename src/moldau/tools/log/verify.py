"""Checks of the log directories of a stopped broker: damage, and how its next start would repair it. Read-only.

Like `log_files` a second opinion: it shares no code with the log that wrote the files, and does as recovery does by its
description, not by its functions.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from moldau.tools.log.files import (
    AbortedTransaction,
    Batch,
    CorruptFile,
    OffsetEntry,
    PartitionOffset,
    TimeEntry,
    WrongChecksum,
    ZeroTail,
    base_offset_of,
    end_by_headers,
    read_file,
    read_records,
)
from moldau.wire.batch import CONTROL, TRANSACTIONAL

PARTITION = re.compile(r"(?P<topic>.+)-(?P<number>0|[1-9][0-9]{0,9})")
ASIDE = re.compile(r".+\.[0-9a-f]+-(?P<why>delete|future|stray)")
METADATA_LOG = "__cluster_metadata-0"
MOVED = "moved"  # in a partition's directory: a complete copy of it is in another one
CLEAN = ".kafka_cleanshutdown"
META, LOCK = "meta.properties", ".lock"
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint")
SEGMENT, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
LEFTOVERS = {
    ".deleted": "it is removed",
    ".tmp": "it is removed",
    ".cleaned": "it is removed: the compaction was not finished",
    ".swap": "it takes the place of the segments that it was made from",
}
ASIDE_WORDS = {
    "delete": "a deleted partition; it is removed",
    "future": "a copy on its way to this directory; it is made again",
    "stray": "put aside, it belongs to no topic; nothing touches it",
}


class Finding(NamedTuple):
    path: Path
    problem: str
    remedy: str  # how the next start repairs it
    wrong: bool = True  # otherwise it is only information


@dataclass(slots=True)
class Tally:
    logs: int = 0
    segments: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, path: Path, problem: str, remedy: str, *, wrong: bool = True) -> None:
        self.findings.append(Finding(path, problem, remedy, wrong))


class CannotCheck(Exception):
    """A broker has the directory open, or it is no log directory."""


def verify(directories: Iterable[Path]) -> Tally:
    """Raise OSError if a directory cannot be read, and CannotCheck."""
    tally = Tally()
    claimed: dict[tuple[str, str], Path] = {}
    for directory in directories:
        _refuse_if_locked(directory)
        _refuse_if_other(directory)
        clean = (directory / CLEAN).exists()
        if not clean:
            tally.add(directory, "no clean stop", "logs are checked from their recovery points on", wrong=False)
        node_id = _node_id(directory, tally)
        recovery_points, sound = _checkpoints(directory, tally)
        for path in sorted(each for each in directory.iterdir() if each.is_dir()):
            aside = ASIDE.fullmatch(path.name)
            if aside:
                tally.add(path, "a directory that is no partition", ASIDE_WORDS[aside["why"]], wrong=False)
            elif PARTITION.fullmatch(path.name) and path.name != METADATA_LOG:
                first = claimed.setdefault((node_id, path.name), path)
                if first is not path:
                    _claimed_twice(first, path, tally)
                _Log(path, clean and sound, recovery_points.get(path.name, 0), tally).verify()
    return tally


def _claimed_twice(first: Path, second: Path, tally: Tally) -> None:
    moved = next((path for path in (first, second) if (path / MOVED).exists()), None)
    if moved is None:
        tally.add(second, f"{first} is the same partition", "the broker does not start")
    else:
        tally.add(moved, "moved to another directory", "it is removed: the copy is complete", wrong=False)


def _refuse_if_locked(directory: Path) -> None:
    import fcntl  # here: Windows has none, and no broker either

    lock = directory / LOCK
    if not lock.exists():
        return
    fd = os.open(lock, os.O_RDONLY)
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        raise CannotCheck(f"a broker uses {directory}; stop it first") from None
    finally:
        os.close(fd)


def _refuse_if_other(directory: Path) -> None:
    """Refuse a directory in which no log would be found, since "nothing wrong" would be a lie."""
    paths = list(directory.iterdir())
    if any(path.name in (META, LOCK) or (path.is_dir() and PARTITION.fullmatch(path.name)) for path in paths):
        return
    if any(path.suffix == SEGMENT for path in paths):
        raise CannotCheck(f"{directory} is the directory of one partition; name its log directory: {directory.parent}")
    raise CannotCheck(f"{directory} is no log directory: it has neither {META} nor partitions")


def _node_id(directory: Path, tally: Tally) -> str:
    """The broker that owns a directory: several may have a partition, each of them once."""
    path = directory / META
    if not path.exists():
        if not (directory / LOCK).exists():
            problem = f"neither {META} nor {LOCK}: is it a directory of a broker?"
            tally.add(directory, problem, "a broker takes it for its own", wrong=False)
        return ""
    found = re.search(r"^node\.id=(.*)$", path.read_text("utf-8", "replace"), re.MULTILINE)
    return found[1].strip() if found else ""


def _checkpoints(directory: Path, tally: Tally) -> tuple[dict[str, int], bool]:
    """Recovery points by the partition's name, and whether all checkpoints are valid."""
    points: dict[str, int] = {}
    sound = True
    for name in CHECKPOINTS:
        path = directory / name
        if not path.exists() or not path.stat().st_size:
            continue
        try:
            entries = [entry for entry in read_file(path) if isinstance(entry, PartitionOffset)]
        except CorruptFile as fault:
            sound = False
            tally.add(path, str(fault), "it counts as missing, and every log is checked from its beginning")
        else:
            if name == CHECKPOINTS[0]:
                points = {f"{entry.topic}-{entry.partition}": entry.offset for entry in entries}
    return points, sound


class _Log:
    """One partition's directory."""

    def __init__(self, path: Path, clean: bool, recovery_point: int, tally: Tally) -> None:
        self.path = path
        self.clean = clean
        self.recovery_point = recovery_point
        self.tally = tally
        self.end = 0
        self.open: dict[int, int] = {}  # transactions: first offset by producer id
        self.cut = False  # from here on recovery removes segments

    def verify(self) -> None:
        self.tally.logs += 1
        files = {each.name: each for each in self.path.iterdir() if each.is_file()}
        for name, path in sorted(files.items()):
            for suffix, remedy in LEFTOVERS.items():
                if name.endswith(suffix):
                    self.tally.add(path, "left over", remedy, wrong=False)
        self._verify_small_files(files)
        segments = sorted(path for name, path in files.items() if name.endswith(SEGMENT))
        for place, path in enumerate(segments):
            following = base_offset_of(segments[place + 1]) if place + 1 < len(segments) else None
            self._verify_segment(path, following, files)
        stems = {path.stem for path in segments}
        for name, path in sorted(files.items()):
            if name.endswith((INDEX, TIME_INDEX, TXN_INDEX)) and path.stem not in stems:
                self.tally.add(path, "has no segment", "it is removed")
        if self.recovery_point > self.end:
            problem = f"the recovery point {self.recovery_point} lies behind its end at offset {self.end}"
            self.tally.add(self.path, problem, "all that is there is trusted; synced records are missing")

    def _verify_small_files(self, files: dict[str, Path]) -> None:
        for name, remedy in (
            ("leader-epoch-checkpoint", "the epochs are read from the batches again"),
            *((name, "an older one is used, and more of the log read") for name in files if name.endswith(SNAPSHOT)),
        ):
            path = files.get(name)
            if path is not None and path.stat().st_size:
                self._read(path, remedy)
        metadata = files.get("partition.metadata")
        text = metadata.read_text("utf-8", "replace") if metadata else ""
        if not re.fullmatch(r"version: 0\ntopic_id: [A-Za-z0-9_-]{22}\n?", text):
            problem = "it names no topic id" if metadata else "partition.metadata is missing"
            self.tally.add(metadata or self.path, problem, "the id is taken from the broker's metadata")

    def _read(self, path: Path, remedy: str) -> None:
        try:
            for _ in read_file(path):
                pass
        except CorruptFile as fault:
            self.tally.add(path, str(fault), remedy)

    def _verify_segment(self, path: Path, following: int | None, files: dict[str, Path]) -> None:
        base = base_offset_of(path) or 0
        self.tally.segments += 1
        self.tally.bytes += path.stat().st_size
        if self.cut:
            self.tally.add(path, "lies behind a damaged segment", "it is removed")
            return
        self.end = max(self.end, base)
        latest = -1
        aborted: set[tuple[int, int]] = set()
        try:
            for entry in read_file(path):
                if isinstance(entry, ZeroTail):
                    zeros = f"{entry.size} zeros from position {entry.zeros_from} on"
                    self._damaged(path, CorruptFile(zeros, entry.zeros_from), following)
                elif isinstance(entry, Batch):
                    latest = max(latest, entry.header.max_timestamp)
                    aborted |= self._follow(entry)
                    self.end = entry.header.last_offset + 1
        except CorruptFile as fault:
            self._damaged(path, fault, following)
            return
        if not self._checked_again(path, following) and path.stat().st_size:
            self._verify_indexes(path, latest, aborted, files)

    def _damaged(self, path: Path, fault: CorruptFile, following: int | None) -> None:
        """As recovery decides: past the recovery point the log ends here, before it only headers are looked at."""
        end = self._trusted_end(path, fault, following)
        if end is None:
            self.cut = True
            lost = "" if self.end >= self.recovery_point else "; records before it were synced, and are lost"
            self.tally.add(path, str(fault), f"the log is cut at offset {self.end}{lost}")
        else:
            self.end = max(self.end, end)
            self.tally.add(path, str(fault), "nothing: the segment is trusted, and its damaged batches cannot be read")

    def _trusted_end(self, path: Path, fault: CorruptFile, following: int | None) -> int | None:
        """Where the segment ends for a start that does not read the damaged batch; None for one that does."""
        if self._checked_again(path, following):
            synced = isinstance(fault, WrongChecksum) and fault.last_offset < self.recovery_point
            return end_by_headers(path) if synced else None
        if following is not None:
            return following
        try:  # of the last segment after a clean stop it reads the headers behind the last entry of the index
            entries = [entry for entry in read_file(path.with_suffix(INDEX)) if isinstance(entry, OffsetEntry)]
        except (CorruptFile, FileNotFoundError):
            return None
        return end_by_headers(path, entries[-1].position if entries else 0)

    def _checked_again(self, path: Path, following: int | None) -> bool:
        """Whether the next start reads the segment before it trusts it. The snapshot at its end says it is finished."""
        if self.clean or following is None or following > self.recovery_point:
            return not self.clean
        return following == self.recovery_point and not path.with_name(f"{following:020d}.snapshot").exists()

    def _follow(self, batch: Batch) -> set[tuple[int, int]]:
        """Producer and offset, if the batch aborts a transaction that an index must name."""
        header = batch.header
        if header.attributes & CONTROL:
            began = self.open.pop(header.producer_id, None)
            marker = next((control for _, control in read_records(batch)), "") or ""
            if began is not None and marker.startswith("ABORT"):
                return {(header.producer_id, header.base_offset)}
        if header.attributes & TRANSACTIONAL:
            self.open.setdefault(header.producer_id, header.base_offset)
        return set()

    def _verify_indexes(
        self, segment: Path, latest: int, aborted: set[tuple[int, int]], files: dict[str, Path]
    ) -> None:
        rebuilt = "the indexes of the segment are made anew"
        for suffix in (INDEX, TIME_INDEX):
            path = files.get(segment.stem + suffix)
            if path is None:
                self.tally.add(segment.with_suffix(suffix), "missing", rebuilt)
                continue
            last = None
            try:
                for last in read_file(path):  # noqa: B007 - the last one counts
                    pass
            except CorruptFile as fault:
                self.tally.add(path, str(fault), rebuilt)
                continue
            if suffix == TIME_INDEX and latest >= 0 and not (isinstance(last, TimeEntry) and last.timestamp == latest):
                problem = f"its last entry is not the latest timestamp of the segment, {latest}"
                self.tally.add(path, problem, "nothing: retention may think that the segment is older than it is")
        self._verify_aborted(segment, aborted, files.get(segment.stem + TXN_INDEX))

    def _verify_aborted(self, segment: Path, expected: set[tuple[int, int]], path: Path | None) -> None:
        """It may name more: compaction may have removed the records of a transaction and not yet its marker."""
        try:
            entries = [entry for entry in (read_file(path) if path else ()) if isinstance(entry, AbortedTransaction)]
        except CorruptFile as fault:
            self.tally.add(path or segment, str(fault), "it is made anew when a reader needs it")
            return
        missing = expected - {(entry.producer_id, entry.last_offset) for entry in entries}
        if missing:
            problem = f"{len(missing)} of {len(expected)} aborted transactions are not named"
            remedy = "nothing: consumers with read_committed may see aborted records; remove .kafka_cleanshutdown"
            self.tally.add(segment.with_suffix(TXN_INDEX), problem, remedy)
