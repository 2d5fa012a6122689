"""The Python client's three ways to lose nothing, while leaders and coordinators of three brokers are killed.

A producer sends numbers all the time. One consumer reads them at least once, one copies them in Kafka transactions, one
writes them into a database with their offsets. All live through every kill. `make test` has two kills, `make soak` has
a hundred.
"""

import itertools
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import NewTopic

from moldau.broker.coordinators.partitioning import partition_of
from moldau.client.consumer.consumer import Consumer
from moldau.client.producer.producer import Producer
from moldau.testing import Cluster
from support.clients import confluent
from support.clients.running import AnyMessage, committed, running
from support.eventually import eventually
from support.groups.members import Group, Kind, Member
from support.transactions.lives import PARTITIONS, Output, copies, seed, sqlite_rows, workers

FULL = bool(os.environ.get("MOLDAU_FULL"))
KILLS = 50 if FULL else 2
SHARDS = 5  # of either internal topic, in a cluster of a test
PAUSE_S = 0.004  # between two records
BATCH = 20  # small: there are many transactions
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
# The protocol of the consumer that reads at least once, and that of the two others.
MIXES = [("consumer", "classic"), ("classic", "consumer")] if FULL else [("consumer", "classic")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"min_insync_replicas": 2, "group_initial_rebalance_delay_ms": 0, "zookeeper_session_timeout_ms": 18_000}
    with Cluster(brokers=3, **settings) as made:
        yield made


@pytest.fixture(autouse=True)
def whole(cluster: Cluster) -> Iterator[None]:
    """What a test killed runs again afterwards."""
    yield
    for broker in cluster.broker_ids:
        cluster.start(broker)


class Feeder:
    """Sends 0, 1, 2… to the partitions of a topic in turn, until the test has seen enough."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self.topic = topic
        self.enough = threading.Event()
        self.failure: BaseException | None = None
        self.producer: Producer[Any, Any] = Producer(bootstrap, properties={"reconnect.backoff.max.ms": 200})
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self.producer:
                while not self.enough.wait(PAUSE_S):
                    self.producer.send(self.topic, str(self.sent), partition=self.sent % PARTITIONS)
                    self.sent += 1
        except BaseException as error:  # noqa: BLE001  # raised by `end`
            self.failure = error

    def end(self) -> int:
        """Wait until all is acknowledged; return how many records there are."""
        self.enough.set()
        self.thread.join()
        if self.failure is not None:
            raise self.failure
        return self.sent


@dataclass(frozen=True)
class Promise:
    """A consumer at work: how far it is, and what it says if it is stuck."""

    name: str
    group: str
    member: Member
    count: Callable[[], int]
    more: Callable[[], str] = str

    def told(self) -> str:
        return f"{self.count()} records; {self.more()}; {self.member.last_words()}"


def create(cluster: Cluster) -> str:
    """A topic with a partition on each broker as leader."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    layout = [[(index + each) % 3 + 1 for each in range(3)] for index in range(PARTITIONS)]
    admin = confluent.admin(cluster.bootstrap_servers)
    admin.create_topics([NewTopic(name, PARTITIONS, replica_assignment=layout)])[name].result(30)
    wait_for_replicas(cluster, name)
    return name


def wait_for_replicas(cluster: Cluster, *topics: str) -> None:
    for topic in topics:
        for index in range(SHARDS if topic in (GROUPS, TRANSACTIONS) else PARTITIONS):
            cluster.wait_for(lambda t=topic, i=index: len(cluster.in_sync(t, i)) == 3, f"that {topic} is replicated")


@contextmanager
def follower(bootstrap: str, topic: str) -> Iterator[list[str]]:
    """The values of a topic, as a consumer without a group sees them; it lives through the kills too."""
    seen: list[str] = []

    def take(message: AnyMessage) -> None:
        seen.append(message.value)

    with running(Consumer(bootstrap, topic, value=str, properties={"reconnect.backoff.max.ms": 200}), take):
        yield seen


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mix", MIXES, ids=" and ".join)
def test_leaders_and_coordinators_are_killed(cluster: Cluster, tmp_path: Path, mix: tuple[str, str]) -> None:
    plain, transactional = mix
    servers, name = cluster.bootstrap_servers, uuid.uuid4().hex[:8]
    source, target = create(cluster), create(cluster)
    rows, copied = sqlite_rows(tmp_path / "output.db"), copies(servers, target, f"txn-{name}")
    reading = Group(servers, f"read-{name}", {source: PARTITIONS})
    common = {"bootstrap": servers, "source": source, "protocol": transactional, "last_n": BATCH}
    with closing(reading), workers(**common) as start, follower(servers, target) as seen:
        member = reading.join(Kind("moldau", plain), session_ms=10_000)
        storing = start(name="storing", group=f"store-{name}", **rows.settings)
        copying = start(name="copying", group=f"copy-{name}", **copied.settings)
        promises = [
            Promise("at least once", reading.name, member, lambda: len(set(member.read()))),
            Promise("exactly once, SQLite", f"store-{name}", storing, rows.count),
            Promise(
                "exactly once, Kafka", f"copy-{name}", copying, lambda: len(set(seen)), lambda: ends(servers, target)
            ),
        ]
        feeder = Feeder(servers, source)
        try:
            wait_for_all(promises, 100)
            kill_again_and_again(cluster, source, target, f"txn-{name}", promises, feeder)
        finally:
            feeder.enough.set()
        count = feeder.end()
        wait_for_all(promises, count)
        for worker in (member, storing, copying):
            worker.leave()
    check(servers, source, count, reading, [rows, copied])
    assert sorted(map(int, seen)) == [*range(count)]
    print(f"{mix}: {KILLS} kills, {count} records, {len(member.read()) - count} of them read again at least once")


def kill_again_and_again(
    cluster: Cluster, source: str, target: str, transactional_id: str, promises: list[Promise], feeder: Feeder
) -> None:
    """In turn: a leader of the source, of the target, a group's coordinator, the transaction's; see that all go on."""
    chosen = seed()
    dice = random.Random(chosen)
    victims: list[tuple[str, Callable[[], int]]] = [
        ("transaction coordinator", lambda: cluster.leader_of(TRANSACTIONS, partition_of(transactional_id, SHARDS))),
        ("leader of the source", lambda: cluster.leader_of(source, dice.randrange(PARTITIONS))),
        *((f"coordinator: {each.name}", coordinator_of(cluster, each.group)) for each in promises[::-1]),
        ("leader of the target", lambda: cluster.leader_of(target, dice.randrange(PARTITIONS))),
    ]
    for number, (who, broker_of) in enumerate(itertools.islice(itertools.cycle(victims), KILLS)):
        wait_for_replicas(cluster, source, target, GROUPS, TRANSACTIONS)
        victim = broker_of()
        cluster.kill(victim)
        wait_for_all(promises, feeder.sent + 1, f"seed {chosen}, kill {number}, {who} {victim}: ")
        cluster.start(victim)
    wait_for_replicas(cluster, source, target, GROUPS, TRANSACTIONS)


def coordinator_of(cluster: Cluster, group: str) -> Callable[[], int]:
    return lambda: cluster.leader_of(GROUPS, partition_of(group, SHARDS))


def ends(servers: str, topic: str) -> str:
    """The last stable offset and the high watermark of each partition: a transaction that stays open parts them."""
    admin = confluent.admin(servers)
    levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    found = [[confluent.end_offset(admin, topic, level, index) for level in levels] for index in range(PARTITIONS)]
    return f"stable and end offsets of the target: {found}"


def wait_for_all(promises: list[Promise], count: int, after: str = "") -> None:
    for promise in promises:
        eventually(lambda p=promise: p.count() >= count, f"{after}{promise.name} gets to {count}", promise.told, 120)


def check(servers: str, source: str, count: int, reading: Group, outputs: list[Output]) -> None:
    """Nothing was lost: by the producer, at least once, exactly once. Nothing is there twice."""
    sent = confluent.values_by_partition(servers, source, PARTITIONS)
    assert sent == [[str(number) for number in range(index, count, PARTITIONS)] for index in range(PARTITIONS)]
    assert {int(value) for value in reading.read_by_all()} == {*range(count)}
    with Consumer(servers, group=reading.name) as consumer:
        assert committed(consumer, source, PARTITIONS) == [*map(len, sent)]
    for output in outputs:
        output.check(count)
