"""Exactly once with Consumer.transactions: killed at every step, again and again, the output is exactly the input.

`make test` has some dozens of kills, `make exactly-once` hundreds for each kind of output.
"""

import os
import random
import time
import uuid
from functools import partial
from pathlib import Path

import pytest

from support.at_once import at_once
from support.brokers.processes import BrokerProcess, CreateTopic, StartBroker
from support.clients.raw import RawClient
from support.eventually import PATIENCE_S, eventually
from support.groups.members import Member
from support.transactions.lives import (
    PARTITIONS,
    N,
    Output,
    check_ends,
    copies,
    fill,
    plan,
    postgresql_rows,
    seed,
    sqlite_rows,
    wake_up,
    workers,
)

FULL = bool(os.environ.get("MOLDAU_FULL"))
LIVES = {"sqlite": 300, "kafka": 300, "postgresql": 300} if FULL else {"sqlite": 20, "kafka": 12, "postgresql": 6}
BROKER_KILLS = 100 if FULL else 2
ROLLED_BACK = "A batch was rolled back"
RECOVERY_S = 120  # a dead member's session and a transaction may have to end first
SHORT = {"classic": {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}, "consumer": {}}
# Where a zombie stops: SQLite has one lock for all writers, so there it stops before it writes.
STOPS = {
    "sqlite": ("begin", "after", 2),
    "postgresql": ("advance", "before", 2),
    "kafka": ("send_offsets", "before", 2),
}
ZOMBIES = [("sqlite", "classic"), ("postgresql", "consumer"), ("kafka", "classic"), ("kafka", "consumer")]


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def output_of(kind: str, bootstrap: str, topic: str, group: str, request: pytest.FixtureRequest) -> Output:
    match kind:
        case "kafka":
            return copies(bootstrap, topic, group)
        case "postgresql":
            return postgresql_rows(request.getfixturevalue("postgresql"))
    path: Path = request.getfixturevalue("tmp_path")
    return sqlite_rows(path / "output.db")


def wait_until_written(output: Output, count: int, worker: Member, told: str) -> None:
    eventually(
        lambda: output.count() >= count, f"{told}: all is written", lambda: f"{output.count()} {worker.last_words()}"
    )


def test_killed_at_every_step(
    bootstrap: str, create_topic: CreateTopic, group: str, request: pytest.FixtureRequest
) -> None:
    def scenario(kind: str, output: Output, source: str) -> None:
        chosen = seed()
        lives = plan(random.Random(chosen), output, LIVES[kind])
        count = fill(bootstrap, source, len(lives))
        own = {"group": f"{group}-{kind}", "instance": "worker"}
        with workers(bootstrap=bootstrap, source=source, **own, **output.settings) as start:
            worker = start(lives=lives)
            worker.wait_for("last", PATIENCE_S + 5 * len(lives))
            wait_until_written(output, count, worker, f"seed {chosen}")
            worker.leave()
        check_ends(worker, lives)
        output.check(count)
        print(f"{kind}: seed {chosen}, {len(lives)} lives, {count} records")

    topics = {kind: (create_topic(partitions=PARTITIONS), create_topic(partitions=PARTITIONS)) for kind in LIVES}
    outputs = {kind: output_of(kind, bootstrap, target, group, request) for kind, (_, target) in topics.items()}
    at_once({kind: partial(scenario, kind, outputs[kind], source) for kind, (source, _) in topics.items()})


def test_the_broker_is_killed_too(start_broker: StartBroker, group: str, request: pytest.FixtureRequest) -> None:
    """With lives that end suddenly, and then in one that has to survive it."""
    brokers = {
        kind: start_broker(group_min_session_timeout_ms=500, group_initial_rebalance_delay_ms=0)
        for kind in ("sqlite", "kafka")
    }
    outputs = {kind: output_of(kind, own.bootstrap, "target", group, request) for kind, own in brokers.items()}
    at_once({kind: partial(kill_broker_and_worker, own, outputs[kind], group) for kind, own in brokers.items()})


def kill_broker_and_worker(own: BrokerProcess, output: Output, group: str) -> None:
    with RawClient(own.bootstrap) as client:
        client.create_topic("source", PARTITIONS)
        client.create_topic("target", PARTITIONS)
    chosen = seed()
    dice = random.Random(chosen)
    lives = plan(dice, output, BROKER_KILLS * 3)
    count = fill(own.bootstrap, "source", len(lives))
    common = {"bootstrap": own.bootstrap, "source": "source", "group": group, "instance": "worker", "last_n": N}
    kills = 0
    with workers(**common, **output.settings) as start:
        worker = start(lives=lives)
        while not worker.told("last"):
            ended = partial(ended_more_than, worker, len(worker.told("ended")))
            eventually(ended, f"seed {chosen}: lives go on", worker.last_words, RECOVERY_S)
            kill(own, dice)
            kills += 1
        for _ in range(BROKER_KILLS):
            written = output.count()
            count = fill(own.bootstrap, "source", 0, after=count)
            eventually(partial(wrote_more_than, output, written), "it goes on", worker.last_words, RECOVERY_S)
            kill(own, dice)
            kills += 1
        wait_until_written(output, count, worker, f"seed {chosen}")
        worker.leave()
    check_ends(worker, lives)
    output.check(count)
    print(f"{type(output).__name__}: seed {chosen}, {kills} kills of the broker, {len(lives)} lives, {count} records")


def ended_more_than(worker: Member, count: int) -> bool:
    return len(worker.told("ended")) > count or bool(worker.told("last"))


def wrote_more_than(output: Output, count: int) -> bool:
    return output.count() > count


def kill(broker: BrokerProcess, dice: random.Random) -> None:
    time.sleep(dice.uniform(0, 0.1))  # to hit every step
    broker.kill()
    broker.start()


def test_a_zombie_cannot_write(
    bootstrap: str,
    create_topic: CreateTopic,
    group: str,
    request: pytest.FixtureRequest,
    short_waits: dict[str, int],
) -> None:
    """It stops in the middle of a batch until another member has its partitions, and then goes on."""

    def scenario(kind: str, protocol: str, output: Output, source: str) -> None:
        count = fill(bootstrap, source, 0)
        own = {"group": f"{group}-{kind}-{protocol}", "protocol": protocol, "properties": SHORT[protocol]}
        with workers(bootstrap=bootstrap, source=source, **own, **output.settings) as start:
            zombie = start(last_n=N, stop=STOPS[kind])
            zombie.wait_for("stopped")
            other = start(name="other", transactional_id=f"{own['group']}-other")
            # Behind the zombie's open transaction nothing else of the topic is visible as committed.
            eventually(lambda: output.count(uncommitted=True) >= count, "the other one goes on", other.last_words)
            wake_up(zombie)
            eventually(lambda: any(ROLLED_BACK in line for line in zombie.errors), "it is refused", zombie.last_words)
            more = fill(bootstrap, source, 0, after=count)
            wait_until_written(output, more, other, "both go on")
            zombie.leave()
            other.leave()
        output.check(more)

    scenarios = {}
    for kind, protocol in ZOMBIES:
        source, target = create_topic(partitions=PARTITIONS), create_topic(partitions=PARTITIONS)
        output = output_of(kind, bootstrap, target, f"{group}-{protocol}", request)
        scenarios[f"{kind}, {protocol}"] = partial(scenario, kind, protocol, output, source)
    at_once(scenarios)
