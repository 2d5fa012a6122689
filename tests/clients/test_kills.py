"""kill -9, again and again, under load: no acknowledged record is lost or there twice, and order is kept.

`make test` kills a few times, `make soak` 200 times. One topic keeps everything, one loses old segments by size, one is
compacted; all roll small segments all the time, so that a kill meets rolls, flushes, checkpoints and deletions.
"""

import os
import random
import time

from support.brokers.processes import StartBroker
from support.clients.raw import RawClient
from support.clients.steady import KEYS, stored, writing

KILLS = 200 if os.environ.get("MOLDAU_FULL") else 6
SETTINGS = {
    "log.retention.check.interval.ms": 300,
    "log.initial.task.delay.ms": 100,
    "log.flush.offset.checkpoint.interval.ms": 200,
    "log.segment.delete.delay.ms": 100,
    "log.cleaner.backoff.ms": 100,
}
SMALL = {"internal.segment.bytes": "20000"}
TOPICS = {
    "kept": SMALL,
    "aged": {**SMALL, "retention.bytes": "60000"},
    "compacted": {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
}
LONGEST_WAIT_S = 1.0  # until a cleaner process has started, now and then
MORE = 200  # records that are acknowledged in each place between two kills


def test_kills_under_load(start_broker: StartBroker) -> None:
    own = start_broker(**SETTINGS)
    with RawClient(own.bootstrap) as client:
        for topic, config in TOPICS.items():
            client.create_topic(topic, 1, config)
    dice = random.Random(KILLS)
    with writing(own.bootstrap, [(topic, 0) for topic in TOPICS]) as steady:
        for _ in range(KILLS):
            steady.wait_for_more(MORE)
            time.sleep(dice.random() * LONGEST_WAIT_S)  # not always at the same point of what the broker does
            own.kill()
            own.start()
        steady.wait_for_more(MORE)
    assert not steady.errors, steady.errors[:3]
    counts = {topic: steady.acknowledged[topic, 0] for topic in TOPICS}
    kept = stored(own.bootstrap, ("kept", 0))
    assert [(offset, number) for offset, _, number in kept] == [(each, each) for each in range(counts["kept"])]
    aged = stored(own.bootstrap, ("aged", 0))
    first = aged[0][0]
    assert first > 0, "retention removed something"
    assert [(offset, number) for offset, _, number in aged] == [(each, each) for each in range(first, counts["aged"])]
    compacted = stored(own.bootstrap, ("compacted", 0))
    assert len(compacted) < counts["compacted"], "compaction removed something"
    assert all(offset == number for offset, _, number in compacted)
    assert sorted(number for _, _, number in compacted) == [number for _, _, number in compacted]
    last = {key: number for _, key, number in compacted}
    end = counts["compacted"]
    assert last == {number % KEYS: number for number in range(max(end - KEYS, 0), end)}
    print(f"{KILLS} kills, {sum(counts.values())} records acknowledged, {len(compacted)} left after compaction")
