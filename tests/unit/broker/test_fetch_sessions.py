"""Fetch sessions (KIP-227). What is expected here was seen on Apache Kafka 4.3 too."""

from typing import Any, NamedTuple

import pytest

from moldau.base.errors import WireError
from moldau.broker.fetch_sessions import (
    EVICTABLE_AFTER_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    LAST_EPOCH,
    FetchContext,
    FetchSessionCache,
)
from moldau.wire.hot.fetch import FETCH_BY_ID, FetchBody, FetchPartition, FetchResult

NOW = 1_000_000
BY_NAME, BY_ID = FETCH_BY_ID - 1, FETCH_BY_ID


class Records(NamedTuple):
    """Stands for a slice of a file: a session looks only at whether there is something in it."""

    length: int = 100


def ask(epoch: int, *partitions: int, session: int = 0, topic: bytes = b"t", offset: int = 0, **more: Any) -> FetchBody:
    rows = [FetchPartition(index, -1, offset, -1, 1 << 20) for index in partitions]
    forgotten = [(topic, list(more["forget"]))] if "forget" in more else []
    return FetchBody(-1, 500, 1, 1 << 20, 0, session, epoch, [(topic, rows)] if rows else [], forgotten)


def result(index: int, high: int = 0, **changed: Any) -> FetchResult:
    made = FetchResult(index, 0, high, high, 0)
    for name, value in changed.items():
        setattr(made, name, value)
    return made


def answered(fetch: FetchContext, *results: FetchResult) -> list[int]:
    """The partitions that an answer would name, of those that were read."""
    topics = fetch.answer([(b"t", each) for each in results])
    return [each.partition for _, rows in topics for each in rows]


class Client:
    """One client and its session."""

    def __init__(self, sessions: FetchSessionCache, version: int = BY_NAME) -> None:
        self.sessions = sessions
        self.version = version
        self.id = 0
        self.epoch = INITIAL_EPOCH

    def fetch(self, *partitions: int, now: int = NOW, **more: Any) -> FetchContext:
        opened = self.sessions.open(ask(self.epoch, *partitions, session=self.id, **more), self.version, now)
        self.id = opened.session_id
        self.epoch += 1
        return opened


@pytest.fixture
def sessions() -> FetchSessionCache:
    return FetchSessionCache(1000)


@pytest.fixture
def client(sessions: FetchSessionCache) -> Client:
    return Client(sessions)


def indexes(fetch: FetchContext) -> list[int]:
    assert fetch.asked is not None
    return [row.partition for _, row in fetch.asked]


def test_a_full_fetch_makes_a_session_and_names_every_partition(client: Client) -> None:
    opened = client.fetch(0, 1, 2)
    assert opened.error is WireError.NONE
    assert opened.session_id > 0
    assert not opened.incremental
    assert indexes(opened) == [0, 1, 2]
    assert answered(opened, result(0), result(1), result(2, records=Records())) == [0, 1, 2]


def test_a_client_without_sessions_gets_none(sessions: FetchSessionCache) -> None:
    opened = sessions.open(ask(FINAL_EPOCH, 0, 1), BY_NAME, NOW)
    assert opened.session_id == 0
    assert indexes(opened) == [0, 1]
    assert answered(opened, result(0), result(1)) == [0, 1]
    assert len(sessions) == 0


def test_an_incremental_fetch_reads_all_and_tells_what_is_new(client: Client) -> None:
    answered(client.fetch(0, 1, 2), result(0), result(1), result(2))
    opened = client.fetch()
    assert opened.incremental
    assert indexes(opened) == [0, 1, 2]
    assert answered(opened, result(0), result(1), result(2)) == []
    opened = client.fetch()
    assert answered(opened, result(0), result(1, high=5, records=Records()), result(2)) == [1]


@pytest.mark.parametrize(
    "news",
    [
        {"high_watermark": 1},
        {"log_start": 1},
        {"records": Records()},
        {"error": WireError.OFFSET_OUT_OF_RANGE},
        {"diverging": (1, 2)},
    ],
)
def test_what_counts_as_new(client: Client, news: dict[str, Any]) -> None:
    answered(client.fetch(0), result(0))
    assert answered(client.fetch(), result(0, **news)) == [0]


def test_what_was_told_is_not_told_again_but_errors_are(client: Client) -> None:
    answered(client.fetch(0), result(0))
    assert answered(client.fetch(), result(0, high=3)) == [0]
    assert answered(client.fetch(), result(0, high=3)) == []
    error = result(0, error=WireError.NOT_LEADER_OR_FOLLOWER, high_watermark=-1, log_start=-1)
    assert answered(client.fetch(), error) == [0]
    assert answered(client.fetch(), error) == [0]
    assert answered(client.fetch(), result(0, high=3)) == [0]  # that the error is over is news
    assert answered(client.fetch(), result(0, high=3)) == []


def told(client: Client, *partitions: int, high: int, **more: Any) -> bool:
    """Whether the answer to a fetch that says so names partition 0, which has this high watermark."""
    offset = more.pop("offset", 0)
    return answered(client.fetch(*partitions, offset=offset), result(0, high, **more)) == [0]


def test_who_says_the_same_again_is_told_again(client: Client) -> None:
    """It has dropped what it was told: its partition had another leader epoch when the answer came."""
    assert told(client, 0, high=5)
    assert not told(client, high=5)
    assert told(client, 0, high=5)
    assert not told(client, high=5)


def test_who_got_on_is_told_again_what_it_was_told_behind_the_records(client: Client) -> None:
    """Two answers on their way: the second one does not fit to what the first one has led to."""
    assert told(client, 0, high=5)
    assert told(client, high=5, records=Records())
    assert told(client, high=8)
    assert told(client, 0, offset=8, high=8)
    assert told(client, high=8, records=Records())
    assert not told(client, 0, offset=9, high=8), "this came with the records"


def test_partitions_are_added_changed_and_forgotten(client: Client) -> None:
    client.fetch(0, 1)
    opened = client.fetch(1, 2, offset=7, forget=(0,))
    assert opened.asked is not None
    assert [(row.partition, row.offset) for _, row in opened.asked] == [(1, 7), (2, 7)]
    assert indexes(client.fetch()) == [1, 2]
    assert indexes(client.fetch(0)) == [1, 2, 0]
    assert indexes(client.fetch(forget=(5,))) == [1, 2, 0]  # was never there


def test_a_session_without_partitions_ends(client: Client) -> None:
    client.fetch(0)
    number = client.id
    opened = client.fetch(forget=(0,))
    assert (opened.error, opened.session_id, opened.asked) == (WireError.NONE, 0, [])
    client.id = number
    assert client.fetch(0).error is WireError.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_with_records_go_to_the_end(client: Client) -> None:
    """Those that got nothing for want of room come first next time."""
    answered(client.fetch(0, 1, 2), result(0), result(1), result(2))
    answered(client.fetch(), result(0, records=Records()), result(1, records=Records()), result(2))
    assert indexes(client.fetch()) == [2, 0, 1]


def test_errors_of_a_session(client: Client, sessions: FetchSessionCache) -> None:
    assert sessions.open(ask(1, 0, session=99), BY_NAME, NOW).error is WireError.FETCH_SESSION_ID_NOT_FOUND
    client.fetch(0)
    for epoch in (2, LAST_EPOCH, -5):
        opened = sessions.open(ask(epoch, session=client.id), BY_NAME, NOW)
        assert (opened.error, opened.session_id) == (WireError.INVALID_FETCH_SESSION_EPOCH, 0)
    mixed = sessions.open(ask(1, session=client.id), BY_ID, NOW)
    assert (mixed.error, mixed.session_id) == (WireError.FETCH_SESSION_TOPIC_ID_ERROR, 0)
    assert client.fetch().error is WireError.NONE  # none of that has harmed it
    by_id = Client(sessions, BY_ID)
    by_id.fetch(0, topic=bytes(16))
    assert sessions.open(ask(1, session=by_id.id), BY_NAME, NOW).error is WireError.FETCH_SESSION_TOPIC_ID_ERROR


def test_an_epoch_is_good_once(client: Client, sessions: FetchSessionCache) -> None:
    client.fetch(0)
    assert client.fetch().error is WireError.NONE
    assert sessions.open(ask(1, session=client.id), BY_NAME, NOW).error is WireError.INVALID_FETCH_SESSION_EPOCH


def test_epochs_wrap_to_one(client: Client, sessions: FetchSessionCache) -> None:
    opened = client.fetch(0)
    assert opened.session is not None
    opened.session.epoch = LAST_EPOCH
    assert sessions.open(ask(LAST_EPOCH, session=client.id), BY_NAME, NOW).error is WireError.NONE
    assert sessions.open(ask(1, session=client.id), BY_NAME, NOW).error is WireError.NONE


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_full_fetch_ends_the_session_it_names(client: Client, sessions: FetchSessionCache, epoch: int) -> None:
    client.fetch(0)
    opened = sessions.open(ask(epoch, 1, session=client.id), BY_NAME, NOW)
    assert opened.error is WireError.NONE
    assert indexes(opened) == [1]
    assert opened.session_id != client.id
    assert (opened.session_id > 0) == (epoch == INITIAL_EPOCH)
    assert len(sessions) == (1 if epoch == INITIAL_EPOCH else 0)


def test_all_slots_taken_means_full_fetches_until_one_is_stale() -> None:
    sessions = FetchSessionCache(2)
    first, second, third = Client(sessions), Client(sessions), Client(sessions)
    first.fetch(0)
    second.fetch(0)
    opened = third.fetch(0)
    assert (opened.error, opened.session_id) == (WireError.NONE, 0)
    assert answered(opened, result(0)) == [0]
    first.fetch(now=NOW + EVICTABLE_AFTER_MS - 1)
    late = Client(sessions)
    assert late.fetch(0, now=NOW + EVICTABLE_AFTER_MS).session_id > 0  # in place of the second, the longest unused
    assert second.fetch().error is WireError.FETCH_SESSION_ID_NOT_FOUND
    assert first.fetch().error is WireError.NONE
    assert len(sessions) == 2


def test_no_slots_no_sessions() -> None:
    sessions = FetchSessionCache(0)
    assert Client(sessions).fetch(0).session_id == 0
    assert len(sessions) == 0


def test_an_answer_after_its_partition_was_forgotten_is_still_one(client: Client, sessions: FetchSessionCache) -> None:
    """A second request of the session may come while the first one waits."""
    waiting = client.fetch(0, 1)
    client.fetch(forget=(0,))
    assert answered(waiting, result(0), result(1)) == [0, 1]
