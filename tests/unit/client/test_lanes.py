"""Lanes: order of messages by partition and by key, waits, bounds, and what is withdrawn. No threads, no broker."""

import random
import threading
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.client.consumer.lanes import OVERHEAD_BYTES, Job, Lanes, Order
from moldau.client.message import Message

MUCH = 1 << 30


def message(partition: int, offset: int, key: bytes | None = None, value: bytes = b"") -> Message[Any, Any]:
    return Message.of("t", partition, offset, key=key, value=value)


def add(lanes: Lanes, each: Message[Any, Any], due: float = 0.0) -> None:
    lanes.add(each, each.topic_partition, due)


def begin(lanes: Lanes, now: float = 0.0) -> Job | None:
    return lanes.begin(lambda: now)


def filled(order: Order, *places: tuple[int, bytes | None]) -> Lanes:
    """Lanes with a message for each partition and key, at offsets 0, 1, 2…"""
    lanes = Lanes(order, 100, MUCH)
    for offset, (partition, key) in enumerate(places):
        add(lanes, message(partition, offset, key))
    return lanes


def begun(lanes: Lanes, now: float = 0.0) -> list[Job]:
    """All jobs that may run at once."""
    jobs = []
    while (job := begin(lanes, now)) is not None:
        jobs.append(job)
    return jobs


def offsets(jobs: list[Job]) -> list[int]:
    return [job.message.offset for job in jobs]


def test_by_partition_one_message_of_each_runs_at_a_time() -> None:
    lanes = filled("partition", (0, b"a"), (0, b"b"), (1, b"a"), (1, b"c"))
    first = begun(lanes)
    assert offsets(first) == [0, 2]
    lanes.end(first[1])
    assert offsets(begun(lanes)) == [3]


def test_by_key_one_message_of_each_runs_at_a_time_whatever_its_partition() -> None:
    lanes = filled("key", (0, b"a"), (0, b"b"), (1, b"a"), (0, b"c"))
    first = begun(lanes)
    assert offsets(first) == [0, 1, 3]
    lanes.end(first[0])
    assert offsets(begun(lanes)) == [2]


def test_messages_without_a_key_wait_for_none() -> None:
    assert offsets(begun(filled("key", (0, None), (0, None), (0, b""), (0, b"")))) == [0, 1, 2]


def test_a_message_that_is_not_due_keeps_no_other_waiting() -> None:
    """It joins its lane when it is due: then those that run there are waited for."""
    lanes = Lanes("partition", 100, MUCH)
    add(lanes, message(0, 0), due=5.0)
    add(lanes, message(0, 1))
    add(lanes, message(0, 2), due=4.0)
    (first,) = begun(lanes, 1.0)
    assert (first.message.offset, lanes.next_due(), lanes.empty) == (1, 4.0, False)
    assert begun(lanes, 6.0) == []
    lanes.end(first)
    (second,) = begun(lanes, 6.0)
    assert (second.message.offset, lanes.next_due()) == (2, None)
    lanes.end(second)
    assert offsets(begun(lanes, 6.0)) == [0]


def test_a_failed_message_stays_first_in_its_lane() -> None:
    lanes = filled("key", (0, b"a"), (0, b"a"), (0, b"b"))
    a, b = begun(lanes)
    lanes.postpone(a, 3.0)
    lanes.end(b)
    assert begun(lanes, 2.9) == []
    assert begun(lanes, 3.0) == [a]
    lanes.end(a)
    assert offsets(begun(lanes, 3.0)) == [1]


def test_what_has_not_begun_is_withdrawn_with_its_wait() -> None:
    """By key a lane has messages of several partitions: the next one need not wait for one that is gone."""
    lanes = filled("key", (0, b"a"), (1, b"a"), (0, b"b"), (1, b"b"), (1, b"c"))
    a, b, c = begun(lanes)
    lanes.postpone(a, 100.0)
    lanes.postpone(c, 50.0)
    add(lanes, message(0, 5), due=7.0)
    add(lanes, message(1, 6), due=8.0)
    removed = lanes.withdraw({TopicPartition("t", 0)})
    assert [each.offset for each in removed] == [0, 5]
    assert (b.revoked, a.revoked) == (True, False)
    assert offsets(begun(lanes)) == [1]
    lanes.end(b)
    assert offsets(begun(lanes)) == [3]
    assert lanes.next_due() == 8.0
    assert offsets(begun(lanes, 49.9)) == [6]
    assert begun(lanes, 50.0) == [c]


def test_everything_is_withdrawn_at_the_end() -> None:
    lanes = filled("partition", (0, None), (0, None), (1, None))
    job = begin(lanes)
    assert job is not None
    assert {each.offset for each in lanes.withdraw()} == {1, 2}
    assert not lanes.empty
    lanes.end(job)
    assert lanes.empty
    assert lanes.bytes == 0


def test_a_partition_is_crowded_by_number_and_has_room_again_at_half() -> None:
    tp, lanes = TopicPartition("t", 0), Lanes("key", 4, MUCH)
    for offset in range(4):
        assert not lanes.crowded(tp)
        add(lanes, message(0, offset))
    assert lanes.crowded(tp)
    moves = lanes.moves(tp)
    jobs = begun(lanes)
    lanes.end(jobs[0])
    assert (lanes.crowded(tp), lanes.roomy(tp)) == (False, False)
    assert lanes.moves(tp) != moves
    lanes.end(jobs[1])
    assert lanes.roomy(tp)


def test_lanes_are_full_by_bytes() -> None:
    tp, lanes = TopicPartition("t", 0), Lanes("partition", 100, 80_000)
    add(lanes, message(0, 0, value=b"x" * (10_000 - OVERHEAD_BYTES)))
    assert (lanes.crowded(tp), lanes.full) == (True, False)
    add(lanes, message(1, 0, b"k", b"x" * 70_000))
    assert lanes.full
    for job in begun(lanes):
        lanes.end(job)
    assert (lanes.full, lanes.bytes, lanes.roomy(tp)) == (False, 0, True)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "begin", "begin", "end", "end", "postpone", "late", "withdraw", "pass"]),
        st.integers(0, 2),
        st.sampled_from([None, b"a", b"b", b"c"]),
    ),
    max_size=80,
)


@given(st.sampled_from(["partition", "key"]), STEPS)
def test_lanes_keep_order_and_lose_nothing(order: Order, steps: list[tuple[str, int, bytes | None]]) -> None:
    lanes = Lanes(order, 5, MUCH)
    now = 0.0
    running: list[Job] = []
    waiting: list[Message[Any, Any]] = []
    late: list[tuple[float, Message[Any, Any]]] = []

    def lane_of(each: Message[Any, Any]) -> object:
        return each.partition if order == "partition" else each.raw_key if each.raw_key is not None else each.offset

    for number, (step, partition, key) in enumerate(steps):
        if step == "add":
            waiting.append(message(partition, number, key))
            add(lanes, waiting[-1])
        elif step == "late":
            late.append((now + 5, message(partition, number, key)))
            add(lanes, late[-1][1], now + 5)
        elif step == "begin":
            waiting += [each for due, each in late if due <= now]
            late = [(due, each) for due, each in late if due > now]
            job = begin(lanes, now)
            if job is None:
                continue
            lane = lane_of(job.message)
            assert lane not in [lane_of(each.message) for each in running]
            first = next(each for each in waiting if lane_of(each) == lane)
            assert first is job.message, "its lane has an older message"
            waiting.remove(job.message)
            running.append(job)
        elif step == "end" and running:
            lanes.end(running.pop(partition % len(running)))
        elif step == "postpone" and running:
            job = running.pop(partition % len(running))
            lanes.postpone(job, now + 3)
            waiting.insert(0, job.message)
        elif step == "withdraw":
            removed = lanes.withdraw({TopicPartition("t", partition)})
            held_back = [*waiting, *(each for _, each in late)]
            assert Counter(map(id, removed)) == Counter(id(each) for each in held_back if each.partition == partition)
            waiting = [each for each in waiting if each.partition != partition]
            late = [(due, each) for due, each in late if each.partition != partition]
            assert all(job.revoked for job in running if job.message.partition == partition)
        elif step == "pass":
            now += 2
        everything = [*waiting, *(each for _, each in late), *(job.message for job in running)]
        held = Counter(each.partition for each in everything)
        for each in range(3):
            tp = TopicPartition("t", each)
            assert lanes.crowded(tp) == (held[each] >= 5)
            assert lanes.roomy(tp) == (held[each] <= 2)
        assert lanes.empty == (not held)
    for job in running:
        lanes.end(job)
    waiting += [each for _, each in late]
    while not lanes.empty:  # whatever happened, all the rest can run
        now = max(now, lanes.next_due() or now)
        for job in begun(lanes, now):
            waiting.remove(job.message)
            lanes.end(job)
    assert (waiting, lanes.bytes) == ([], 0)


@pytest.mark.parametrize("order", ["partition", "key"])
def test_order_is_kept_while_threads_take_turns(order: Order) -> None:
    """Eight threads: each lane's messages end in the order in which they came, with failures in between."""
    lanes, lock = Lanes(order, 100, MUCH), threading.Lock()
    chance = random.Random(7)
    sent = [message(chance.randrange(3), number, b"%d" % chance.randrange(5)) for number in range(2000)]
    for each in sent:
        add(lanes, each)
    seen: dict[object, list[int]] = defaultdict(list)

    def work() -> None:
        own = random.Random(threading.get_ident())
        while True:
            with lock:
                job = begin(lanes)
                if job is None and lanes.empty:
                    return
            if job is None:
                continue
            failed = own.random() < 0.2
            if not failed:
                name = job.message.partition if order == "partition" else job.message.raw_key
                seen[name].append(job.message.offset)
            with lock:
                lanes.postpone(job, 0.0) if failed else lanes.end(job)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected: dict[object, list[int]] = defaultdict(list)
    for each in sent:
        expected[each.partition if order == "partition" else each.raw_key].append(each.offset)
    assert seen == expected
