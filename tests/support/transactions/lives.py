"""Exactly once under kills: lives of clients/members/exactly_once.py that end suddenly, and what came out of them."""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from support.clients.confluent import values_by_partition, write
from support.databases.servers import Server
from support.databases.targets import Database, postgresql_database, sqlite_database
from support.groups.members import PROGRAMS, Member

PARTITIONS = 3
N, LAST_N = 10, 500  # records of a batch, in lives that end suddenly and in the last one
MOST_TIMES = 3  # a life ends at the third batch at the latest
DIED = 42  # exit codes
KILLED = -signal.SIGKILL

Life = list[Any]
COLUMNS = "partition_index INTEGER, number BIGINT"


def seed() -> int:
    return int(os.environ.get("MOLDAU_SEED", time.time_ns() % 1_000_000))


# ── what comes out ──────────────────────────────────────────────────────────────────────────────────────────────────


class Output(Protocol):
    """Where a worker writes the numbers that it reads."""

    settings: dict[str, Any]  # of the worker
    at_start: tuple[str, ...]  # steps of a life's start, and of each of its batches
    of_a_batch: tuple[str, ...]

    def count(self, *, uncommitted: bool = False) -> int:
        """How many different numbers there are; `uncommitted`: in open transactions too, where they can be seen."""
        ...

    def check(self, count: int) -> None:
        """Check that each number is there once, and that those of a partition are in order."""
        ...


def check_numbers(partition: int, found: list[int], count: int) -> None:
    """Check that all numbers of a partition are there, once, in order; if not, say which are wrong."""
    wanted, times = range(partition, count, PARTITIONS), Counter(found)
    lost = [number for number in wanted if not times[number]]
    twice = [number for number in times if times[number] > 1]
    late = [after for before, after in pairwise(found) if after < before]
    wrong = f"partition {partition}, {count} numbers: lost {lost[:20]}, more than once {twice[:20]}, late {late[:20]}"
    assert found == [*wanted], wrong


@dataclass
class Rows:
    """A table."""

    database: Database
    settings: dict[str, Any]
    at_start = ("prepare", "claim")
    of_a_batch = ("begin", "advance", "commit", "done", "lag")

    def count(self, *, uncommitted: bool = False) -> int:
        return int(self.database.rows("SELECT count(DISTINCT number) FROM output")[0][0])

    def check(self, count: int) -> None:
        rows = self.database.rows("SELECT partition_index, number FROM output ORDER BY id")
        for partition in range(PARTITIONS):
            check_numbers(partition, [number for index, number in rows if index == partition], count)
        assert len(rows) == count


@dataclass
class Copies:
    """A topic."""

    bootstrap: str
    topic: str
    settings: dict[str, Any]
    at_start = ()
    of_a_batch = ("begin_transaction", "send_offsets", "commit_transaction", "done")

    def count(self, *, uncommitted: bool = False) -> int:
        found = self._values("read_uncommitted" if uncommitted else "read_committed")
        return len({value for part in found for value in part})

    def check(self, count: int) -> None:
        for partition, found in enumerate(self._values("read_committed")):
            check_numbers(partition, [*map(int, found)], count)

    def _values(self, isolation: str) -> list[list[str]]:
        return values_by_partition(self.bootstrap, self.topic, PARTITIONS, isolation)


def sqlite_rows(file: Path) -> Rows:
    made = sqlite_database(file)
    made.change("PRAGMA journal_mode=WAL")
    made.change(f"CREATE TABLE output (id INTEGER PRIMARY KEY AUTOINCREMENT, {COLUMNS})")
    return Rows(made, {"database": str(file)})


def postgresql_rows(server: Server) -> Rows:
    made = postgresql_database(server)
    made.change("DROP TABLE IF EXISTS output")
    made.change(f"CREATE TABLE output (id BIGSERIAL, {COLUMNS})")
    return Rows(made, {"database": made.url})


def copies(bootstrap: str, topic: str, transactional_id: str) -> Copies:
    return Copies(bootstrap, topic, {"target": topic, "transactional_id": transactional_id})


# ── what goes in, and who is killed ─────────────────────────────────────────────────────────────────────────────────


def fill(bootstrap: str, topic: str, lives: int, after: int = 0) -> int:
    """Write numbers, more than all lives together get through; returns how many there are.

    Idempotent: a write that is repeated, to a leader that is not ready yet, must neither repeat nor reorder numbers.
    """
    count = after + (lives + 10) * N * MOST_TIMES
    records = ({"value": str(number), "partition": number % PARTITIONS} for number in range(after, count))
    write(bootstrap, topic, records, enable_idempotence=True)
    return count


def plan(dice: random.Random, output: Output, count: int) -> list[Life]:
    """So many lives that end at every step, or at random moments: each way once, if there are enough lives."""
    ways: list[Life] = [[step, when, 1] for step in output.at_start for when in ("before", "after")]
    ways += [[step, when, MOST_TIMES] for step in output.of_a_batch for when in ("before", "after")]
    ways += [["body", "", MOST_TIMES], *([["kill", 0.02]] * max(1, len(ways) // 3))]
    dice.shuffle(ways)
    lives = (ways * (count // len(ways) + 1))[:count]
    return [
        ["kill", dice.uniform(0, life[1])] if life[0] == "kill" else [*life[:2], dice.randint(1, life[2])]
        for life in lives
    ]


@contextmanager
def workers(**common: Any) -> Iterator[Callable[..., Member]]:
    """Start workers with these settings and more: by default with one life, which goes on until it is told to leave."""
    started: list[Member] = []

    def start(**given: Any) -> Member:
        settings = {"name": "worker", "n": N, "last_n": LAST_N, "lives": [], **common, **given}
        started.append(Member((sys.executable, str(PROGRAMS / "exactly_once.py")), settings))
        return started[-1]

    try:
        yield start
    finally:
        for worker in started:
            worker.stop_for_good()
            for stopped in worker.told("stopped"):
                with suppress(ProcessLookupError):
                    os.kill(stopped["pid"], signal.SIGKILL)


def wake_up(zombie: Member) -> None:
    os.kill(zombie.wait_for("stopped")["pid"], signal.SIGCONT)


def check_ends(worker: Member, lives: list[Life]) -> None:
    """Check that each life ended as it was planned."""
    ended = worker.told("ended")
    assert [event["life"] for event in ended][: len(lives)] == lives, worker.last_words()
    wrong = [event for event in ended if event["life"] != "last" and event["code"] not in (DIED, KILLED)]
    assert not wrong, f"{wrong} {''.join(worker.errors[-60:])}"
