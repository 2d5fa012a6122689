"""A broker with bugs: the name of a topic or group selects one of `BUGS`. Everything else is real.

Started as `python -m support.brokers.faulty` with the arguments of `moldau.testing.serve`.
"""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from moldau import compiled

if compiled.modules in sys.meta_path:
    sys.meta_path.remove(compiled.modules)  # compiled methods cannot be replaced

from moldau.broker.apis import list_offsets
from moldau.groups.offsets.packed import split_key
from moldau.groups.offsets.store import OffsetStore
from moldau.log.log import Log
from moldau.replication.appender import Appender
from moldau.replication.leader import NOT_ENOUGH_REPLICAS
from moldau.testing import serve

EVERY = 20  # one in this many calls goes wrong
LATE = 45  # a reader that starts when the partition has this many records is late
turns: Counter[str] = Counter()
forgotten: Counter[str] = Counter()  # number of records, by log


def due(name: str) -> bool:
    """Whether this call goes wrong."""
    turns[name] += 1
    return turns[name] % EVERY == 0


def wrong(owner: Any, method: str, bug: str, instead: Callable[..., Any]) -> None:
    """Replace a method: logs of the topic named like the bug call `instead(real, log, ...)`."""
    real = getattr(owner, method)

    def patched(log: Log, *arguments: Any, **named: Any) -> Any:
        if log.name.startswith(bug):
            return instead(real, log, *arguments, **named)
        return real(log, *arguments, **named)

    setattr(owner, method, patched)


def forget(real: Callable[..., int], log: Log, header: Any, batch: Any, *rest: Any) -> int:
    """Acknowledged, but not written; the next batch gets the offset after it."""
    if due("lost write"):
        forgotten[log.name] += header[6] + 1
        return log.end_offset
    log.end_offset += forgotten.pop(log.name, 0)
    return real(log, header, batch, *rest)


def overwrite(real: Callable[..., int], log: Log, header: Any, batch: Any, *rest: Any) -> int:
    """Acknowledged with an offset that the next batch gets too."""
    return log.end_offset if due("inconsistent offsets") else real(log, header, batch, *rest)


def repeat(real: Callable[..., int], log: Log, header: Any, batch: Any, *rest: Any) -> int:
    """Written twice."""
    if due("duplicate"):
        real(log, header, batch, *rest)
    return real(log, header, batch, *rest)


def skip(real: Callable[..., Any], log: Log, offset: int, most: int, upper: int, **named: Any) -> Any:
    """A late reader misses the beginning."""
    return real(log, 5 if offset == 0 and upper > LATE else offset, most, upper, **named)


def forget_commits(offsets: OffsetStore, key: bytes, *value: Any) -> str:
    """Three of four commits are acknowledged but not stored."""
    group, _ = split_key(key)
    turns[group] += 1
    return group if group.startswith("lost-commit") and turns[group] % 4 else real_apply(offsets, key, *value)


def end_too_early(partition: Any, view: Any) -> int:
    early: bool = partition.topic.startswith("stale-end")
    return int(real_end(partition, view)) - early


def refuse_what_is_written(appender: Appender, *arguments: Any) -> Any:
    """Written, but answered with an error."""
    outcome = real_produce(appender, *arguments)
    return (
        NOT_ENOUGH_REPLICAS
        if appender._partition.topic.startswith("refused-write") and due("refused write")
        else outcome
    )


real_apply, real_end, real_produce = OffsetStore.apply, list_offsets._end, Appender.produce
BUGS = {  # topic → the anomalies of which the checker must find at least one
    "lost-write": {"lost write"},
    "inconsistent-offsets": {"inconsistent offsets"},
    "duplicate": {"duplicate"},
    "skipped-poll": {"skipped poll", "lost write"},
    "stale-end": {"stale end"},
    "refused-write": {"aborted read"},
    "aborted-read": {"aborted read"},
    "precommitted-read": {"precommitted read"},
    "lost-commit": {"lost commit"},
}

if __name__ == "__main__":
    wrong(Log, "append", "lost-write", forget)
    wrong(Log, "append", "inconsistent-offsets", overwrite)
    wrong(Log, "append", "duplicate", repeat)
    wrong(Log, "locate", "skipped-poll", skip)
    wrong(Log, "aborted_in", "aborted-read", lambda *_, **__: [])
    wrong(Log, "last_stable_offset", "precommitted-read", lambda real, log, high: high)
    setattr(OffsetStore, "apply", forget_commits)  # noqa: B010 - mypy rightly refuses the assignment
    setattr(list_offsets, "_end", end_too_early)  # noqa: B010
    setattr(Appender, "produce", refuse_what_is_written)  # noqa: B010
    serve.main()
