"""One partition on this broker: its log, its standing, its role, and the fetches that wait for it.

A partition whose only replica is here has no `role` object: what is appended is committed, and the high watermark is
the end of the log. Otherwise the role is a `Leader` or a `Follower`, which know what is committed. Batches are appended
by its `Appender`.
"""

import asyncio
import logging
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import Epoch, Offset, TopicIdPartition, TopicPartition
from moldau.base.later import Later
from moldau.log.files import is_transient
from moldau.log.log import Log
from moldau.log.retention import delete_old_segments
from moldau.log.segment import CorruptLogError
from moldau.metadata.image import PartitionState
from moldau.replication.appender import FLUSHED_BY_OS, NO_APPEND_TIME, Appended, Appender, Outcome
from moldau.replication.cluster_view import ClusterView
from moldau.replication.delayed_fetch import DelayedFetch, FollowerSession
from moldau.replication.disk_full import describe
from moldau.replication.flusher import Flusher
from moldau.replication.follower import Follower
from moldau.replication.leader import Leader
from moldau.replication.owners import NO_OWNER, PartitionOwner
from moldau.replication.standing import Role, Standing, assigned, removed

logger: Final = logging.getLogger("moldau.replication")


class Stoppable(Protocol):
    async def stop(self) -> None: ...


class Partition:
    __slots__ = (
        "_dirty_since",
        "appender",
        "cleaning",
        "delayed_fetches",
        "flusher",
        "follower_sessions",
        "index",
        "internal",
        "leader_epoch",
        "log",
        "owner",
        "role",
        "sole_online_replica",
        "standing",
        "state",
        "topic",
        "topic_id_partition",
        "topic_partition",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        log: Log,
        leader_epoch: Epoch,
        *,
        internal: bool = False,
        standing: Standing = Standing(),  # noqa: B008 - frozen
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_partition = TopicPartition(topic, index)
        self.log = log
        self.leader_epoch = leader_epoch
        self.internal = internal  # of a topic that only the broker writes to
        self.state: PartitionState | None = None  # as the image has it; None in tests of a partition alone
        self.role: Leader | Follower | None = None  # None: the only replica is here
        self.stand(standing)
        self.owner: PartitionOwner = NO_OWNER
        self.delayed_fetches: set[DelayedFetch] = set()
        self.topic_id_partition = TopicIdPartition(log.topic_id.bytes, index)
        self.follower_sessions: dict[int, FollowerSession] = {}  # followers that copy it, by broker
        self.cleaning: Stoppable | None = None  # while its log is compacted
        self.flusher = Flusher(log, self.write_failed)
        self._dirty_since: int | None = None
        self.appender = Appender(self)

    @property
    def name(self) -> str:
        return str(self.topic_partition)

    @property
    def leads(self) -> bool:
        return self.standing.leads

    @property
    def offline(self) -> bool:
        return self.standing.offline

    @property
    def high_watermark(self) -> int:
        role = self.role
        return self.log.end_offset if role is None else role.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed consumers end: before it every transaction is committed or aborted."""
        return self.log.last_stable_offset(self.high_watermark)

    def fenced(self, claimed: int) -> WireError:
        """The error for a client with another leader epoch; NONE where they agree."""
        if claimed in (-1, self.leader_epoch):
            return WireError.NONE
        return WireError.FENCED_LEADER_EPOCH if claimed < self.leader_epoch else WireError.UNKNOWN_LEADER_EPOCH

    def not_led(self) -> WireError:
        return WireError.NONE if self.standing.leads else WireError.NOT_LEADER_OR_FOLLOWER

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch`, and its end offset. An empty log knows its current epoch too."""
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        return self.log.end_offset_for_epoch(epoch)

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at an offset, -1 if unknown. In an empty log the first one will be of the current."""
        return self.leader_epoch if offset == self.log.end_offset else self.log.epochs.epoch_of(offset)

    # ── leading and following ──

    def assign(self, state: PartitionState, cluster: ClusterView, high_watermark: int | None = None) -> None:
        """Take the role that the image gives to this broker. `high_watermark`: from the checkpoint, at the start."""
        old, self.state = self.state, state
        here, end = cluster.node_id, self.log.end_offset
        known = min(max(self.high_watermark if high_watermark is None else high_watermark, self.log.start_offset), end)
        standing = assigned(self.standing, here, old, state, end, high_watermark)
        self.stand(standing)
        if standing.role is Role.FOLLOWER:
            self._follow(state, cluster, known, old)
        elif standing.role is Role.SOLE:
            self._lead_alone()
        else:
            self._lead(state, cluster, known, old)
            if standing.must_resign and isinstance(self.role, Leader):
                self.role.resign()  # the controller may have elected it again without knowing
        self.leader_epoch = state.leader_epoch

    def stand(self, standing: Standing) -> None:
        self.standing = standing
        self.sole_online_replica = standing.sole_online_replica  # one attribute: every request asks for it

    def _lead_alone(self) -> None:
        role, self.role, self.log.producer_state.unreplicated = self.role, None, None
        if isinstance(role, Leader):
            role.end_alone()
        if role is not None:
            self.changed()

    def _lead(self, state: PartitionState, cluster: ClusterView, known: int, old: PartitionState | None) -> None:
        role, end = self.role, self.log.end_offset
        if self.standing.leads and state.leader_epoch > self.log.epochs.latest:
            # KIP-101: the epoch begins here, even without a record. Not if this replica cannot lead: it may have lost
            # records of this very epoch, and the epoch began elsewhere.
            self.log.epochs.assign(state.leader_epoch, end)
        if isinstance(role, Leader) and old is not None and old.leader_epoch == state.leader_epoch:
            role.adopt(state)
            return
        if self.log.producer_state.unreplicated is None:
            self.log.producer_state.unreplicated = deque()
        if isinstance(role, Leader):
            role.begin_epoch(state, end)
        else:
            self.role = leader = Leader(self, state, cluster, known, end)
            leader.count()
            leader.advance()
        self.changed()

    def _follow(self, state: PartitionState, cluster: ClusterView, known: int, old: PartitionState | None) -> None:
        role = self.role
        if self.log.producer_state.unreplicated is None:
            self.log.producer_state.unreplicated = deque()
        if isinstance(role, Leader):
            role.end()
        if isinstance(role, Follower):
            role.leader = state.leader
        else:
            self.role = Follower(self, state, known)
        if old is None or (old.leader, old.leader_epoch) != (state.leader, state.leader_epoch):
            self.changed()
            self.follower_sessions.clear()

    def adopt(self, log: Log) -> None:
        """Continue with another log of the same records."""
        old = self.log
        log.configure(old.config)
        log.on_roll, old.on_roll = old.on_roll, None
        log.producer_state.unreplicated = old.producer_state.unreplicated  # the batches do not tell
        log.epochs.load(old.epochs.entries())  # nor do they of leaders whose first ones were compacted
        self.log = log
        self.flusher = Flusher(log, self.write_failed)

    def dismiss(self) -> None:
        """The partition was taken from this broker: delayed fetches and produces are answered now."""
        self.stand(removed(self.standing))
        if isinstance(self.role, Leader):
            self.role.end()
            self.role.isr.drop_pending()
        self.changed()

    def tell_readers(self, size: int, stable: int) -> int:
        """So many bytes were committed; the last stable offset was `stable`. Returns the new one."""
        now_stable = self.last_stable_offset
        if self.follower_sessions:
            self.touch()
        for delayed in self.delayed_fetches:
            if delayed.follower:
                delayed.fire_soon()
            elif not delayed.read_committed:
                delayed.grown(size)
            elif now_stable > stable:
                delayed.grown(self.bytes_between(stable, now_stable))
        return now_stable

    def tell_appended(self, base_offset: Offset, size: int) -> None:
        """A sole replica appended a batch. What is after the last stable offset does not count for read_committed."""
        decided = size if self.last_stable_offset > base_offset else 0
        for delayed in self.delayed_fetches:
            delayed.grown(decided if delayed.read_committed else size)

    def tell_decided(self, stable: Offset) -> None:
        """A sole replica wrote a marker: the last stable offset was `stable`."""
        now_stable = min(self.last_stable_offset, self.log.end_offset - 1)  # the marker itself was told of
        read_committed = [delayed for delayed in self.delayed_fetches if delayed.read_committed]
        if read_committed and now_stable > stable:
            decided = self.log.segments.bytes_between(stable, now_stable)
            for delayed in read_committed:
                delayed.grown(decided)

    def bytes_between(self, start: int, end: int) -> int:
        """Bytes between two offsets; an estimate if the log cannot be read, which is reported."""
        try:
            return self.log.segments.bytes_between(start, end)
        except (CorruptLogError, OSError) as problem:
            logger.error("Reading %s failed: %s", self.name, problem)
            self.cannot_read(problem)
            return end - start

    async def await_committed(self, offset: int) -> None:
        """Wait until all records before this offset are committed, or another broker leads."""
        role = self.role
        if isinstance(role, Leader) and role.high_watermark < offset:
            reached = asyncio.Event()
            later: Later[Outcome] = Later()
            later.then(lambda _: reached.set())
            role.await_commit(offset, Appended(offset, NO_APPEND_TIME, self.log.start_offset), later)
            await reached.wait()

    def write_failed(self, problem: OSError, action: str) -> Refusal:
        """A full disk is waited for; a broken one takes its log directory offline. Returns the error for clients."""
        if is_transient(problem):
            self.owner.disk_full(self, problem)
            return self._disk_full(problem)
        logger.error("%s %s failed, and its log directory goes offline: %s", action, self.name, problem)
        self.fail(problem)
        return Refusal(WireError.KAFKA_STORAGE_ERROR, f"The disk of {self.name} failed: {problem.strerror}.")

    def _disk_full(self, problem: OSError) -> Refusal:
        message = describe(self.name, Path(self.log.directory).parent, problem)
        return Refusal(WireError.KAFKA_STORAGE_ERROR, message)

    def fail(self, problem: OSError) -> None:
        """The disk failed, and with it every partition in the same log directory."""
        self.go_offline()
        self.owner.disk_failed(self, problem)

    def cannot_read(self, problem: Exception | None = None) -> None:
        """The log is corrupt. A leader resigns if another in-sync replica can take over."""
        if self.role is None or (isinstance(problem, OSError) and is_transient(problem)):
            return  # no other replica has a copy; or the log is fine
        self.stand(replace(self.standing, corrupt=True))
        if isinstance(self.role, Leader) and len(self.role.isr.committed_isr) > 1:
            self.role.resign()
        self.owner.log_corrupt(self)

    def go_offline(self) -> None:
        """The disk failed: its logs cannot be trusted before a restart has checked them."""
        self.stand(replace(self.standing, offline=True))
        if isinstance(self.role, Leader):
            self.role.end(Refusal.of(WireError.KAFKA_STORAGE_ERROR))
            self.role.resign()
        self.changed()

    def flush_if_due(self, now: int) -> None:
        """Apply flush.ms: flush records that are older. Called from time to time."""
        log = self.log
        offline = self.standing.offline
        if self.flusher.retry_later and not offline:
            self.flusher.soon()
        if offline or log.config.flush_ms == FLUSHED_BY_OS or log.end_offset <= log.recovery_point:
            self._dirty_since = None
            return
        if self._dirty_since is None:
            self._dirty_since = now
        if now - self._dirty_since >= log.config.flush_ms:
            self._dirty_since = None
            self.flusher.soon()

    def retire(self, now: int) -> list[Path]:
        """Apply retention; returns files of removed segments, to be deleted later."""
        if self.standing.offline or self.standing.moving:
            return []
        removed: list[Path] = []
        try:
            removed = delete_old_segments(self.log, now, self.high_watermark)
            self.log.roll_if_due(now)  # after retention: a full disk may have no space for a new segment
        except OSError as problem:
            self.write_failed(problem, "Retention of")
        return removed

    def touch(self) -> None:
        """Followers have to look at this partition."""
        for session in self.follower_sessions.values():
            session.touch(self.topic_id_partition, 0)

    def changed(self) -> None:
        """The partition was deleted, truncated or changed its role: delayed fetches have to look again."""
        self.touch()
        for delayed in list(self.delayed_fetches):
            delayed.fire_soon()

    async def quiesce(self) -> None:
        """Wait until no cleaner, flush or move writes to the log: they would bring truncated records back."""
        if self.cleaning is not None:
            await self.cleaning.stop()
        await self.appender.queue.stop()
        await self.flusher.stop()

    async def stop(self) -> None:
        await self.quiesce()
        self.changed()
