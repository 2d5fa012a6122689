"""One partition of a coordinator's topic while this broker leads it: its machine, and who waits for what. A value.

A shard lives as long as one leadership does. With it ends all that it knows: the next leader replays the log.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from moldau.base.coordination import Decision, TimerKey
from moldau.base.errors import WireError
from moldau.base.later import Later
from moldau.replication.partition import Partition

M = TypeVar("M")


class Asked(NamedTuple):
    """The token of a command: who gets the reply, and how it is told that there will be none."""

    reply: Later[Any]
    refused: Callable[[WireError], Any]


class Pending:
    """Something was appended and applied, and is not committed yet. What rests on it is answered when it is."""

    __slots__ = ("deadline", "decisions", "told")

    def __init__(self, deadline: float, told: Callable[[WireError], None] | None = None) -> None:
        self.decisions: list[Decision] = []  # the one that was appended, and those that saw it
        self.deadline = deadline  # of the loop's clock: nobody waits longer for an answer
        self.told = told  # hears the outcome as well


class Shard(Generic[M]):
    __slots__ = (
        "closed",
        "epoch",
        "index",
        "loading",
        "machine",
        "overdue",
        "partition",
        "pending",
        "task",
        "timers",
        "waiting",
    )

    def __init__(self, index: int, partition: Partition, machine: M) -> None:
        self.index = index
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.machine = machine
        self.loading: asyncio.Task[None] | None = None  # until the log is replayed
        self.task: asyncio.Task[None] | None = None  # the same, until all that was found there is committed
        self.closed = False
        self.timers: dict[TimerKey, asyncio.TimerHandle] = {}
        self.waiting: set[Asked] = set()
        self.pending: deque[Pending] = deque()  # in the order of the log
        self.overdue: asyncio.TimerHandle | None = None  # looks for those of them that take too long

    @property
    def current(self) -> bool:
        """Whether this broker still leads the partition as it did when the shard was opened."""
        partition = self.partition
        return partition.leads and partition.leader_epoch == self.epoch and not partition.offline
