"""Topics, start and end of a query, parsed from the text of its options.

Values only: `source/offset_reader.py` asks the brokers for the offset of a timestamp or of "latest".
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.base.settings import SettingError, shortened
from moldau.base.times import read_moment

LATEST = -1  # as in Spark's JSON
EARLIEST = -2
WORDS = {"earliest": EARLIEST, "latest": LATEST}
MAX_OFFSET = 2**63 - 1
MAX_PARTITION = 2**31 - 1
MAX_TOPIC_NAME = 249
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Subscribe:
    """`subscribe`: topics by name, with all their partitions."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """`subscribePattern`: topics with a match anywhere in the name, as in Spark's source; never internal topics."""

    pattern: str

    def matches(self, topic: str) -> bool:
        return re.search(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    """`assign`: single partitions."""

    partitions: tuple[TopicPartition, ...]


ConsumerStrategy = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True)
class GlobalOffset:
    """EARLIEST or LATEST in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset for each partition; EARLIEST and LATEST are resolved when the query starts."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """The first record at or after this timestamp (in ms), in every partition."""

    ms: int


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """The first record at or after a timestamp (in ms) per partition."""

    by_partition: Mapping[TopicPartition, int]


OffsetRangeLimit = GlobalOffset | SpecificOffsets | GlobalTimestamp | SpecificTimestamps


def read_topics(name: str, text: str) -> Subscribe | SettingError:
    """`subscribe`: names separated by commas."""
    topics = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not topics:
        return SettingError(name, f"{name} must name at least one topic, got '{shortened(text)}'")
    bad = next((topic for topic in topics if not is_topic_name(topic)), None)
    return Subscribe(topics) if bad is None else wrong_topic(name, bad)


def read_pattern(name: str, text: str) -> SubscribePattern | SettingError:
    """`subscribePattern`: a regular expression in Python's syntax, which is nearly Java's."""
    pattern = text.strip()
    if not pattern:
        return SettingError(name, f"{name} must be a regular expression, got nothing")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as wrong:
        return SettingError(name, f"{name} must be a regular expression, got '{shortened(pattern)}': {wrong}")
    return SubscribePattern(pattern)


def read_assigned(name: str, text: str) -> Assign | SettingError:
    """`assign`: JSON such as {"orders": [0, 1]}."""
    found: list[TopicPartition] = []
    document = _document(text)
    if isinstance(document, dict) and all(isinstance(row, list) for row in document.values()):
        for topic, row in document.items():
            if not is_topic_name(topic):
                return wrong_topic(name, topic)
            if not all(_is_whole(number, 0, MAX_PARTITION) for number in row):
                return _not_like(name, '{"orders":[0,1]}', text)
            found += [TopicPartition(topic, number) for number in row]
    elif isinstance(document, str):
        return SettingError(name, f"{name} {document}")
    else:
        return _not_like(name, '{"orders":[0,1]}', text)
    if not found:
        return SettingError(name, f"{name} must name at least one partition, got '{shortened(text)}'")
    return Assign(tuple(sorted(set(found))))


def read_offsets(name: str, text: str) -> OffsetRangeLimit | SettingError:
    """`startingOffsets`, `endingOffsets`: earliest, latest, or JSON such as {"orders": {"0": 23, "1": -1}}."""
    word = WORDS.get(text.strip().lower())
    if word is not None:
        return GlobalOffset(word)
    found = _by_partition(name, text, EARLIEST, 'earliest, latest, or like {"orders":{"0":23,"1":-1}}')
    return found if isinstance(found, SettingError) else SpecificOffsets(found)


def read_timestamps(name: str, text: str) -> OffsetRangeLimit | SettingError:
    """`startingOffsetsByTimestamp`, `endingOffsetsByTimestamp`: JSON, milliseconds since 1970 for each partition."""
    found = _by_partition(name, text, 0, 'milliseconds since 1970, like {"orders":{"0":1700000000000}}')
    return found if isinstance(found, SettingError) else SpecificTimestamps(found)


def read_timestamp(name: str, text: str) -> OffsetRangeLimit | SettingError:
    """`startingTimestamp`, `endingTimestamp`: an ISO 8601 time, an age such as `10m ago`, or milliseconds."""
    try:
        found = read_moment(text, time.time_ns() // 1_000_000)
    except ValueError:
        found = -1
    if 0 <= found <= MAX_OFFSET:
        return GlobalTimestamp(found)
    accepted = "an ISO 8601 time such as 2026-01-31T12:00:00Z, an age such as 10m ago, or milliseconds since 1970"
    return SettingError(name, f"{name} must be {accepted}, got '{shortened(text.strip())}'")


READERS: Mapping[str, Callable[[str, str], OffsetRangeLimit | SettingError]] = {
    "Timestamp": read_timestamp,
    "OffsetsByTimestamp": read_timestamps,
    "Offsets": read_offsets,
}  # suffixes of options that begin with "starting" or "ending", in Spark's order of precedence


def is_topic_name(name: str) -> bool:
    return bool(TOPIC_NAME.fullmatch(name)) and len(name) <= MAX_TOPIC_NAME and name not in (".", "..")


def wrong_topic(option: str, name: str) -> SettingError:
    allowed = f"up to {MAX_TOPIC_NAME} letters, digits, dots, underscores and hyphens"
    return SettingError(option, f"{option} must name topics of {allowed}, got '{shortened(name)}'")


def uncovered(option: str, limit: OffsetRangeLimit, partitions: Iterable[TopicPartition]) -> SettingError | None:
    """Offsets by partition must name exactly the partitions that are read, as in Spark."""
    if not isinstance(limit, SpecificOffsets | SpecificTimestamps):
        return None
    wanted = set(partitions)
    if missing := sorted(wanted - set(limit.by_partition)):
        return SettingError(option, f"{option} must name every partition that is read; it lacks {_listed(missing)}")
    if extra := sorted(set(limit.by_partition) - wanted):
        return SettingError(option, f"{option} names {_listed(extra)}, which the query does not read")
    return None


def backwards(start: OffsetRangeLimit, end: OffsetRangeLimit) -> str | None:
    """Error if the end is before the start."""
    if isinstance(start, GlobalTimestamp) and isinstance(end, GlobalTimestamp) and start.ms > end.ms:
        return f"the start ({start.ms}) is later than the end ({end.ms})"
    pairs = (start, end)
    if not all(isinstance(each, SpecificOffsets) for each in pairs) and not all(
        isinstance(each, SpecificTimestamps) for each in pairs
    ):
        return None
    assert isinstance(start, SpecificOffsets | SpecificTimestamps)
    assert isinstance(end, SpecificOffsets | SpecificTimestamps)
    if different := sorted(set(start.by_partition) ^ set(end.by_partition)):
        return f"start and end must name the same partitions; they differ in {_listed(different)}"
    for tp, first in start.by_partition.items():
        last = end.by_partition[tp]
        if first > last >= 0:
            return f"the start of {tp} ({first}) is after its end ({last})"
    return None


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return shortened(", ".join(map(str, partitions)))


def _by_partition(name: str, text: str, least: int, example: str) -> dict[TopicPartition, int] | SettingError:
    document = _document(text)
    if isinstance(document, str):
        return SettingError(name, f"{name} {document}")
    if not isinstance(document, dict) or not all(isinstance(row, dict) for row in document.values()):
        return _not_like(name, example, text)
    found: dict[TopicPartition, int] = {}
    for topic, row in document.items():
        if not is_topic_name(topic):
            return wrong_topic(name, topic)
        for key, number in row.items():
            is_partition = key.isascii() and key.isdigit() and len(key) <= 10 and int(key) <= MAX_PARTITION
            if not is_partition or not _is_whole(number, least, MAX_OFFSET):
                return _not_like(name, example, text)
            if TopicPartition(topic, int(key)) in found:
                return SettingError(name, f"{name} names partition {int(key)} of {topic} twice")
            found[TopicPartition(topic, int(key))] = number
    if not found:
        return SettingError(name, f"{name} must name at least one partition, got '{shortened(text)}'")
    return found


def _not_like(name: str, example: str, text: str) -> SettingError:
    return SettingError(name, f"{name} must be {example}, got '{shortened(text)}'")


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


class _Twice(ValueError):
    """A JSON object has a name twice."""


def _document(text: str) -> Any:
    """The JSON object; None if the text is none; a str with the error if a name occurs twice."""
    try:
        found = json.loads(text, object_pairs_hook=_without_twins)
    except _Twice as twice:
        return f"names {twice} twice"
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise _Twice(shortened(key))
        seen[key] = value
    return seen
