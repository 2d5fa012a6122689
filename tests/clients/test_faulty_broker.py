"""Would the checker notice? Real clients on a real broker that has a bug for each topic: all are found, no others."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from chaos.access import Access
from chaos.checker import check
from chaos.history import Recorder
from chaos.workloads import produce
from chaos.workloads.base import Numbered, Setting, wait_until
from chaos.workloads.copy import Copy
from chaos.workloads.direct import Direct
from chaos.workloads.group import Member
from chaos.workloads.read import Ask, Follow, read_everything
from chaos.workloads.table import Cast
from support.brokers.changed import changed_broker
from support.brokers.faulty import BUGS
from support.clients import confluent

RECORDS = 200
COPIES = ("aborted-read", "precommitted-read")


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with changed_broker("faulty", tmp_path) as address:
        yield address


def test_every_bug_is_found_where_it_is(bootstrap: str) -> None:
    recorder = Recorder()
    cast = Cast(Access(bootstrap), recorder, seed=1, rate=300.0)
    for bug in BUGS:
        topic = cast.topic(f"{bug}-source" if bug in COPIES else bug)
        cast.producers.append(source(bug, topic))
        if bug in COPIES:
            target = cast.topic(bug)
            cast.followers += [Copy(f"copier-{bug}", topic, bug), Follow(f"reader-of-{bug}", target)]
            cast.groups[f"copier-{bug}"] = topic.topic
        elif bug == "lost-commit":
            cast.followers += [Member(f"member-{index}", topic, bug, "classic") for index in range(2)]
        else:
            cast.followers.append(Follow(f"reader-of-{bug}", topic))
    asker = Ask("asker", cast.topic("asked"), dict(cast.topics), {"lost-commit": "lost-commit"})
    cast.followers.append(asker)
    create(bootstrap, cast.topics)
    for each in cast.followers:
        each.start()
    wait_until(lambda: asker.acked > 0, "the asker begins")  # and so, about, does everybody else
    for each in cast.producers:
        each.start()
    for each in cast.clients:
        wait_until(lambda each=each: each.acked >= RECORDS or each.broken is not None, each.name, 30)
    cast.end()
    read_everything(Access(bootstrap), recorder, cast.topics)
    found = defaultdict(set)
    for anomaly in check(recorder.events):
        found[anomaly.place.rpartition("/")[0] or anomaly.place].add(anomaly.kind)
    assert found.keys() <= BUGS.keys()
    assert {bug for bug, kinds in BUGS.items() if not kinds & found[bug]} == set()


def source(bug: str, topic: Setting) -> Numbered:
    """What is refused for certain only a client can tell that makes no attempts of its own."""
    if bug == "refused-write":
        return Direct(f"producer-of-{bug}", topic)
    plain = produce.Produce(f"producer-of-{bug}", topic, {**produce.PLAIN, "batch.num.messages": 2})
    plain.once = True  # nobody is disturbed, so nobody tries again
    return plain


def create(bootstrap: str, topics: dict[str, int]) -> None:
    admin = confluent.admin(bootstrap, log_level=0)
    wanted = [NewTopic(name, partitions, 1) for name, partitions in topics.items()]
    for created in admin.create_topics(wanted).values():
        created.result(30)
