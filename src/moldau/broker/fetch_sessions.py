"""Fetch sessions (KIP-227): a client lists its partitions once; afterwards requests and responses carry changes only.

A session belongs to one client and is used by one request at a time, in the order of its epochs. Sessions are a
cache: a client whose session was evicted gets FETCH_SESSION_ID_NOT_FOUND and sends a full fetch.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from random import randrange
from typing import Final

from moldau.base.errors import WireError
from moldau.base.ids import Offset
from moldau.replication.delayed_fetch import FollowerSession
from moldau.wire.hot.fetch import FETCH_BY_ID, FetchBody, FetchPartition, FetchResult

FINAL_EPOCH: Final = -1  # close the session, and do not make another
INITIAL_EPOCH: Final = 0  # make a new session
LAST_EPOCH: Final = 2**31 - 1
EVICTABLE_AFTER_MS: Final = 120_000  # an unused session may be replaced after this long, as in Kafka

Key = tuple[bytes, int]  # topic name or id as bytes, and partition


@dataclass(slots=True)
class CachedPartition:
    """A partition of a session: the last request for it, and the last response."""

    asked: FetchPartition
    high_watermark: Offset = -1
    log_start: int = -1
    _with_records: int = -1  # the high watermark sent with the first records since the last request

    def ask(self, asked: FetchPartition) -> None:
        """Note a new fetch offset. A client that advanced has applied the records and the high watermark with them. It
        may have dropped later responses, or all of them if it did not advance: clients drop those that cross a change
        of leader.
        """
        self.high_watermark = self._with_records if asked.offset > self.asked.offset else -1
        self._with_records = -1
        self.asked = asked

    def changed_by(self, result: FetchResult) -> bool:
        """Whether the result differs from the last response; notes it as sent."""
        changed = (
            result.error != WireError.NONE
            or (result.records is not None and result.records.length > 0)
            or result.high_watermark != self.high_watermark
            or result.log_start != self.log_start
            or result.diverging is not None
        )
        self.high_watermark = -1 if result.error else result.high_watermark
        if result.records is not None and self._with_records < 0:
            self._with_records = self.high_watermark
        self.log_start = -1 if result.error else result.log_start
        return changed


class FetchSession:
    __slots__ = ("by_id", "end_wait", "epoch", "follower", "id", "partitions", "used_at")

    def __init__(self, session_id: int, by_id: bool, now: int) -> None:
        self.id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.used_at = now
        self.end_wait: Callable[[], None] | None = None  # completes the last request, if it waits
        self.follower: FollowerSession | None = None  # of a follower: its partitions that changed
        self.partitions: OrderedDict[Key, CachedPartition] = OrderedDict()

    def update(self, ask: FetchBody) -> None:
        for token, partitions in ask.topics:
            for asked in partitions:
                known = self.partitions.get((token, asked.partition))
                if known is None:
                    self.partitions[(token, asked.partition)] = CachedPartition(asked)
                else:
                    known.ask(asked)
        for token, indexes in ask.forgotten:
            for index in indexes:
                self.partitions.pop((token, index), None)


@dataclass(slots=True)
class FetchContext:
    """One Fetch request with its session: the partitions to read, and those to put into the response."""

    error: WireError = WireError.NONE
    session: FetchSession | None = None
    incremental: bool = False
    asked: list[tuple[bytes, FetchPartition]] | None = None

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else 0

    def answer(self, results: list[tuple[bytes, FetchResult]]) -> list[tuple[bytes, list[FetchResult]]]:
        """The results to send, by topic: all of them, or those that changed if the fetch is incremental."""
        session = self.session
        if session is not None:
            results = [each for each in results if self._to_send(session, *each)]
        topics: list[tuple[bytes, list[FetchResult]]] = []
        for token, result in results:
            if topics and topics[-1][0] == token:
                topics[-1][1].append(result)
            else:
                topics.append((token, [result]))
        return topics

    def moves_watermarks(self, results: list[tuple[bytes, FetchResult]]) -> bool:
        """Whether a high watermark or log start offset differs from the last response."""
        known = self.session.partitions if self.session is not None else {}
        return any(
            cached.high_watermark != result.high_watermark or cached.log_start != result.log_start
            for token, result in results
            if (cached := known.get((token, result.partition))) is not None
        )

    def _to_send(self, session: FetchSession, token: bytes, result: FetchResult) -> bool:
        cached = session.partitions.get((token, result.partition))
        if cached is None:
            return True
        changed = cached.changed_by(result)
        if self.incremental and result.records is not None:
            session.partitions.move_to_end((token, result.partition))  # the other partitions come first next time
        return changed or not self.incremental


class FetchSessionCache:
    def __init__(self, slots: int) -> None:
        self.slots = slots  # max.incremental.fetch.session.cache.slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, ask: FetchBody, version: int, now: int) -> FetchContext:
        if ask.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if ask.session_id:
                self._sessions.pop(ask.session_id, None)
            session = None if ask.session_epoch == FINAL_EPOCH else self._create(version, now)
            if session is not None:
                session.update(ask)
            return FetchContext(session=session, asked=[(token, each) for token, rows in ask.topics for each in rows])
        return self._continue(ask, version, now)

    def _continue(self, ask: FetchBody, version: int, now: int) -> FetchContext:
        session = self._sessions.get(ask.session_id)
        if session is None:
            return FetchContext(error=WireError.FETCH_SESSION_ID_NOT_FOUND)
        if ask.session_epoch != session.epoch:
            return FetchContext(error=WireError.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != (version >= FETCH_BY_ID):
            return FetchContext(error=WireError.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.end_wait is not None:
            session.end_wait()  # the client has given up waiting; answered as it was requested
        session.update(ask)
        if not session.partitions:
            del self._sessions[session.id]
            return FetchContext(asked=[])
        session.epoch = session.epoch + 1 if session.epoch < LAST_EPOCH else 1
        session.used_at = now
        self._sessions.move_to_end(session.id)
        asked: list[tuple[bytes, FetchPartition]] = []
        if session.follower is None:
            asked = [(token, each.asked) for (token, _), each in session.partitions.items()]
        return FetchContext(session=session, incremental=True, asked=asked)

    def _create(self, version: int, now: int) -> FetchSession | None:
        """A new session; None when all slots are in use, and the client sends full fetches."""
        if len(self._sessions) >= self.slots and not self._evict(now):
            return None
        session_id = randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = randrange(1, 2**31)
        session = FetchSession(session_id, version >= FETCH_BY_ID, now)
        self._sessions[session_id] = session
        return session

    def _evict(self, now: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now - oldest.used_at < EVICTABLE_AFTER_MS:
            return False
        del self._sessions[oldest.id]
        return True
