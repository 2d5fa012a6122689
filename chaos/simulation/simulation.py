"""One simulation of a cluster: periods with faults and calm periods, by seed.

During faults no committed record may be lost or changed. After them all replicas must be in sync within bounded time.
In calm periods acknowledgements and high watermarks must arrive soon.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from chaos.simulation.broker import one_after_another
from chaos.simulation.committed import Broken
from chaos.simulation.loop import VirtualLoop
from chaos.simulation.world import CONTROLLER, IDS, World
from chaos.simulation.writers import SOON_S, Writers
from moldau.log.settings import LogConfig
from moldau.replication.appender import Appended, Outcome

TROUBLE_S = (1.0, 15.0)
CALM_S = (2.0, 15.0)
REST_S = 12.0  # after the last fault, until all replicas must be in sync
SETTLING_S = 1.2  # a little more than the longest pause of a fetcher
TAKEN_OVER_S = 0.4  # until others lead a dead broker's partitions; its failure is detected within 0.3 s
CHECK_S = 0.07
JUMPS_MS = (-3_000, 500, 5_000, 60_000)


@dataclass(slots=True)
class Report:
    seed: int
    hours: float = 0.0
    writes: int = 0
    acknowledged: int = 0
    committed: int = 0
    troubles: int = 0
    messages: int = 0
    slowest_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    problem: str = ""


class _Complaints(logging.Handler):
    """Collects exceptions from the brokers' own log: each is a bug."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


class Simulation:
    def __init__(self, home: Path, seed: int, dice: random.Random) -> None:
        self._dice = dice
        self._durable = dice.random() < 0.75  # otherwise min.insync.replicas=1, and no power cuts
        config = LogConfig(
            min_insync_replicas=2 if self._durable else 1,
            segment_bytes=dice.choice((2_000, 20_000)),
            retention_bytes=dice.choice((-1, 30_000)),
            file_delete_delay_ms=1_000,
        )
        self.world = World(home, dice, partitions=dice.choice((1, 3, 6, 12)), config=config)
        self.writers = Writers(self.world)
        self.report = Report(seed)
        self._powered_off = False
        self._trying: set[int] = set()  # partitions with a write that is not acknowledged yet
        self._log = _Complaints()
        self._pause_s = dice.choice((0.02, 0.1, 0.5))

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        escaped: list[str] = []
        loop.set_exception_handler(lambda _, context: escaped.append(f"{context.get('exception')!r}: {context}"))
        logger = logging.getLogger("moldau")
        logger.addHandler(self._log)
        self.world.begin()
        checking = loop.create_task(self._check(escaped))
        working = loop.create_task(self._alternate(seconds))
        try:
            done, _ = await asyncio.wait((checking, working), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            logger.removeHandler(self._log)
            checking.cancel()
            working.cancel()
            await asyncio.gather(checking, working, return_exceptions=True)
            self._tell()
            for broker in self.world.alive:
                await broker.kill()

    def _tell(self) -> None:
        report, writers = self.report, self.writers
        report.hours = asyncio.get_running_loop().time() / 3600
        report.writes, report.acknowledged, report.slowest_s = writers.writes, writers.acknowledged, writers.slowest_s
        report.committed = sum(each.end for each in self.world.committed)
        report.messages = self.world.network.messages

    async def _check(self, escaped: list[str]) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self.world.check()
            for found in (self.writers.complaints, self._log.found, escaped):
                if found:
                    raise Broken(found[0])

    async def _alternate(self, seconds: float) -> None:
        """Alternate between faults and calm."""
        loop = asyncio.get_running_loop()
        while loop.time() < seconds:
            async with _Meanwhile(self.writers.run(self._pause_s)):
                await self._trouble(loop.time() + self._dice.uniform(*TROUBLE_S))
            await self._rest()
            if self._dice.random() < 0.5:
                await self._fail_over()
            async with _Meanwhile(self.writers.run(self._pause_s)):
                self.writers.begin_calm()
                await asyncio.sleep(self._dice.uniform(*CALM_S))
            await asyncio.sleep(SOON_S * 3)  # time for the markers of the last transactions
            self.world.check_rest()
            self.writers.calm = 0

    async def _rest(self) -> None:
        """End all faults, and check that all replicas are in sync and all transactions ended within bounded time."""
        world, loop = self.world, asyncio.get_running_loop()
        world.answers_lost = 0.0
        self._powered_off = False
        for broker_id in IDS:
            if world.broker(broker_id) is None:
                world.restart(broker_id)
        world.heal()
        deadline = loop.time() + REST_S
        self.report.troubles += 1
        while unrest := world.unrest() or (self.writers.transactions and "transactions are open"):
            if loop.time() > deadline:
                raise Broken(f"{REST_S} s after the last fault: {unrest}")
            self.writers.end_all()
            await asyncio.sleep(0.2)
        world.check_rest()
        await asyncio.sleep(SETTLING_S)

    async def _fail_over(self) -> None:
        """Kill one broker while all is well: soon the others lead its partitions and commit records."""
        world, loop = self.world, asyncio.get_running_loop()
        self.report.faults["kill in calm"] += 1
        await world.kill(self._dice.choice(IDS))
        deadline = loop.time() + TAKEN_OVER_S
        self._trying.clear()
        waiting = set(range(len(world.committed)))
        while waiting:
            if loop.time() > deadline:
                raise Broken(f"{TAKEN_OVER_S} s after a broker died nothing is committed to partitions {waiting}")
            self._try(waiting)
            await asyncio.sleep(0.02)
        await self._rest()

    def _try(self, waiting: set[int]) -> None:
        """Write to each of these partitions that has a leader, and remove those that commit the record."""
        for broker in self.world.alive:
            for partition in [each for each in broker.partitions() if each.leads and each.index in waiting]:
                if partition.index not in self._trying:
                    self._trying.add(partition.index)
                    self.writers.write_to(broker, partition, partial(self._tried, waiting, partition.index))

    def _tried(self, waiting: set[int], index: int, outcome: Outcome) -> None:
        self._trying.discard(index)
        if isinstance(outcome, Appended):
            waiting.discard(index)

    # ── faults ──

    async def _trouble(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(min(self._dice.expovariate(1.5), max(until - loop.time(), 0)))
            faults = self._possible(self._dice.choice(IDS))
            name = self._dice.choice(list(faults))
            self.report.faults[name] += 1
            outcome = faults[name]()
            if outcome is not None:
                await outcome

    def _possible(self, broker_id: int) -> dict[str, Callable[[], Coroutine[Any, Any, None] | None]]:
        world = self.world
        if world.broker(broker_id) is None:
            return {"restart": lambda: world.restart(broker_id)}
        faults: dict[str, Callable[[], Coroutine[Any, Any, None] | None]] = {
            "kill": lambda: world.kill(broker_id),
            "kill and restart at once": lambda: self._again(world.kill(broker_id), broker_id),
            "stop": lambda: world.stop(broker_id),
            "cut one way": lambda: world.cut(*self._dice.sample(IDS, 2)),
            "isolate": lambda: self._isolate(broker_id),
            "cut off from the controller": lambda: world.cut(*self._dice.sample((CONTROLLER, broker_id), 2)),
            "heal": world.heal,
            "break connections": self._break_connections,
            "jump of a clock": lambda: self._jump(broker_id),
            "election": world.rebalance,
            "lost answers": lambda: setattr(world, "answers_lost", self._dice.choice((0.0, 0.5))),
        }
        if self._durable and not self._powered_off:
            faults["power cut"] = lambda: self._lose_power(broker_id)
        return faults

    async def _again(self, end: Coroutine[Any, Any, None], broker_id: int, *, trusted: bool = True) -> None:
        await end
        self.world.restart(broker_id, trusted=trusted)

    async def _lose_power(self, broker_id: int) -> None:
        """Cut the power of one machine per period: more than one may lose acknowledged records."""
        self._powered_off = True
        await self.world.kill(broker_id, power=True)
        await asyncio.sleep(self._dice.choice((0.0, 0.5)))
        self.world.restart(broker_id, trusted=False)

    def _isolate(self, broker_id: int) -> None:
        for other in (CONTROLLER, *IDS):
            if other != broker_id:
                self.world.cut(broker_id, other)
                self.world.cut(other, broker_id)

    def _break_connections(self) -> None:
        for connection in self.world.network.connections:
            if self._dice.random() < 0.5:
                connection.break_off("the connection was reset")

    def _jump(self, broker_id: int) -> None:
        broker = self.world.broker(broker_id)
        assert broker is not None
        broker.clock.ahead_ms += self._dice.choice(JUMPS_MS)


class _Meanwhile:
    """Runs a coroutine in the background."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work

    async def __aenter__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work)

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        outcome = (await asyncio.gather(self._task, return_exceptions=True))[0]
        if isinstance(outcome, Exception):
            raise outcome


def simulate(home: Path, seed: int, seconds: float) -> Report:
    """Run one simulation in this process. The same seed gives the same run, under the same PYTHONHASHSEED."""
    dice = random.Random(seed)
    random.seed(seed)  # fetch sessions have random ids
    simulation = Simulation(home, seed, dice)
    with (
        mock.patch("moldau.replication.replicas.open_all", one_after_another),
        asyncio.Runner(loop_factory=lambda: VirtualLoop(dice)) as runner,
    ):
        try:
            runner.run(simulation.run(seconds))
        except Exception as problem:  # noqa: BLE001 - every exception is a finding
            simulation.report.problem = f"{type(problem).__name__}: {problem}"
    return simulation.report
