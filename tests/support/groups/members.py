"""Consumer groups of real clients: members are processes that report what they do, and can be killed and paused.

A test starts members with `Group.join`, disturbs them, and asks the group whether it settled, whether a partition ever
had two owners, and what was read. The programs that run as members are in clients/members.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.eventually import PATIENCE_S, eventually

PROGRAMS = Path(__file__).parents[2] / "clients" / "members"
SESSION_MS = 3000  # of classic members: long enough for a busy machine, short enough to wait for its end
HEARTBEAT_MS = 300

Place = tuple[str, int]


@dataclass(frozen=True)
class Kind:
    """A client, a group protocol, and the default assignor of tests."""

    client: str
    protocol: str = "classic"
    assignor: str = "range"
    built: tuple[str, ...] = ()  # the command, if it is not a Python program

    @property
    def command(self) -> tuple[str, ...]:
        return self.built or (sys.executable, str(PROGRAMS / f"{self.client.replace('-', '_')}_member.py"))

    def __str__(self) -> str:
        return f"{self.client}, {self.assignor}" if self.protocol == "classic" else f"{self.client}, consumer protocol"


CONFLUENT = Kind("confluent")
COOPERATIVE = Kind("confluent", assignor="cooperative-sticky")
AIOKAFKA = Kind("aiokafka")
KAFKA_PYTHON = Kind("kafka-python")
MODERN = Kind("confluent", "consumer", "uniform")
KINDS = (CONFLUENT, COOPERATIVE, AIOKAFKA, KAFKA_PYTHON, MODERN)


class Member:
    """One member process. `events` grows while it runs."""

    def __init__(self, command: tuple[str, ...], settings: dict[str, Any]) -> None:
        self.name = str(settings["name"])
        self.events: list[dict[str, Any]] = []
        self.away: list[int] = []  # times at which it was killed or paused, and lost its partitions
        self.process = subprocess.Popen(
            [*command, json.dumps(settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.errors: list[str] = []
        self.readers = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._keep_errors, daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # otherwise it was killed while writing it
                self.events.append(json.loads(line))

    def _keep_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    # -- its reports

    def told(self, event: str) -> list[dict[str, Any]]:
        return [each for each in list(self.events) if each["event"] == event]

    def owned(self) -> set[Place]:
        changes = self.told("owns")
        return {(topic, part) for topic, part in changes[-1]["partitions"]} if changes else set()

    def read(self) -> list[str]:
        return [value for event in self.told("read") for *_, value in event["records"]]

    def records(self) -> list[tuple[str, int, int, str]]:
        return [tuple(record) for event in self.told("read") for record in event["records"]]

    def refusals(self) -> list[str]:
        return [event["error"] for event in self.told("refused")]

    def wait_for(self, event: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        return eventually(lambda: self.told(event), f"{self.name} tells {event!r}", self.last_words, patience_s)[-1]

    def last_words(self) -> str:
        return f"{self.name}: {self.events[-5:]} {''.join(self.errors[-10:])}"

    # -- control

    def kill(self) -> None:
        """kill -9: it does not leave the group."""
        self.away.append(time.monotonic_ns())
        self.process.kill()
        self._end()

    def pause(self) -> None:
        self.away.append(time.monotonic_ns())
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def may_commit(self) -> None:
        """Let a member commit that was started with `hold`."""
        os.kill(self.process.pid, signal.SIGUSR1)

    def leave(self) -> None:
        """End cleanly: it commits, leaves its group and reports that."""
        self.process.terminate()
        self._end()
        assert self.told("left"), self.last_words()

    def wait(self) -> int:
        """Wait until it ends by itself; return its exit code."""
        self._end()
        return self.process.returncode

    def _end(self) -> None:
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"did not end: {self.last_words()}") from None
        for reader in self.readers:
            reader.join(PATIENCE_S)

    def running(self) -> bool:
        return self.process.poll() is None

    def stop_for_good(self) -> None:
        """Kill it at the end of a test, in whatever state it is."""
        if self.running():
            self.process.kill()
        self._end()

    def tenures(self) -> Iterator[tuple[Place, int, int]]:
        """Each partition that it owned, with start and end by its own reports; being killed or paused ends all."""
        since: dict[Place, int] = {}
        gone = [{"at": at, "partitions": []} for at in self.away]
        for change in sorted([*self.told("owns"), *gone], key=lambda each: each["at"]):
            now = {(topic, part) for topic, part in change["partitions"]}
            for place in [place for place in since if place not in now]:
                yield place, since.pop(place), change["at"]
            since |= {place: change["at"] for place in now if place not in since}
        for place, begun in since.items():
            yield place, begun, time.monotonic_ns()


class Group:
    """The members that one test starts, and checks of the group as a whole."""

    def __init__(self, bootstrap: str, name: str, topics: dict[str, int]) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.topics = topics  # with their numbers of partitions
        self.members: list[Member] = []

    @property
    def places(self) -> set[Place]:
        return {(topic, part) for topic, count in self.topics.items() for part in range(count)}

    def join(self, kind: Kind, **more: Any) -> Member:
        settings = {
            "name": f"member-{len(self.members)}",
            "bootstrap": self.bootstrap,
            "group": self.name,
            "topics": sorted(self.topics),
            "protocol": kind.protocol,
            "assignor": kind.assignor,
            "session_ms": SESSION_MS,
            "heartbeat_ms": HEARTBEAT_MS,
            **more,
        }
        member = Member(kind.command, settings)
        self.members.append(member)
        return member

    def settled(self, *members: Member) -> dict[str, set[Place]]:
        """Wait until exactly these members own all partitions, each one at least one; return the owners."""

        def assigned() -> dict[str, set[Place]] | None:
            owned = {member.name: member.owned() for member in members}
            count = Counter(place for places in owned.values() for place in places)
            complete = set(count) == self.places and set(count.values()) == {1}
            return owned if complete and all(owned.values()) else None

        return eventually(assigned, "all partitions are assigned", self.report)

    def read_by_all(self) -> Counter[str]:
        return Counter(value for member in self.members for value in member.read())

    def wait_until_read(self, values: Iterable[str]) -> Counter[str]:
        """Wait until each of the values was read; return how often."""
        wanted = set(values)

        def missing() -> set[str]:
            return wanted - set(self.read_by_all())

        eventually(lambda: not missing(), "all records are read", lambda: f"{len(missing())} missing; {self.report()}")
        return self.read_by_all()

    def check_one_owner(self) -> None:
        """Check that no partition ever had two owners, by the members' own reports."""
        tenures: dict[Place, list[tuple[int, int, str]]] = {}
        for member in self.members:
            for place, begun, ended in member.tenures():
                tenures.setdefault(place, []).append((begun, ended, member.name))
        for place, held in tenures.items():
            held.sort()
            for (_, ended, one), (begun, _, other) in itertools.pairwise(held):
                assert ended <= begun, f"{place} was {one}'s for another {ended - begun} ns when {other} had it"

    def report(self) -> str:
        return "\n".join(member.last_words() for member in self.members)

    def close(self) -> None:
        for member in self.members:
            member.stop_for_good()


Feed = Callable[[Group, int], list[str]]  # sends so many records to each partition; their values


def join_and_leave(group: Group, feed: Feed, kind: Kind, members: int) -> None:
    """Members join one by one, then leave. What one has committed, the next does not read again."""

    def settled(*present: Member) -> None:
        share = len(group.places) // len(present)
        assert even(group.settled(*present)) == [share] * len(present)

    sent = feed(group, 20)
    first = group.join(kind)
    settled(first)
    group.wait_until_read(sent)
    joined = [first]
    while len(joined) < members:
        joined.append(group.join(kind))
        settled(*joined)
    sent += feed(group, 20)
    count = group.wait_until_read(sent)
    while len(joined) > 1:
        joined.pop(0).leave()
        settled(*joined)
        sent += feed(group, 20)
        count = group.wait_until_read(sent)
    joined[0].leave()
    group.check_one_owner()
    if not any(member.refusals() for member in group.members):
        assert set(count.values()) == {1}, "read again although it was committed"


def replace_dead_member(group: Group, feed: Feed, kind: Kind) -> Member:
    """One of two members is killed; the other gets its partitions and reads on. Return the one that is left."""
    one, other = group.join(kind), group.join(kind)
    group.settled(one, other)
    sent = feed(group, 20)
    group.wait_until_read(sent)
    one.kill()
    sent += feed(group, 20)
    group.settled(other)
    group.wait_until_read(sent)
    group.check_one_owner()
    return other


def even(owned: dict[str, set[Place]]) -> list[int]:
    """Number of partitions of each member, in ascending order."""
    return sorted(map(len, owned.values()))
