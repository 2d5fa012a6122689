"""Which records of a `moldau produce` a broker called invalid, and why: librdkafka tells neither reasons nor places."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster import open_cluster
from moldau.client.admin.refusals import RefusedRecord, why_refused
from moldau.client.admin.target import Target
from moldau.tools.common.formats import Draft
from moldau.wire.records import Record

NAMES: Final = ("INVALID_RECORD", "INVALID_DIFFERENT_RECORD")  # of errors: its own fault, or of another in its batch
ASKED_AT_MOST: Final = 1_000
SHOWN_AT_MOST: Final = 3
NO_TIMESTAMP: Final = -1


class Explained(NamedTuple):
    text: str
    written: int = 0  # records that the broker accepted this time


def explain(target: Target, topic: str, invalid: Sequence[tuple[int, Draft]]) -> Explained | None:
    """Why records were refused, by their numbers. None if asking could write a record to another partition."""
    with open_cluster(target) as cluster:
        partitions = len(cluster.partitions(topic))
        _, first = invalid[0]
        place = _place(first, partitions)
        asked = [(number, draft) for number, draft in invalid if _place(draft, partitions) == place]
        if place is None:
            return None
        refused = [RefusedRecord(number, TopicPartition(topic, place), _record(draft)) for number, draft in asked]
        reasons = why_refused(cluster, refused)
    if not reasons:  # the topic's settings have changed meanwhile
        return Explained("", len(refused))
    shown = [f"record {number}: {reason.rstrip('.')}" for number, reason in sorted(reasons.items())[:SHOWN_AT_MOST]]
    more = f"; and {len(reasons) - SHOWN_AT_MOST} more" if len(reasons) > SHOWN_AT_MOST else ""
    return Explained("; ".join(shown) + more)


def _place(draft: Draft, partitions: int) -> int | None:
    """The partition of a record, if it is known or does not matter."""
    if draft.partition is not None:
        return draft.partition
    return 0 if partitions == 1 or draft.key is None else None


def _record(draft: Draft) -> Record:
    timestamp = NO_TIMESTAMP if draft.timestamp_ms is None else draft.timestamp_ms
    return Record(0, timestamp, draft.key, draft.value, draft.headers)
