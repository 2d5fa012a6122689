"""The consume–transform–produce loop under failures: a copier and its broker are killed again and again.

`copy_under_fire` returns the target topic as read_committed sees it, for the test to check. The copier is
clients/members/copier.py, in its own process.
"""

import random
import sys
import time
from dataclasses import dataclass, field

from confluent_kafka import IsolationLevel
from kafka.protocol.consumer import OffsetFetchRequest

from support.brokers.processes import BrokerProcess
from support.clients.confluent import admin, end_offset, values_by_partition, write
from support.clients.raw import NO_TOPIC, RawClient
from support.eventually import PATIENCE_S, eventually
from support.groups.members import PROGRAMS, Member

SOURCE, TARGET, NAME = "source", "target", "copier"
PARTITIONS = 4
ASK_S = 0.05
WORK_S = 0.05  # minimum time of a transaction between its records and its offsets, in which it can be killed
SESSION_MS = 1500  # after a copier is killed its successor waits this long


@dataclass(frozen=True)
class Plan:
    records: int
    batch: int
    broker_kills: int
    copier_kills: int


@dataclass
class Outcome:
    """`expected` and `copied` are by partition; the rest is information."""

    expected: list[list[str]]
    copied: list[list[str]]
    stored: int  # records in the target, those of aborted transactions included
    seconds: float
    transactions: int = 0
    aborted: int = 0
    words: list[str] = field(default_factory=list)


class Fire:
    """One run: starts copiers, and kills them and the broker meanwhile."""

    def __init__(self, broker: BrokerProcess, plan: Plan, seed: int) -> None:
        self.broker = broker
        self.plan = plan
        self.random = random.Random(seed)
        self.copiers: list[Member] = []
        self.admin = admin(broker.bootstrap, reconnect_backoff_max_ms=200)

    def start_copier(self) -> None:
        settings = {"name": NAME, "bootstrap": self.broker.bootstrap, "source": SOURCE, "target": TARGET}
        more = {"batch": self.plan.batch, "session_ms": SESSION_MS, "work_s": WORK_S}
        self.copiers.append(Member((sys.executable, str(PROGRAMS / "copier.py")), {**settings, **more}))

    def committed(self) -> int:
        """Number of copied records, by the group's committed offsets; 0 while its coordinator is unavailable."""
        asked = OffsetFetchRequest.OffsetFetchRequestGroup
        topic = asked.OffsetFetchRequestTopics(name=SOURCE, topic_id=NO_TOPIC, partition_indexes=[*range(PARTITIONS)])
        group = asked(group_id=NAME, member_id=None, member_epoch=-1, topics=[topic])
        with RawClient(self.broker.bootstrap) as client:
            found = client.ask(OffsetFetchRequest(groups=[group], require_stable=False), 9).groups[0]
        return sum(max(0, part.committed_offset) for topic in found.topics for part in topic.partitions)

    def go_on_until(self, count: int, deadline: float) -> None:
        """Wait until this many records are copied; replace a copier that gave up."""
        while self.committed() < count:
            assert time.monotonic() < deadline, self.report()
            if not self.copiers[-1].running():
                self.start_copier()
            time.sleep(ASK_S)

    def all_ended(self) -> bool:
        """A commit may be answered before its markers are in all partitions."""
        kinds = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ends = [[end_offset(self.admin, TARGET, kind, part) for part in range(PARTITIONS)] for kind in kinds]
        return ends[0] == ends[1]

    def kill(self, what: str) -> None:
        time.sleep(self.random.uniform(0, 0.1))  # to hit every phase of a transaction
        if what == "broker":
            self.broker.kill()
            self.broker.start()
        else:
            self.copiers[-1].stop_for_good()
            self.start_copier()

    def report(self) -> str:
        last = "\n".join(copier.last_words() for copier in self.copiers[-3:])
        return f"{self.committed()} of {self.plan.records} are copied; {last}"

    def run(self) -> None:
        kills = ["broker"] * self.plan.broker_kills + ["copier"] * self.plan.copier_kills
        self.random.shuffle(kills)
        deadline = time.monotonic() + PATIENCE_S * (2 + len(kills))
        self.start_copier()
        try:
            for number, what in enumerate(kills, start=1):
                self.go_on_until(self.plan.records * number // (len(kills) + 1), deadline)
                self.kill(what)
            self.go_on_until(self.plan.records, deadline)
            self.copiers[-1].leave()
            eventually(self.all_ended, "no transaction is open")
        finally:
            for copier in self.copiers:
                copier.stop_for_good()


def fill(bootstrap: str, count: int) -> list[list[str]]:
    """Write numbers to the partitions of the source in rotation; return those of each partition."""
    with RawClient(bootstrap) as client:
        client.create_topic(SOURCE, PARTITIONS)
        client.create_topic(TARGET, PARTITIONS)
    numbered = ({"value": str(number), "partition": number % PARTITIONS} for number in range(count))
    write(bootstrap, SOURCE, numbered, enable_idempotence=True)
    return [[str(number) for number in range(part, count, PARTITIONS)] for part in range(PARTITIONS)]


def copy_under_fire(broker: BrokerProcess, plan: Plan, seed: int) -> Outcome:
    expected = fill(broker.bootstrap, plan.records)
    fire = Fire(broker, plan, seed)
    began = time.monotonic()
    fire.run()
    seconds = time.monotonic() - began
    copied = values_by_partition(broker.bootstrap, TARGET, PARTITIONS)
    stored = sum(map(len, values_by_partition(broker.bootstrap, TARGET, PARTITIONS, isolation="read_uncommitted")))
    told = [event for copier in fire.copiers for event in copier.events]
    return Outcome(
        expected,
        copied,
        stored,
        seconds,
        transactions=sum(event["event"] == "committed" for event in told),
        aborted=sum(event["event"] == "aborted" for event in told),
        words=[event["error"] for event in told if event["event"] == "aborted"],
    )
