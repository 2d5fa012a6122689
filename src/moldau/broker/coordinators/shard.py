"""Shard: a partition of a coordinator's topic that this broker leads, with its state machine and pending replies.

A shard ends with the leader epoch it was opened in. The next leader replays the log.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from moldau.base.coordination import Decision, TimerKey
from moldau.base.errors import WireError
from moldau.base.later import Later
from moldau.broker.coordinators.turn_batch import TurnBatch
from moldau.replication.partition import Partition

M = TypeVar("M")


class PendingReply:
    """The token of a command: its reply, and how to make a response of an error. The type of response varies."""

    __slots__ = ("refused", "reply")

    def __init__(self, reply: Later[Any], refused: Callable[[WireError], Any]) -> None:
        self.reply = reply
        self.refused = refused


class PendingAppend:
    """An append that is applied and not committed yet. Decisions based on it are answered once it is."""

    __slots__ = ("deadline", "decisions", "done")

    def __init__(self, deadline: float, done: Callable[[WireError], None] | None = None) -> None:
        self.decisions: list[Decision] = []  # the appended one, and later ones that depend on it
        self.deadline = deadline  # of the loop's clock: replies do not wait longer
        self.done = done  # called with the outcome, too


class Shard(Generic[M]):
    __slots__ = (
        "append_error",
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
        "turn_batch",
        "waiting",
    )

    def __init__(self, index: int, partition: Partition, machine: M) -> None:
        self.index = index
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.machine = machine
        self.loading: asyncio.Task[None] | None = None  # set until the log is replayed
        self.task: asyncio.Task[None] | None = None  # the same, until the replayed log is committed
        self.closed = False
        self.append_error: WireError | None = None  # of the last append, if it failed; logged once
        self.timers: dict[TimerKey, asyncio.TimerHandle] = {}
        self.turn_batch = TurnBatch()  # decided in this turn of the loop, not appended yet
        self.waiting: set[PendingReply] = set()
        self.pending: deque[PendingAppend] = deque()  # in the order of the log
        self.overdue: asyncio.TimerHandle | None = None  # fires when the first pending append is overdue

    @property
    def current(self) -> bool:
        """Whether this broker still leads the partition in the shard's leader epoch."""
        partition = self.partition
        return partition.leads and partition.leader_epoch == self.epoch and not partition.offline
