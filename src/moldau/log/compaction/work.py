"""The work for a cleaner process and its reports: values that travel as JSON between it and the broker."""

from dataclasses import asdict, dataclass
from typing import Any

from moldau.log.aborted import Aborted


@dataclass(frozen=True, slots=True)
class Work:
    """One log to clean. Segments before `upper` do not change, or the broker cancels the work.

    `segments` are the finished ones before `upper`, oldest first, as (base offset, bytes, has aborted transactions).
    """

    directory: str
    segments: list[tuple[int, int, bool]]
    first_dirty: int  # before it every key is unique: that part was compacted earlier
    upper: int  # the first uncleanable offset; a segment begins there
    now: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    key_memory: int  # bytes
    chunk: int  # bytes read and written at a time
    last_data: dict[int, int]  # producer id → last offset of its last batch, if before `upper`
    last_epochs: dict[int, int]  # producer id → epoch, of producers with a marker only
    aborted_later: list[tuple[int, int, int, int]]  # transactions that begin before `upper` and end after it

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Work":
        """Restore tuples and numeric keys, which JSON lacks."""
        values["segments"] = [tuple(each) for each in values["segments"]]
        values["aborted_later"] = [Aborted._make(each) for each in values["aborted_later"]]
        for name in ("last_data", "last_epochs"):
            values[name] = {int(key): value for key, value in values[name].items()}
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A group of segments is rewritten as one, whose `.cleaned` files are on disk."""

    bases: list[int]  # of the segments that it replaces; the first is also its own
    size: int
    aborts: bool  # it has aborted transactions


@dataclass(frozen=True, slots=True)
class Tally:
    """The end of a piece of work: the log is compacted before `end`."""

    end: int
    keys: int
    records_read: int
    records_kept: int
    bytes_read: int
    bytes_kept: int
    keyless: int  # records without a key, which are removed
