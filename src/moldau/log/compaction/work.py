"""The work for a cleaner process and its reports: values that travel as JSON between it and the broker."""

from dataclasses import asdict, dataclass
from typing import Any

from moldau.log.aborted import Aborted


@dataclass(frozen=True, slots=True)
class Work:
    """One log, as the broker saw it when it asked. Nothing below `upper` changes unless the broker gives the work up.

    `segments` are the finished ones before `upper`, oldest first, as (base offset, bytes, has aborted transactions).
    """

    directory: str
    segments: list[tuple[int, int, bool]]
    first_dirty: int  # what lies before was compacted earlier: there no key is twice
    upper: int  # the first offset that must stay as it is; a segment begins there
    now: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    key_memory: int  # bytes
    chunk: int  # bytes read and written at a time
    last_data: dict[int, int]  # producer id → last offset of its last batch, where that lies before `upper`
    last_epochs: dict[int, int]  # producer id → epoch, of producers with nothing but a marker
    aborted_later: list[tuple[int, int, int, int]]  # transactions that began before `upper` and ended behind it

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Work":
        """JSON knows neither tuples nor keys that are numbers."""
        values["segments"] = [tuple(each) for each in values["segments"]]
        values["aborted_later"] = [Aborted._make(each) for each in values["aborted_later"]]
        for name in ("last_data", "last_epochs"):
            values[name] = {int(key): value for key, value in values[name].items()}
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A group of segments was written as one: its files have the suffix `.cleaned` and are on disk."""

    bases: list[int]  # of the segments that it replaces; it begins where the first does
    size: int
    aborts: bool  # it has aborted transactions


@dataclass(frozen=True, slots=True)
class Tally:
    """All groups are written. Everything before `end` is compacted now."""

    end: int
    keys: int
    records_read: int
    records_kept: int
    bytes_read: int
    bytes_kept: int
    keyless: int  # records without a key, which compaction has no use for
