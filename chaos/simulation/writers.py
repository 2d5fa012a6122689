"""Writers of a simulated cluster: producers, and transactions that end as soon as their last record is committed.

A commit can start writes to other partitions in the same turn of the event loop, as with coordinators. In calm periods
acknowledgements, and the high watermarks of followers, must arrive soon.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from chaos.simulation.broker import SimulatedBroker
from chaos.simulation.world import TOPIC, World
from moldau.base.later import Later, NowOrLater
from moldau.replication.appender import Appended, Outcome
from moldau.replication.leader import ALL
from moldau.replication.partition import Partition
from moldau.wire.pairs import encode_pairs

SOON_S = 0.1  # in calm periods: a fifth of replica.fetch.wait.max.ms
PRODUCE_VERSION = 12
CHAIN = 3  # the most writes that one commit starts, one after the other
STRICT = 2  # transaction.version: a marker's epoch is above that of the records


@dataclass(slots=True)
class Transaction:
    """A transaction, open on these partitions until their markers are committed."""

    producer_id: int
    open_on: set[int]
    unanswered: set[int] = field(default_factory=set)


class Writers:
    def __init__(self, world: World) -> None:
        self.world = world
        self.calm = 0  # the number of the calm period; 0: there are faults
        self.complaints: list[str] = []
        self.writes = self.acknowledged = 0
        self.slowest_s = 0.0  # of all acknowledgements in calm periods
        self.transactions: list[Transaction] = []
        self._calms = 0
        self._producer_id = 0
        self._dice = world.dice

    def begin_calm(self) -> None:
        self._calms += 1
        self.calm = self._calms

    async def run(self, pause_s: float) -> None:
        """Write to brokers that consider themselves leaders, until cancelled."""
        while True:
            await asyncio.sleep(self._dice.expovariate(1 / pause_s))
            if self.world.alive:
                broker = self._dice.choice(self.world.alive)
                for _ in range(self._dice.choice((1, 1, 1, 4))):
                    self.write(broker)

    def write(self, broker: SimulatedBroker, depth: int = 0) -> None:
        led = [each for each in broker.partitions() if each.leads]
        if not led:
            return
        if self._dice.random() < 0.2:
            self._begin_transaction(broker, self._dice.sample(led, min(len(led), self._dice.randint(1, 3))))
            return
        partition = self._dice.choice(led)
        value = b"%d-%d" % (broker.id, self.writes)
        pairs = [(None, value)] * self._dice.choice((1, 1, 3, 20))

        def go_on(outcome: Outcome) -> None:
            if isinstance(outcome, Appended) and depth < CHAIN and self._dice.random() < 0.4:
                self.write(broker, depth + 1)

        now = broker.clock.now()
        if self._dice.random() < 0.5:
            acks = ALL if self._dice.random() < 0.8 else 1
            batch = memoryview(encode_pairs(pairs, now))
            self._note(
                broker,
                partition,
                lambda: partition.appender.produce(batch, PRODUCE_VERSION, now, None, acks),
                go_on,
                acks,
            )
        else:
            self._note(broker, partition, lambda: partition.appender.append_records(pairs, now), go_on)

    def write_to(self, broker: SimulatedBroker, partition: Partition, then: Callable[[Outcome], None]) -> None:
        """Write one record, and call `then` with its outcome."""
        pairs = [(None, b"%d" % self.writes)]
        self._note(broker, partition, partial(partition.appender.append_records, pairs, broker.clock.now()), then)

    # ── transactions ──

    def _begin_transaction(self, broker: SimulatedBroker, partitions: list[Partition]) -> None:
        self._producer_id += 1
        opened = Transaction(self._producer_id, {each.index for each in partitions})
        opened.unanswered = set(opened.open_on)
        self.transactions.append(opened)

        def answered(partition: Partition, _: Outcome) -> None:
            opened.unanswered.discard(partition.index)
            if not opened.unanswered:  # the last one is committed
                self.end_transaction(broker, opened)

        for each in partitions:
            pairs = [(None, b"%d" % self.writes)]
            append = each.appender.append_records
            write = partial(append, pairs, broker.clock.now(), opened.producer_id, 0, transactional=True)
            self._note(broker, each, write, partial(answered, each))

    def end_transaction(self, broker: SimulatedBroker, opened: Transaction) -> None:
        """Write the markers of partitions that this broker leads. `end_all` writes the others."""
        for index in sorted(opened.open_on):
            partition = broker.replicas.get(TOPIC, index)
            if partition is None or not partition.leads:
                continue
            commit = self._dice.random() < 0.7

            def ended(outcome: Outcome, index: int = index) -> None:
                if isinstance(outcome, Appended):
                    opened.open_on.discard(index)
                if not opened.open_on and opened in self.transactions:
                    self.transactions.remove(opened)

            def write(partition: Partition = partition, commit: bool = commit) -> NowOrLater[Outcome]:
                return partition.appender.write_marker(opened.producer_id, 1, commit, 0, STRICT, broker.clock.now())

            self._note(broker, partition, write, ended)

    def end_all(self) -> None:
        """Write the markers of transactions that are still open because a broker died."""
        for opened in list(self.transactions):
            for broker in self.world.alive:
                self.end_transaction(broker, opened)

    # ── guarantees ──

    def _note(
        self,
        broker: SimulatedBroker,
        partition: Partition,
        write: Callable[[], NowOrLater[Outcome]],
        then: Callable[[Outcome], None],
        acks: int = ALL,
    ) -> None:
        """Write, and record the guarantee that the outcome gives."""
        loop = asyncio.get_running_loop()
        begun, calm, base = loop.time(), self.calm, partition.log.end_offset
        outcome = write()
        self.writes += 1
        end = partition.log.end_offset
        crc = next(partition.log.read_headers(base)).crc if end > base else None
        answered = False

        def told(outcome: Outcome) -> None:
            nonlocal answered
            answered = True
            if not broker.alive:
                return
            if isinstance(outcome, Appended) and acks == ALL and crc is not None:
                self.acknowledged += 1
                self.world.committed[partition.index].acknowledged(base, crc)
                if calm and calm == self.calm:
                    self.slowest_s = max(self.slowest_s, loop.time() - begun)
                    loop.call_later(SOON_S, self._expect_known, partition.index, end, calm)
            elif calm and calm == self.calm and not isinstance(outcome, Appended):
                self.complaints.append(f"{broker.id} refused to write to {partition.index}: {outcome}")
            then(outcome)

        def expect_answer() -> None:
            if not answered and calm == self.calm:
                self.complaints.append(
                    f"at {begun:.3f} s {end - base} records were written to partition {partition.index} at {base}, and "
                    f"{SOON_S} s later they are not acknowledged"
                )

        if isinstance(outcome, Later):
            outcome.then(told)
            if calm:
                loop.call_later(SOON_S, expect_answer)
        else:
            told(outcome)

    def _expect_known(self, index: int, end: int, calm: int) -> None:
        """Check that followers, which serve consumers too, have the high watermark without a further write."""
        if calm != self.calm:
            return
        for broker in self.world.alive:
            partition = broker.replicas.get(TOPIC, index)
            if partition is not None and partition.high_watermark < end:
                self.complaints.append(
                    f"broker {broker.id} does not know that partition {index} is committed up to {end}, {SOON_S} s "
                    f"after it was acknowledged"
                )
