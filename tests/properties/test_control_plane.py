"""Simulations of a cluster's controllers on an ensemble in memory: lost connections, expired sessions, lagging servers.

After the last fault there is one controller, which all brokers know; all are registered, and every topic whose creation
was acknowledged is complete. `MOLDAU_SEED=17` repeats one of them; `MOLDAU_FULL=1` runs thousands.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from moldau.base.errors import Refusal
from moldau.base.tree import Delete
from moldau.broker.cluster.broker_registration import BrokerRegistration, Findings
from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.controller import Controller
from moldau.broker.fresh import fresh_id
from moldau.metadata import znodes
from moldau.metadata.elections import ElectionRules
from moldau.metadata.image import Broker
from moldau.metadata.topics import TopicDefaults, TopicSpec, create_topic, delete_topic
from moldau.net.peer import connect_plain
from moldau.store.port import StoreError, StoreUnavailable
from support.replication.virtual_ensemble import Ensemble, VirtualLoop, VirtualStore

RUNS = 5_000 if os.environ.get("MOLDAU_FULL") else 20
SEEDS: Sequence[int] = [int(os.environ["MOLDAU_SEED"])] if "MOLDAU_SEED" in os.environ else range(RUNS)
RULES = ElectionRules(min_isr=lambda _: 1, unclean=lambda _: False)
EVENTS = 40
REST_S = 60.0
SIZES = (1, 3, 7)


class Member:
    def __init__(self, ensemble: Ensemble, number: int) -> None:
        self.number = number
        self.dead = False
        self.store = VirtualStore(ensemble)
        self.controller = Controller(self.store, limit=3_000, feed_entries=20, patience_s=5)
        self.registration = BrokerRegistration(self.controller, number, "X", lambda _: RULES, connect_plain)

    async def start(self) -> None:
        steps: tuple[Callable[[], Awaitable[None]], ...] = (
            lambda: self.controller.load("cluster"),
            self._found,
            lambda: self.registration.start(Broker(self.number, {}), Findings()),
        )
        for step in steps:
            while not self.dead:
                try:
                    await step()
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.2)

    async def _found(self) -> None:
        if self.controller.founded:
            await self.registration.election.create_cluster(())


class Simulation:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.ensemble = Ensemble(self.dice)
        self.there: dict[str, int] = {}  # topics that were answered for, with their size
        self.doubtful: set[str] = set()
        self.work: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        self.members = [Member(self.ensemble, number) for number in (1, 2, 3)]
        await asyncio.gather(*(member.start() for member in self.members))
        for number in range(EVENTS):
            await asyncio.sleep(self.dice.random() ** 3 * 4)
            self.something(number)
        quiet = False
        while not quiet:
            quiet = all(task.done() for task in self.work)
            for member in self.members:
                if not member.store.connected:
                    member.store.heal(expired=self.dice.random() < 0.5)
            await asyncio.sleep(1)
        await asyncio.gather(*self.work)
        await asyncio.sleep(REST_S)

    def something(self, number: int) -> None:
        member, what = self.dice.choice(self.members), self.dice.random()
        store = member.store
        if what < 0.45:
            self.begin(self.create(member, f"t{number}", self.dice.choice(SIZES)))
        elif what < 0.55 and self.there:
            self.begin(self.delete(member, self.dice.choice(sorted(self.there))))
        elif what < 0.6:
            self.begin(self.kill(self.dice.randrange(len(self.members))))
        elif what < 0.67:
            path = self.dice.choice((znodes.CONTROLLER, znodes.broker_path(member.number)))
            self.ensemble.change([Delete(path)], 0)  # by somebody's hand, if it is there
        elif store.connected:
            store.cut()
            if self.dice.random() < 0.7:
                expired = self.dice.random() < 0.5
                pause = self.dice.random() ** 2 * 10
                asyncio.get_running_loop().call_later(pause, lambda: store.connected or store.heal(expired=expired))
        else:
            store.heal(expired=self.dice.random() < 0.7)

    async def kill(self, at: int) -> None:
        """Its process ends, and its session some time later. It may be there again before that."""
        old = self.members[at]
        new = self.members[at] = Member(self.ensemble, old.number)
        old.dead = True
        old.store.abandon(after_s=self.dice.random() * 6)
        await old.registration.stop()
        await asyncio.sleep(self.dice.random() ** 2 * 8)
        await new.start()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.work.append(asyncio.get_running_loop().create_task(work))

    async def create(self, member: Member, name: str, size: int) -> None:
        spec, topic_id = TopicSpec(name, size, self.dice.randrange(1, 4)), fresh_id()
        self.doubtful.add(name)
        try:
            made = await member.controller.submit(
                lambda image: create_topic(image, spec, topic_id=topic_id, defaults=TopicDefaults())
            )
        except StoreError:
            return
        if not isinstance(made, Refusal):
            self.there[name] = size
            self.doubtful.discard(name)

    async def delete(self, member: Member, name: str) -> None:
        self.doubtful.add(name)
        del self.there[name]
        try:
            gone = await member.controller.submit(lambda image: delete_topic(image, name=name))
        except StoreError:
            return
        if not isinstance(gone, Refusal):
            self.doubtful.discard(name)

    async def check(self) -> None:
        leading = [member for member in self.members if member.controller.leads]
        assert len(leading) == 1
        image = leading[0].controller.image
        assert image.controller_id == leading[0].number
        for member in self.members:
            assert member.controller.image == image
        assert {each.id: each.epoch for each in image.brokers.values()} == {
            member.number: member.registration.epoch for member in self.members
        }
        fresh = MetadataFeed(VirtualStore(self.ensemble))
        await fresh.load()
        assert replace(fresh.image, controller_id=image.controller_id) == image
        assert all(state.leader in image.brokers for topic in image.topics.values() for state in topic.partitions)
        sizes = {name: len(topic.partitions) for name, topic in image.topics.items()}
        assert self.there.items() <= sizes.items()
        assert sizes.keys() <= self.there.keys() | self.doubtful
        left = await fresh.store.children(znodes.TOPICS)
        assert set(left) >= set(sizes)
        for member in self.members:
            await member.registration.stop()


@pytest.mark.parametrize("portion", range(min(5, len(SEEDS))))
def test_whatever_happened_there_is_one_controller_and_all_know_the_same(
    portion: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "moldau")  # many lines that nobody reads
    monkeypatch.setattr(znodes, "CREATED_AT_ONCE", 4)
    monkeypatch.setattr(znodes, "DELETED_AT_ONCE", 4)
    monkeypatch.setattr(znodes, "STAGED_AT_ONCE", 2)
    for seed in SEEDS[portion::5]:
        simulation = Simulation(seed)
        loop = VirtualLoop()
        try:
            loop.run_until_complete(simulation.run())
            loop.run_until_complete(simulation.check())
        except BaseException:
            print(f"MOLDAU_SEED={seed}")
            raise
        finally:
            loop.close()
