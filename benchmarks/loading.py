"""Time to load committed offsets: many commits of few keys, before and after compaction.

The commits are written into the logs of a stopped broker, as it would have written them itself. The time is from the
broker's start until an offset of the last group is answered.
"""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.base.coordination import Record as State
from moldau.broker.coordinators.partitioning import partition_of
from moldau.groups.records import OffsetCommitKey, OffsetCommitValue, encode
from moldau.log.checkpoints import read_topic_id
from moldau.log.log import Log
from moldau.log.settings import LogConfig
from moldau.testing import Broker
from moldau.wire.batch import read_header
from moldau.wire.pairs import encode_pairs

TOPIC = "__consumer_offsets"
GROUPS, SHARDS = 100, 50
AT_ONCE = 10  # partitions in one commit
SEGMENT_BYTES = 100 * 1024 * 1024
LIMIT_S = 600.0


class Loaded(NamedTuple):
    what: str
    mib: float
    seconds: float


def study(workdir: Path, commits: int, keys: int, say: Callable[[str], None]) -> Iterator[Loaded]:
    """`commits` offsets, of `keys` different partitions of groups."""
    directory = workdir / "data"
    broker = Broker(directory, log_cleaner_enable=False).start()
    _create(broker, keys // GROUPS)
    _ask(broker, "group-0")  # creates __consumer_offsets
    broker.stop()
    say(f"writing {commits:,} commits")
    _write(directory, commits, keys)
    yield _loaded("as written", broker, directory, keys)
    broker.stop()

    say("compacting")
    broker = Broker(directory, log_cleaner_min_cleanable_ratio=0.01, log_cleaner_backoff_ms=50).start()
    used = {partition_of(f"group-{number}", SHARDS) for number in range(GROUPS)}
    until = time.monotonic() + LIMIT_S
    while len(set(re.findall(r"compacted __consumer_offsets-(\d+)", broker.log_text()))) < len(used):
        if time.monotonic() > until:
            raise TimeoutError("the offsets were not compacted")
        time.sleep(0.1)
    broker.stop()
    yield _loaded("compacted", broker, directory, keys)
    broker.stop()


def _create(broker: Broker, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for created in admin.create_topics([NewTopic("topic", partitions)]).values():
        created.result()


def _write(directory: Path, commits: int, keys: int) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES)
    now = time.time_ns() // 1_000_000
    of_group = keys // GROUPS
    for shard in range(SHARDS):
        groups = [f"group-{number}" for number in range(GROUPS) if partition_of(f"group-{number}", SHARDS) == shard]
        name = f"{TOPIC}-{shard}"
        topic_id = read_topic_id(directory / name)
        if topic_id is None:
            raise RuntimeError(f"{name} was not created")
        log = Log.open(directory / name, name, config, clean=True, now=now, topic_id=topic_id)
        for offset in range(1, commits // keys + 1):
            for group in groups:
                for first in range(0, of_group, AT_ONCE):
                    batch = encode_pairs(
                        [_commit(group, index, offset, now) for index in range(first, first + AT_ONCE)], now
                    )
                    log.append(read_header(batch), memoryview(batch), 0, now)
        log.roll(now)
        log.close()


def _commit(group: str, index: int, offset: int, now: int) -> tuple[bytes, bytes | None]:
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=now)
    return encode(State(OffsetCommitKey(group=group, topic="topic", partition=index), value))


def _loaded(what: str, broker: Broker, directory: Path, keys: int) -> Loaded:
    size = sum(path.stat().st_size for path in directory.glob(f"{TOPIC}-*/*.log"))
    began = time.monotonic()
    broker.start()
    for number in range(GROUPS):
        if _ask(broker, f"group-{number}", keys // GROUPS - 1) < 0:
            raise RuntimeError(f"group-{number} has lost its offsets")
    return Loaded(what, size / 1024 / 1024, time.monotonic() - began)


def _ask(broker: Broker, group: str, index: int = 0) -> int:
    """A committed offset, waiting while its coordinator is loading."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    until = time.monotonic() + LIMIT_S
    try:
        while True:
            try:
                (found,) = consumer.committed([TopicPartition("topic", index)], timeout=10)
                return int(found.offset)
            except KafkaException:
                if time.monotonic() > until:
                    raise
    finally:
        consumer.close()
