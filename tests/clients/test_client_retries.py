"""Retry topics and dead letters of Consumer.run on real brokers, with kills, rebalances and Ctrl-C in between."""

import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from moldau.client.consumer import letters
from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.retries import Backoff, Retry
from moldau.client.errors import ClientError, RecordTooLarge
from support.at_once import at_once
from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients import confluent
from support.clients.running import AnyMessage, committed, fill, place, running
from support.eventually import eventually
from support.groups.members import PROGRAMS, Member

SOON = Backoff(first=0.2, factor=1.0)
FULL = bool(os.environ.get("MOLDAU_FULL"))
KILLS = 40 if FULL else 3
GUESTS = 20 if FULL else 2

StartHandler = Callable[..., Member]


@pytest.fixture
def start_handler(broker: AnyBroker) -> Iterator[StartHandler]:
    """`start_handler(topic, odd=3)`: a process with a handler; see members/handler.py."""
    started: list[Member] = []

    def start(topic: str, **settings: Any) -> Member:
        named = {"name": f"handler-{len(started)}", "bootstrap": broker.bootstrap, "topic": topic, "group": topic}
        started.append(Member((sys.executable, str(PROGRAMS / "handler.py")), {**named, **settings}))
        return started[-1]

    yield start
    for member in started:
        member.stop_for_good()


def text(record: confluent.Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def test_a_message_is_tried_again_by_its_retry_topic_and_ends_in_the_dead_letters(
    broker: AnyBroker, create_topic: CreateTopic
) -> None:
    topic, again, dead = create_topic(partitions=2), create_topic(), create_topic()
    confluent.write(
        broker.bootstrap,
        topic,
        [{"value": str(number), "key": "k", "partition": 1, "headers": [("n", b"1")]} for number in range(5)],
    )
    seen: list[tuple[str, str, float]] = []

    def handle(message: AnyMessage) -> None:
        seen.append((message.topic, message.value, time.time()))
        if message.value == "1" and message.topic == topic:
            raise ConnectionError("for once")
        if message.value == "3":
            raise LookupError("for ever")

    retry = Retry(times=2, backoff=SOON, topic=again, dead=dead)
    consumer = Consumer(broker.bootstrap, topic, group=topic, value=str, retry=retry)
    with running(consumer, handle):
        eventually(lambda: len(confluent.read(broker.bootstrap, dead)) == 1, "a dead letter is written")
        eventually(lambda: committed(consumer, again) == [3], "the retry topic is committed")
        eventually(lambda: committed(consumer, topic, 2)[1] == 5, "the topic is committed")
    assert Counter((where, value) for where, value, _ in seen) == {
        **{(topic, str(number)): 1 for number in range(5)},
        (again, "1"): 1,
        (again, "3"): 2,
    }
    retried = confluent.read(broker.bootstrap, again)
    assert [(record.key, record.value) for record in retried] == [(b"k", b"1"), (b"k", b"3"), (b"k", b"3")]
    times = {value: when for where, value, when in seen if where == again}
    due = {(record.value or b"").decode(): int(text(record)["moldau.due"]) for record in retried}
    assert times["1"] * 1000 >= due["1"], "not before its time"
    assert times["3"] * 1000 >= due["3"]
    (letter,) = confluent.read(broker.bootstrap, dead)
    told = text(letter)
    assert (letter.key, letter.value, told["n"]) == (b"k", b"3", "1")
    assert "in handle" in told.pop("moldau.stack")
    (source,) = (record for record in confluent.read(broker.bootstrap, topic) if record.value == b"3")
    assert told == {
        "n": "1",
        "moldau.reason": "LookupError: for ever",
        "moldau.topic": topic,
        "moldau.partition": "1",
        "moldau.offset": "3",
        "moldau.timestamp": str(source.timestamp_ms),
        "moldau.attempt": "3",
    }


def test_retries_that_are_not_due_do_not_stop_the_others(broker: AnyBroker, create_topic: CreateTopic) -> None:
    """There are more of them than the consumer's buffer takes. A clock that is wrong by years delays them a bit."""
    topic, again = create_topic(), create_topic()
    headers = [("moldau.due", b"9999999999999"), ("moldau.attempt", b"1")]
    confluent.write(broker.bootstrap, again, [{"value": str(number), "headers": headers} for number in range(1000)])
    seen: Counter[tuple[str, int]] = Counter()

    def handle(message: AnyMessage) -> None:
        seen[message.topic, message.offset] += 1

    never = Retry(topic=again, backoff=Backoff(first=600, most=600))
    consumer = Consumer(broker.bootstrap, topic, group=topic, retry=never, buffer_messages=100)
    with running(consumer, handle):
        eventually(lambda: len(consumer.engine.in_hand()) >= 100, "the run has enough of them")
        fill(broker.bootstrap, topic, 500)
        eventually(lambda: committed(consumer, topic) == [500], "the topic is processed")
    assert seen == {(topic, offset): 1 for offset in range(500)}
    soon = Retry(topic=again, backoff=Backoff(first=0.01, most=0.01))
    consumer = Consumer(broker.bootstrap, topic, group=topic, retry=soon, buffer_messages=100)
    with running(consumer, handle):
        eventually(lambda: committed(consumer, again) == [1000], "the retry topic is processed")
    assert (len(seen), set(seen.values())) == (1500, {1})


def test_what_cannot_be_read_goes_straight_to_the_dead_letters(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic, again, dead = create_topic(), create_topic(), create_topic()
    confluent.write(broker.bootstrap, topic, [b"\0" * 8, b"no number", b"\0" * 7 + b"\1"])
    seen: list[int] = []
    retry = Retry(topic=again, dead=dead)
    consumer = Consumer(broker.bootstrap, topic, group=topic, value=int, retry=retry)
    with running(consumer, lambda message: seen.append(message.value)):
        eventually(lambda: committed(consumer, topic) == [3], "all are done")
    assert seen == [0, 1]
    assert confluent.read(broker.bootstrap, again) == []
    (letter,) = confluent.read(broker.bootstrap, dead)
    assert letter.value == b"no number"
    assert f"the value at offset 1 of {topic}-0 cannot be read" in text(letter)["moldau.reason"]
    assert text(letter)["moldau.attempt"] == "1"


def test_a_message_is_not_done_before_its_dead_letter_is_acknowledged(
    broker: AnyBroker, create_topic: CreateTopic
) -> None:
    topic, dead = create_topic(), create_topic(configs={"max.message.bytes": "100"})
    fill(broker.bootstrap, topic, 5)

    def handle(message: AnyMessage) -> None:
        if message.offset == 2:
            raise LookupError("for ever")

    retry = Retry(times=0, dead=dead)
    with Consumer(broker.bootstrap, topic, group=topic, retry=retry) as consumer:
        with pytest.raises(RecordTooLarge) as refused:
            consumer.run(handle)
        assert f"could not be written to {dead}; it is not done" in "".join(refused.value.__notes__)
        assert isinstance(refused.value.__cause__, LookupError)
        consumer.commit()
        assert committed(consumer, topic) == [2]


def test_a_run_whose_topics_are_missing_does_not_begin(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "MISSING_S", 0.2)  # for brokers that create topics, and this one does not
    own = start_broker(auto_create_topics_enable="false", group_initial_rebalance_delay_ms=0)
    consumer = Consumer(own.bootstrap, "orders", group="g", retry=Retry(dead="orders.dead"))
    with pytest.raises(ClientError, match="UNKNOWN_TOPIC") as missing:
        consumer.run(lambda message: None)
    assert "retry names the topic orders.dead" in "".join(missing.value.__notes__)


def test_a_run_waits_for_brokers_that_are_away() -> None:
    """Until it is stopped; it cannot know yet whether its topics are there."""
    consumer = Consumer("127.0.0.1:1", "orders", group="g", retry=Retry(dead="orders.dead"))
    with running(consumer, lambda message: None) as run:
        run.thread.join(1)
        assert run.thread.is_alive()


def test_retries_that_nobody_committed_are_read_wherever_others_start(
    broker: AnyBroker, create_topic: CreateTopic
) -> None:
    """With start="latest" a record of the retry topic would be lost if the consumer ended before it was due."""
    topic, again = create_topic(), create_topic()
    seen: list[str] = []
    begun = threading.Event()

    def fail(message: AnyMessage) -> None:
        begun.set()
        raise ConnectionError

    late = Retry(backoff=Backoff(first=600, most=600), topic=again)
    consumer = Consumer(broker.bootstrap, topic, group=topic, start="latest", value=str, retry=late)

    def arrived() -> bool:
        """At last, when the consumer has found the end of its partition."""
        fill(broker.bootstrap, topic, 1)
        return begun.wait(0.5)

    with running(consumer, fail):
        eventually(arrived, "a message is in hand")
        end = len(confluent.read(broker.bootstrap, topic))
        eventually(lambda: committed(consumer, topic) == [end], "it is done")
    failed = len(confluent.read(broker.bootstrap, again))
    assert failed >= 1
    assert committed(Consumer(broker.bootstrap, group=topic), again) == [0]
    now = Retry(backoff=Backoff(first=0, most=0), topic=again)
    consumer = Consumer(broker.bootstrap, topic, group=topic, start="latest", value=str, retry=now)
    with running(consumer, lambda message: seen.append(message.topic)):
        eventually(lambda: len(seen) >= failed, "they are tried again")
    assert seen == [again] * failed


def test_a_failing_message_in_place_waits_neither_for_the_end_nor_for_a_rebalance(
    broker: AnyBroker, create_topic: CreateTopic
) -> None:
    """Its back-off is long; a wakeup and another member get what has not begun again at once."""
    topic = create_topic(partitions=2)
    fill(broker.bootstrap, topic, 20, 20)
    failed, seen = threading.Event(), Counter[tuple[int, int]]()

    def fail(message: AnyMessage) -> None:
        failed.set()
        raise ConnectionError

    retry = Retry(backoff=Backoff(first=600, most=600))
    with running(Consumer(broker.bootstrap, topic, group=topic, retry=retry, concurrency=2), fail):
        assert failed.wait(60)

        def handle(message: AnyMessage) -> None:
            seen[place(message)] += 1

        with running(Consumer(broker.bootstrap, topic, group=topic), handle):
            eventually(lambda: len(seen) == 20, "the other member processes its partition")
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("order", ["partition", "key"] if FULL else ["key"])
def test_kills_lose_nothing(
    broker: AnyBroker, create_topic: CreateTopic, start_handler: StartHandler, short_waits: dict[str, int], order: str
) -> None:
    """Each record is processed or a dead letter, at least once, whenever the process is killed."""
    topic, again, dead = create_topic(partitions=3), create_topic(partitions=2), create_topic()
    chance = random.Random(11)
    each = 100 * (KILLS // 3)
    confluent.write(
        broker.bootstrap,
        topic,
        [
            {"value": str(3 * number + partition), "key": str(number % 20), "partition": partition}
            for partition in range(3)
            for number in range(each)
        ],
    )
    settings = {"retry": again, "dead": dead, "odd": 3, "bad": 7, "order": order, "times": 1}
    members: list[Member] = []

    def numbers(event: str) -> set[int]:
        return {told["number"] for member in members for told in member.told(event)}

    for _ in range(KILLS):
        members.append(start_handler(topic, **settings))
        enough = chance.randrange(5, 30)
        wait_for_events(members[-1], "begun", enough)
        members[-1].kill()
    members.append(start_handler(topic, **settings))
    bad = {number for number in range(3 * each) if number % 10 == 7}
    good = set(range(3 * each)) - bad
    eventually(lambda: numbers("processed") >= good, "all are processed", members[-1].last_words)
    eventually(lambda: dead_numbers(broker, dead) >= bad, "all others are dead letters", members[-1].last_words)
    members[-1].leave()
    assert (numbers("processed"), dead_numbers(broker, dead)) == (good, bad)


def wait_for_events(member: Member, event: str, count: int) -> None:
    eventually(lambda: len(member.told(event)) >= count, f"{count} times {event}", member.last_words)


def dead_numbers(broker: AnyBroker, dead: str) -> set[int]:
    return set(map(int, confluent.read_values(broker.bootstrap, dead)))


def test_members_come_and_go_and_keys_stay_in_order(
    broker: AnyBroker, create_topic: CreateTopic, start_handler: StartHandler, short_waits: dict[str, int]
) -> None:
    """No record is lost, and what is processed again after a rebalance does not change the order of its key."""
    topics = {protocol: create_topic(partitions=4) for protocol in ("classic", "consumer")}
    at_once({each: partial(come_and_go, broker, start_handler, topic, each) for each, topic in topics.items()})


def come_and_go(broker: AnyBroker, start_handler: StartHandler, topic: str, protocol: str) -> None:
    count = 300 * GUESTS
    confluent.write(
        broker.bootstrap, topic, [{"value": str(number), "key": str(number % 16)} for number in range(count)]
    )
    settings = {"order": "key", "odd": 3, "most_s": 0.02, "protocol": protocol}
    stays = start_handler(topic, **settings)
    stays.wait_for("processed")
    members = [stays]
    while lag_left(members, count) and len(members) <= GUESTS:
        members.append(start_handler(topic, **settings))
        wait_for_events(members[-1], "assigned", 1)
        members[-1].leave()
    eventually(lambda: not lag_left(members, count), "all are processed", stays.last_words)
    stays.leave()
    assert len(members) > 1
    first: dict[str, list[int]] = defaultdict(list)
    for told in processed(members):
        if told["number"] not in first[told["key"]]:
            first[told["key"]].append(told["number"])
    assert first == {str(key): list(range(key, count, 16)) for key in range(16)}
    assert stays.told("revoked"), "there was a rebalance"


def processed(members: list[Member]) -> list[dict[str, Any]]:
    """What members told, by time."""
    return sorted((told for member in members for told in member.told("processed")), key=lambda told: told["at"])


def lag_left(members: list[Member], count: int) -> int:
    return count - len({told["number"] for told in processed(members)})


@pytest.mark.parametrize("concurrency", [1, 3])
def test_ctrl_c_ends_a_run_after_the_messages_in_hand(
    broker: AnyBroker, create_topic: CreateTopic, start_handler: StartHandler, concurrency: int
) -> None:
    topic = create_topic(partitions=3)
    fill(broker.bootstrap, topic, 100, 100, 100)
    member = start_handler(topic, concurrency=concurrency, most_s=0.5)
    eventually(lambda: member.told("begun"), "a message is in hand", member.last_words)
    member.process.send_signal(signal.SIGINT)
    assert member.wait() == 0, member.last_words()
    assert member.told("interrupted")
    assert member.told("left")
    assert len(member.told("begun")) == len(member.told("processed"))
    with Consumer(broker.bootstrap, group=topic) as other:
        assert sum(committed(other, topic, 3)) == len(member.told("processed"))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_next_ctrl_c_ends_it_at_once(
    broker: AnyBroker, create_topic: CreateTopic, start_handler: StartHandler, concurrency: int
) -> None:
    topic = create_topic()
    fill(broker.bootstrap, topic, 5)
    member = start_handler(topic, concurrency=concurrency, most_s=1e6)
    eventually(lambda: member.told("begun"), "a message is in hand", member.last_words)

    def ended() -> bool:
        if member.running():
            member.process.send_signal(signal.SIGINT)
        return not member.running()

    eventually(ended, "it ends", member.last_words)
    member.wait()
    assert not member.told("processed")
    with Consumer(broker.bootstrap, group=topic) as other:
        assert committed(other, topic) == [0]
