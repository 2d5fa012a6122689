"""The Python client's Consumer while members come, leave, die and freeze, and while its body is slow.

At least once: no record is lost. After a clean handover none comes twice.
"""

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from moldau.base.ids import TopicPartition
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.poll_loop import CHUNK
from moldau.client.consumer.rebalances import RebalanceListener
from moldau.client.errors import Fenced
from moldau.client.producer.producer import Producer
from support.at_once import at_once
from support.brokers.processes import CreateTopic, broker_environment
from support.clients import confluent
from support.eventually import PATIENCE_S, eventually
from support.groups.members import Feed, Group, Kind, Member, even, join_and_leave

CLASSIC = Kind("moldau")
COOPERATIVE = Kind("moldau", assignor="cooperative-sticky")
MODERN = Kind("moldau", "consumer", "uniform")
both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])

FULL = bool(os.environ.get("MOLDAU_FULL"))
ROUNDS = 60 if FULL else 3
SLOW_S = 330 if FULL else 4


# ── members that are processes ──────────────────────────────────────────────────────────────────────────────────────


def of_every_kind(new_group: Any, partitions: int, scenario: Callable[[Group, Kind], object], *kinds: Kind) -> None:
    """A group of each kind of member, all at once."""
    groups = {kind: new_group(partitions) for kind in kinds or (CLASSIC, COOPERATIVE, MODERN)}
    at_once({str(kind): partial(scenario, group, kind) for kind, group in groups.items()})


def test_members_join_and_leave(new_group: Any, feed: Feed) -> None:
    """Every change is a clean handover: what one has committed, the next does not read again."""
    of_every_kind(new_group, 6, lambda group, kind: join_and_leave(group, feed, kind, members=3))


def test_a_frozen_member_loses_its_partitions_and_comes_back(new_group: Any, feed: Feed) -> None:
    def scenario(group: Group, kind: Kind) -> None:
        one, other = group.join(kind), group.join(kind)
        group.settled(one, other)
        one.pause()
        sent = feed(group, 50)
        group.settled(other)
        group.wait_until_read(sent)
        changes = len(one.told("owns"))
        one.resume()
        eventually(
            lambda: len(one.told("owns")) > changes, "the frozen member learns that it was put out", group.report
        )
        assert even(group.settled(one, other)) == [2, 2]
        sent += feed(group, 50)
        group.wait_until_read(sent)
        group.check_one_owner()

    of_every_kind(new_group, 4, scenario, CLASSIC, MODERN)


def test_nothing_is_lost_under_load(new_group: Any, feed: Feed) -> None:
    """Records come while members join, leave, die and freeze: each is read, in order, by whoever has its partition."""
    rounds: list[Callable[[Member], None]] = [Member.kill, Member.leave, freeze]

    def scenario(group: Group, kind: Kind) -> None:
        sent: list[str] = []
        members = [group.join(kind, body_s=0.001), group.join(kind, body_s=0.001)]
        for number in range(ROUNDS):
            sent += feed(group, 100)
            members.append(group.join(kind, body_s=0.001))
            sent += feed(group, 100)
            eventually(lambda: sum(map(len, map(Member.read, group.members))) > 100, "records are read", group.report)
            rounds[number % len(rounds)](members.pop(0))
            sent += feed(group, 50)
        group.wait_until_read(sent)
        group.check_one_owner()
        for member in group.members:
            check_order(member)
        print(f"{kind}: {ROUNDS} members killed, leaving or frozen, {len(sent)} records")

    of_every_kind(new_group, 6, scenario)


def freeze(member: Member) -> None:
    """For longer than its session; it stays away."""
    member.pause()
    member.away.append(member.away[-1])


def check_order(member: Member) -> None:
    """Between two assignments a member reads a partition's records in the order of their offsets."""
    last: dict[tuple[str, int], int] = {}
    for event in list(member.events):
        if event["event"] == "owns":
            owned = {tuple(each) for each in event["partitions"]}
            last = {place: offset for place, offset in last.items() if place in owned}
        for topic, partition, offset, _ in event.get("records", ()) if event["event"] == "read" else ():
            assert offset == last.get((topic, partition), offset - 1) + 1
            last[topic, partition] = offset


# ── members in this process ─────────────────────────────────────────────────────────────────────────────────────────


class Changes(RebalanceListener):
    """What a member was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, set[TopicPartition]]] = []

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("assigned", set(partitions)))

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("revoked", set(partitions)))

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("lost", set(partitions)))

    def words(self) -> list[str]:
        return [word for word, partitions in self.told if partitions]


Take = Callable[[Any], None]
Way = Callable[[Consumer[Any, Any], Take], None]


def one_by_one(consumer: Consumer[Any, Any], take: Take) -> None:
    for message in consumer:
        take(message)


class Body(threading.Thread):
    """A loop over a consumer in a thread, in one of the ways to get messages; `act` is what it does with each."""

    def __init__(
        self, consumer: Consumer[Any, Any], act: Callable[[Any], object] = lambda message: None, way: Way = one_by_one
    ) -> None:
        super().__init__(daemon=True)
        self.consumer = consumer
        self.act = act
        self.way = way
        self.seen: list[Any] = []
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.way(self.consumer, self.take)
        except Exception as error:  # noqa: BLE001  # for the test
            self.failure = error

    def take(self, message: Any) -> None:
        self.seen.append(message)
        self.act(message)

    def values(self) -> list[int]:
        return [int(message.value) for message in list(self.seen)]

    def end(self) -> None:
        self.consumer.wakeup()
        self.join(PATIENCE_S)
        assert not self.is_alive()
        assert self.failure is None, self.failure


Join = Callable[..., Consumer[Any, str]]


@pytest.fixture
def join(bootstrap: str, topic: str, short_waits: dict[str, int]) -> Iterator[Join]:
    """Join a group of this test, with a short session; the members leave at the end."""
    joined: list[Consumer[Any, str]] = []

    def make(topics: str, protocol: str, **options: Any) -> Consumer[Any, str]:
        properties = {"heartbeat.interval.ms": 200, "session.timeout.ms": 2000} if protocol == "classic" else {}
        properties |= options.pop("properties", {})
        given = {"group": f"group-{topic}", "protocol": protocol, "value": str, "properties": properties, **options}
        consumer: Consumer[Any, str] = Consumer(bootstrap, topics, **given)
        joined.append(consumer)
        return consumer

    yield make
    for consumer in joined:
        consumer.close()


def fill(bootstrap: str, topic: str, values: Sequence[int], partitions: int = 1) -> None:
    confluent.write(bootstrap, topic, [{"value": str(each), "partition": each % partitions} for each in values])


def in_batches(consumer: Consumer[Any, Any], take: Take) -> None:
    for batch in consumer.batches(7, wait=0.1):
        for message in batch:
            take(message)


def in_handlers(consumer: Consumer[Any, Any], take: Take) -> None:
    consumer.run(take)


def into_a_topic(bootstrap: str, topic: str, partition: int) -> Way:
    def work(consumer: Consumer[Any, Any], take: Take) -> None:
        patient = {"transaction.timeout.ms": 900_000}  # what brokers allow
        with Producer(bootstrap, transactional_id=f"to-{topic}-{partition}", properties=patient) as producer:
            for batch in consumer.transactions(producer, 7, 0.1):
                for message in batch:
                    producer.send(topic, message.value, partition=partition)
                    take(message)

    return work


def into_a_database(file: Path) -> Way:
    def work(consumer: Consumer[Any, Any], take: Take) -> None:
        for batch in consumer.transactions(lambda: sqlite3.connect(file), 7, 0.1):
            for message in batch:
                take(message)

    return work


@pytest.mark.timeout(900)
def test_bodies_that_are_slower_than_the_poll_interval_keep_their_partitions(
    bootstrap: str, create_topic: CreateTopic, join: Join, tmp_path: Path
) -> None:
    """One message of each takes twice max.poll.interval.ms: the member keeps its partitions, and nothing comes twice.

    With MOLDAU_FULL=1 it takes more than the five minutes of Kafka's default.
    """
    topic, target = create_topic(partitions=2), create_topic(partitions=2)
    fill(bootstrap, topic, range(20), partitions=2)
    over, changes, bodies = threading.Event(), [], []
    limit = {} if FULL else {"max.poll.interval.ms": 2000}
    for index, protocol in enumerate(("classic", "consumer")):
        database = into_a_database(tmp_path / f"{protocol}.db")
        for way in (one_by_one, in_batches, in_handlers, into_a_topic(bootstrap, target, index), database):
            changes.append(Changes())
            given = {"group": f"{topic}-{len(changes)}", "listener": changes[-1], "concurrency": 2}
            consumer = join(topic, protocol, properties=limit, **given)
            bodies.append(Body(consumer, lambda message: over.wait(PATIENCE_S + SLOW_S), way))
    eventually(lambda: all(body.seen for body in bodies), "first messages are in hand", lambda: failures(bodies))
    assert not over.wait(SLOW_S)
    over.set()
    ends = {TopicPartition(topic, index): OffsetAndMetadata(10) for index in range(2)}
    for body in bodies:
        eventually(lambda b=body: b.consumer.committed(*ends) == ends, "all are done", lambda: failures(bodies))
    for body, told in zip(bodies, changes, strict=True):
        body.end()
        assert sorted(body.values()) == list(range(20))
        assert told.words() == ["assigned"]
    for copied in confluent.values_by_partition(bootstrap, target, 2):
        assert sorted(map(int, copied)) == list(range(20))


def failures(bodies: list[Body]) -> list[tuple[int, BaseException | None]]:
    return [(len(body.seen), body.failure) for body in bodies]


@both_protocols
def test_revocation_waits_for_what_is_in_hand(
    bootstrap: str, create_topic: CreateTopic, join: Join, protocol: str
) -> None:
    """Another member joins while a batch of both partitions is worked on: one partition moves when the batch is done.

    Meanwhile the body may commit, and ask for what only the poll thread knows.
    """
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, range(200), partitions=2)
    changes = Changes()
    first = join(topic, protocol, listener=changes)
    batches = first.batches(200, wait=PATIENCE_S)
    batch = next(batches)
    assert len(batch) == 200
    second = Body(join(topic, protocol))
    eventually(lambda: first.engine._handover.awaited, "a partition is being revoked")
    assert changes.words() == ["assigned"]
    first.commit({TopicPartition(topic, 0): 7})
    assert first.engine.group_metadata() is not None
    assert changes.words() == ["assigned"]
    rest = threading.Thread(target=lambda: list(batches))  # asks for more: the batch is done
    rest.start()
    eventually(second.consumer.assignment, "the partition moves")
    assert changes.words()[:2] == ["assigned", "revoked"]
    fill(bootstrap, topic, range(200, 240), partitions=2)
    eventually(lambda: all(second.values()) and len(second.seen) >= 20, "the other member reads on")
    first.wakeup()
    rest.join(PATIENCE_S)
    assert not rest.is_alive()
    second.end()
    assert second.values() == [value for value in range(200, 240) if value % 2 == second.values()[0] % 2]


@both_protocols
def test_revocation_does_not_wait_for_ever(
    bootstrap: str, create_topic: CreateTopic, join: Join, protocol: str
) -> None:
    """A body that never ends holds its partitions for max.poll.interval.ms at most. Its messages come again."""
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, range(20), partitions=2)
    stuck = join(topic, protocol, properties={"max.poll.interval.ms": 2000})
    batch = next(stuck.batches(20, wait=PATIENCE_S))
    other = Body(join(topic, protocol))
    eventually(lambda: len(other.seen) == 10, "another member gets one partition from its beginning")
    with pytest.raises(Fenced, match="not assigned"):
        stuck.commit([message for message in batch if message.topic_partition == other.seen[0].topic_partition])
    other.end()


@both_protocols
def test_a_message_that_was_left_holds_nobody_up(
    bootstrap: str, create_topic: CreateTopic, join: Join, protocol: str
) -> None:
    """After `break` nobody works on the message in hand: others get it at once, because it is not done."""
    topic = create_topic()
    fill(bootstrap, topic, range(10))
    first = join(topic, protocol)
    for message in first:
        if int(message.value) == 5:
            break
    others = [Body(join(topic, protocol)) for _ in range(2)]
    first.close()
    eventually(lambda: sum(len(other.seen) for other in others) >= 5, "others read on")
    for other in others:
        other.end()
    assert sorted(value for other in others for value in other.values()) == list(range(5, 10))


def test_a_listener_that_raises_is_heard(bootstrap: str, create_topic: CreateTopic, join: Join) -> None:
    topic = create_topic()
    fill(bootstrap, topic, range(3))

    class Broken(RebalanceListener):
        def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            raise RuntimeError("in the listener")

    consumer = join(topic, "classic", listener=Broken())
    with pytest.raises(RuntimeError, match="in the listener"):
        consumer.poll(PATIENCE_S)
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value == "0"


def test_commits_of_the_listener_do_not_cover_the_message_in_hand(
    bootstrap: str, create_topic: CreateTopic, join: Join
) -> None:
    """`commit()` in on_revoked commits what is done, and not what the body still works on."""
    topic = create_topic()
    fill(bootstrap, topic, range(10))
    part = TopicPartition(topic, 0)

    class Committing(RebalanceListener):
        def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            consumer.commit()

    consumer = join(topic, "classic", listener=Committing(), commit="manual")
    for message in consumer:
        if int(message.value) == 5:
            consumer.close()
            break
    again = join(topic, "classic")
    assert again.committed(part) == {part: OffsetAndMetadata(5)}


def test_offsets_of_a_provider(bootstrap: str, create_topic: CreateTopic, join: Join) -> None:
    """As transactions with a database use it: partitions start where the provider says."""
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, range(100), partitions=2)
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    asked: list[Any] = []
    consumer = join(topic, "consumer")
    consumer.engine.on_assignment(lambda partitions: asked.append(set(partitions)) or {one: 48, other: None})
    values = {int(message.value) for message in itertools.islice(consumer, 52)}
    assert values == {96, 98, *range(1, 100, 2)}
    assert asked == [{one, other}]


def test_a_provider_that_raises_stops_the_consumer(bootstrap: str, create_topic: CreateTopic, join: Join) -> None:
    topic = create_topic()
    fill(bootstrap, topic, range(3))

    def broken(partitions: Any) -> Any:
        raise RuntimeError("no database")

    consumer = join(topic, "classic")
    consumer.engine.on_assignment(broken)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no database"):
            consumer.poll(PATIENCE_S)


@both_protocols
def test_memory_is_bounded_while_the_body_never_returns(
    bootstrap: str, create_topic: CreateTopic, join: Join, protocol: str
) -> None:
    """The buffer fills, partitions are paused, the membership stays; then everything comes, in order."""
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, range(4_000), partitions=2)
    over = threading.Event()
    consumer = join(topic, protocol, buffer_messages=500, properties={"max.poll.interval.ms": 2000})
    body = Body(consumer, lambda message: over.wait(PATIENCE_S) and None)
    eventually(lambda: consumer.engine.loop.throttled, "partitions are paused")
    buffer = consumer.engine._handover.buffer
    assert not over.wait(1)
    assert 500 <= buffer.messages <= 500 + CHUNK
    assert len(consumer.assignment()) == 2
    over.set()
    eventually(lambda: len(body.seen) == 4_000, "all messages are read", lambda: len(body.seen))
    body.end()
    for partition in range(2):
        assert [value for value in body.values() if value % 2 == partition] == list(range(partition, 4_000, 2))


def test_memory_is_bounded_by_bytes(bootstrap: str, create_topic: CreateTopic, join: Join) -> None:
    topic = create_topic()
    confluent.write(bootstrap, topic, [b"x" * 100_000] * 200)
    consumer = join(topic, "classic", buffer_bytes=1_000_000)
    stream = iter(consumer)
    assert next(stream).offset == 0
    eventually(lambda: consumer.engine.loop.throttled, "partitions are paused")
    assert consumer.engine._handover.buffer.bytes < 8_000_000
    assert [next(stream).offset for _ in range(199)] == list(range(1, 200))


# ── signals ─────────────────────────────────────────────────────────────────────────────────────────────────────────

PROGRAM = """
    import signal, sys
    from moldau.client.consumer.consumer import Consumer

    consumer = Consumer(sys.argv[1], sys.argv[2], group=sys.argv[3], value=str, protocol=sys.argv[4])
"""
INTERRUPTED = """
    try:
        with consumer:
            for message in consumer:
                print(message.value, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
WOKEN = """
    signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
    with consumer:
        for message in consumer:
            print(message.value, flush=True)
    print("woken", flush=True)
"""
NOT_CLOSED = """
    for message in consumer:
        print(message.value, flush=True)
        if message.value == "9":
            sys.exit()
"""


@both_protocols
@pytest.mark.parametrize(
    ("program", "number", "last", "done"),
    [
        (INTERRUPTED, signal.SIGINT, "interrupted", {9, 10}),  # it may come before the next message is asked for
        (WOKEN, signal.SIGTERM, "woken", {10}),
        (NOT_CLOSED, None, "9", {9}),
    ],
    ids=["Ctrl-C", "SIGTERM with wakeup", "exit without close"],
)
def test_a_process_that_ends_leaves_its_group(
    bootstrap: str,
    create_topic: CreateTopic,
    topic: str,
    admin: AdminClient,
    program: str,
    number: signal.Signals | None,
    last: str,
    done: set[int],
    protocol: str,
) -> None:
    """At once, and what is done is committed: its session would last longer than the test."""
    name = create_topic()
    fill(bootstrap, name, range(10))
    text = textwrap.dedent(PROGRAM) + textwrap.dedent(program)
    group = f"group-{topic}"
    process = subprocess.Popen(
        [sys.executable, "-c", text, bootstrap, name, group, protocol],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=broker_environment(),
    )
    assert process.stdout is not None
    said = [process.stdout.readline().strip() for _ in range(10)]
    assert said == [str(each) for each in range(10)]
    if number is not None:
        process.send_signal(number)
    rest, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "")
    assert (said + rest.split())[-1] == last
    eventually(lambda: not admin.describe_consumer_groups([group])[group].result(30).members, "the group is empty")
    part = TopicPartition(name, 0)
    with Consumer(bootstrap, name, group=group, protocol=protocol) as consumer:  # type: ignore[arg-type]
        committed = consumer.committed(part)[part]
    assert committed is not None
    assert committed.offset in done
