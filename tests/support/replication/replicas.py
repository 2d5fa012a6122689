"""A replicated partition without brokers: a log in memory, with a high watermark that the test moves.

It can lose leadership, with everything that was not committed, and become leader again. It has as much of `Partition`
as coordinators use.
"""

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later, NowOrLater
from moldau.replication.appender import Appended, Outcome
from moldau.wire.pairs import encode_pairs

NOT_LEADER = Refusal.of(WireError.NOT_LEADER_OR_FOLLOWER)
Pairs = Sequence[tuple[bytes | None, bytes | None]]


class MemoryLog:
    """Batches of records; offsets count batches."""

    start_offset = 0

    def __init__(self) -> None:
        self.batches: list[Pairs] = []

    @property
    def end_offset(self) -> int:
        return len(self.batches)

    def read_batches(self, from_offset: int) -> Iterator[tuple[SimpleNamespace, bytes]]:
        for pairs in self.batches[from_offset:]:
            yield SimpleNamespace(attributes=0, producer_id=-1), encode_pairs(pairs, 0)


class ReplicatedPartition:
    def __init__(self, log: MemoryLog | None = None, leader_epoch: int = 0) -> None:
        self.log = log or MemoryLog()
        self.leads, self.offline = True, False
        self.leader_epoch = leader_epoch
        self.high_watermark = self.log.end_offset
        self.waiting: list[tuple[int, Later[Outcome]]] = []
        self.refuses: Refusal | None = None
        self._moved = asyncio.Event()
        self.appender = self

    def append_records(self, records: Pairs, now: int, **_: object) -> NowOrLater[Outcome]:
        if not self.leads:
            return NOT_LEADER
        if self.refuses is not None:
            return self.refuses
        self.log.batches.append(records)
        later: Later[Outcome] = Later()
        self.waiting.append((self.log.end_offset, later))
        return later

    def commit(self, batches: int = 1_000_000) -> None:
        """Followers fetch this many more batches, or all."""
        self.high_watermark = min(self.high_watermark + batches, self.log.end_offset)
        self._moved.set()
        done = [later for end, later in self.waiting if end <= self.high_watermark]
        self.waiting = self.waiting[len(done) :]
        for later in done:
            later.resolve(Appended(0, -1, 0))

    async def await_committed(self, offset: int) -> None:
        while self.high_watermark < offset:
            self._moved.clear()
            await self._moved.wait()

    def lose(self, kept: int = 0, refusal: Refusal = NOT_LEADER) -> None:
        """Another broker becomes leader: it has everything committed, and `kept` more batches."""
        self.leads = False
        del self.log.batches[self.high_watermark + kept :]
        waiting, self.waiting = self.waiting, []
        for _, later in waiting:
            later.resolve(refusal)

    def win(self) -> None:
        """This broker becomes leader again. Its log counts, but is committed only with the next commit."""
        self.leads = True
        self.leader_epoch += 2
