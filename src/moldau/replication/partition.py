"""One partition on this broker: its log, its leadership and who waits for it.

Order is fixed in `_append`: what comes before it is checks, what comes after is waiting. A partition whose only replica
is here has no `role`: what is appended is committed, and the high watermark is the end of the log. Otherwise it is
`Leader` or `Follower`, which know what is committed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import Epoch, TopicPartition
from moldau.base.later import Later, NowOrLater
from moldau.log import validate
from moldau.log.files import passing
from moldau.log.header import RawHeader
from moldau.log.log import Log
from moldau.log.markers import Marker, encode_marker
from moldau.log.producers import NOT_ASKED, STRICT_MARKERS, Verification
from moldau.log.retention import retire
from moldau.log.segment import CorruptLogError
from moldau.metadata.image import PartitionState
from moldau.replication import inspection
from moldau.replication.disk_full import describe
from moldau.replication.flusher import Flusher
from moldau.replication.follower import Follower
from moldau.replication.lane import Job, Lane
from moldau.replication.leader import ALL, NOT_LEADER, Leader
from moldau.replication.owners import NO_OWNER, PartitionOwner
from moldau.replication.roles import Surroundings
from moldau.replication.standing import Role, Standing, assigned, removed
from moldau.replication.waiters import Copier, FetchWaiter
from moldau.wire.batch import CODEC_MASK, HEADER, TRANSACTIONAL
from moldau.wire.compression import Codec
from moldau.wire.records import encode_pairs

logger = logging.getLogger("moldau.replication")

ZSTD_SINCE = 7  # the produce version that first knew zstd
NEVER = 2**63 - 1  # flush.messages and flush.ms: left to the operating system
NO_APPEND_TIME = -1
ZSTD = int(Codec.ZSTD)
_ATTRIBUTES, _LAST_DELTA, _PRODUCER_ID = 5, 6, 9  # places in a raw batch header


class Appended(NamedTuple):
    base_offset: int
    append_time: int  # -1 unless the topic stamps records itself
    log_start: int


Outcome = Appended | Refusal


class Stoppable(Protocol):
    async def stop(self) -> None: ...


class Partition:
    __slots__ = (
        "_dirty_since",
        "_lane",
        "cleaning",
        "copiers",
        "flusher",
        "index",
        "internal",
        "leader_epoch",
        "log",
        "owner",
        "place",
        "role",
        "sole_online_replica",
        "standing",
        "state",
        "topic",
        "topic_partition",
        "waiters",
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
        self.waiters: set[FetchWaiter] = set()
        self.place = (log.topic_id.bytes, index)
        self.copiers: dict[int, Copier] = {}  # followers that copy it, by broker
        self.cleaning: Stoppable | None = None  # while its log is compacted
        self.flusher = Flusher(log, self.write_failed)
        self._dirty_since: int | None = None
        self._lane = Lane()

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
        """Where readers of committed records end: before it every transaction is committed or aborted."""
        return self.log.last_stable_offset(self.high_watermark)

    def fenced(self, claimed: int) -> WireError:
        """What a client hears that claims a leader epoch other than the current one; NONE where they agree."""
        if claimed in (-1, self.leader_epoch):
            return WireError.NONE
        return WireError.FENCED_LEADER_EPOCH if claimed < self.leader_epoch else WireError.UNKNOWN_LEADER_EPOCH

    def not_led(self) -> WireError:
        return WireError.NONE if self.standing.leads else WireError.NOT_LEADER_OR_FOLLOWER

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to the asked one, and where it ended. An empty log knows its current epoch too."""
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        return self.log.end_offset_for_epoch(epoch)

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at an offset, -1 if unknown. In an empty log the first one will be of the current."""
        return self.leader_epoch if offset == self.log.end_offset else self.log.epochs.epoch_of(offset)

    # ── leading and following ──

    def assign(self, state: PartitionState, around: Surroundings, high_watermark: int | None = None) -> None:
        """Take the part that the image gives to this broker. `high_watermark`: what is known of it, at the start."""
        old, self.state = self.state, state
        here, end = around.node_id, self.log.end_offset
        known = min(max(self.high_watermark if high_watermark is None else high_watermark, self.log.start_offset), end)
        standing = assigned(self.standing, here, old, state, end, high_watermark)
        self.stand(standing)
        if standing.role is Role.FOLLOWER:
            self._follow(state, around, known, old)
        elif standing.role is Role.SOLE:
            self._lead_alone()
        else:
            self._lead(state, around, known, old)
            if standing.must_resign and isinstance(self.role, Leader):
                self.role.resign()  # the controller may not know that it cannot lead, and have elected it again
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

    def _lead(self, state: PartitionState, around: Surroundings, known: int, old: PartitionState | None) -> None:
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
            self.role = leader = Leader(self, state, around, known, end)
            leader.count()
            leader.advance()
        self.changed()

    def _follow(self, state: PartitionState, around: Surroundings, known: int, old: PartitionState | None) -> None:
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
            self.copiers.clear()

    def dismiss(self) -> None:
        """The partition is not this broker's any more: whoever waits here has to look for it elsewhere."""
        self.stand(removed(self.standing))
        if isinstance(self.role, Leader):
            self.role.end()
            self.role.isr.drop_wish()
        self.changed()

    def unwritable(self, acks: int) -> Refusal | None:
        """Why nothing may be appended here just now, by whoever wants this many replicas to have it."""
        if self.sole_online_replica:
            return None
        if self.standing.offline:
            return Refusal.of(WireError.KAFKA_STORAGE_ERROR)
        if not self.standing.leads:
            return NOT_LEADER
        return self.role.refusal(acks) if isinstance(self.role, Leader) else None

    def tell_readers(self, size: int, stable: int) -> int:
        """So many bytes were committed; the last stable offset was `stable`, and what it is now is returned."""
        now_stable = self.last_stable_offset
        if self.copiers:
            self.touch()
        for waiter in self.waiters:
            if waiter.follower:
                waiter.fire_soon()
            elif not waiter.committed:
                waiter.grown(size)
            elif now_stable > stable:
                waiter.grown(self.bytes_between(stable, now_stable))
        return now_stable

    def bytes_between(self, start: int, end: int) -> int:
        """As the log says, for who waits. If it cannot be read, that is no reason not to tell the others."""
        try:
            return self.log.segments.bytes_between(start, end)
        except (CorruptLogError, OSError) as problem:
            logger.error("reading %s-%d failed: %s", self.topic, self.index, problem)
            self.cannot_read(problem)
            return end - start

    async def committed(self, offset: int) -> None:
        """Until all records before this offset are committed, or somebody else leads."""
        role = self.role
        if isinstance(role, Leader) and role.high_watermark < offset:
            reached = asyncio.Event()
            later: Later[Outcome] = Later()
            later.then(lambda _: reached.set())
            role.await_commit(offset, Appended(offset, NO_APPEND_TIME, self.log.start_offset), later)
            await reached.wait()

    # ── writing ──

    def produce(
        self, batch: memoryview, version: int, now: int, proof: Verification | None = None, acks: int = 1
    ) -> NowOrLater[Outcome]:
        """Check and append one batch of a client.

        `proof`: how its transaction was verified; None for a request without a transactional id.
        """
        if not self.sole_online_replica:
            refusal = self.unwritable(acks)
            if refusal is not None:
                return refusal
        config = self.log.config
        header = validate.check(batch, config, now)
        if isinstance(header, Refusal):
            if header.error is WireError.INVALID_TIMESTAMP:  # the header tells that it is so; clients ask which records
                wrong = header
                return self._enter_lane(batch, lambda copy: inspection.blame(copy, config, now, wrong), now, None, acks)
            return header
        attributes = header[_ATTRIBUTES]
        if attributes & TRANSACTIONAL and proof is None:
            return Refusal(
                WireError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "A batch that is part of a transaction needs a request with a transactional id.",
            )
        codec = attributes & CODEC_MASK
        if codec == ZSTD and version < ZSTD_SINCE:
            return Refusal(WireError.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce version 7 or later")
        if self._lane.busy or inspection.needed(config, codec):
            return self._enter_lane(batch, lambda copy: inspection.inspect(copy, config), now, proof, acks)
        outcome = self._append(header, batch, now, proof)
        if self.role is None and config.flush_messages == NEVER:
            return outcome
        return self._settle(outcome, header[_LAST_DELTA], acks, None)

    def _settle(self, outcome: Outcome, delta: int, acks: int, later: Later[Outcome] | None) -> NowOrLater[Outcome]:
        """The outcome, or if it has to wait for the disk or for followers, a `Later` that gets it afterwards."""
        if isinstance(outcome, Refusal):
            return outcome
        log, appended, role = self.log, outcome, self.role
        later = later or Later()
        end = log.end_offset
        if log.config.flush_messages == NEVER or end - log.recovery_point < log.config.flush_messages:
            return self._await_commit(appended, delta, acks, later)

        def flushed(refusal: Refusal | None) -> None:
            if isinstance(role, Leader) and self.role not in (role, None):
                later.resolve(NOT_LEADER)  # others led meanwhile: another record may be in its place
            elif refusal is not None:
                later.resolve(refusal)
            else:
                settled = self._await_commit(appended, delta, acks, later)
                if not isinstance(settled, Later):
                    later.resolve(settled)

        self.flusher.when_durable(end, flushed)
        return later

    def _await_commit(self, outcome: Appended, delta: int, acks: int, later: Later[Outcome]) -> NowOrLater[Outcome]:
        role = self.role
        if acks != ALL or role is None:
            return outcome
        if not isinstance(role, Leader):
            return NOT_LEADER
        return role.await_commit(outcome.base_offset + delta + 1, outcome, later)

    def _enter_lane(
        self,
        batch: memoryview,
        work: Callable[[bytes], bytes | Refusal],
        now: int,
        proof: Verification | None,
        acks: int,
    ) -> Refusal | Later[Outcome]:
        if self._lane.full:
            return Refusal(WireError.REQUEST_TIMED_OUT, "too many batches wait for their records to be checked")
        copy = bytes(batch)  # the frame is borrowed, and the thread comes later
        later: Later[Outcome] = Later()

        def finish(inspected: bytes | Refusal) -> None:
            if isinstance(inspected, Refusal):
                later.resolve(inspected)
                return
            outcome = self._append_inspected(inspected, now, proof, acks)
            settled = self._settle(outcome, HEADER.unpack_from(inspected)[_LAST_DELTA], acks, later)
            if not isinstance(settled, Later):
                later.resolve(settled)

        self._lane.enter(Job(len(copy), lambda: work(copy), finish))
        return later

    def take_turn(self, work: Callable[[], bytes | Refusal], finish: Callable[[bytes | Refusal], None]) -> None:
        """`work` in a thread, then `finish`, between the batches that came before this and those that come after."""
        self._lane.enter(Job(0, work, finish))

    def adopt(self, log: Log) -> None:
        """Go on with another log of the same records."""
        old = self.log
        log.configure(old.config)
        log.on_roll, old.on_roll = old.on_roll, None
        log.producer_state.unreplicated = old.producer_state.unreplicated  # the batches do not tell
        log.epochs.load(old.epochs.entries())  # nor do they of leaders whose first ones were compacted
        self.log = log
        self.flusher = Flusher(log, self.write_failed)

    def _append_inspected(self, batch: bytes, now: int, proof: Verification | None, acks: int) -> Outcome:
        """The end of the slow lane. Whatever happens there is an outcome, since a producer waits for one."""
        try:
            refusal = self.unwritable(acks)
            if refusal is not None:
                return refusal
            view = memoryview(batch)
            header = validate.check(view, self.log.config, now)
            return header if isinstance(header, Refusal) else self._append(header, view, now, proof)
        except Exception:
            logger.exception("appending to %s-%d failed", self.topic, self.index)
            return Refusal.of(WireError.UNKNOWN_SERVER_ERROR)

    def write_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now: int,
    ) -> NowOrLater[Outcome]:
        """End a producer's transaction here, and let readers of committed records see what was behind it (KIP-98)."""
        if not self.standing.leads:
            return NOT_LEADER
        producers = self.log.producers
        refusal = producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        if refusal is not None:
            return refusal
        stable = self.last_stable_offset
        batch = encode_marker(producer_id, producer_epoch, Marker(commit, coordinator_epoch), now)
        outcome = self._append_own(batch, now)
        if transaction_version < STRICT_MARKERS:
            producers.void(producer_id)
        if self.waiters and self.role is None:
            self._tell_decided(stable)
        return outcome

    def append_records(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        now: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
    ) -> NowOrLater[Outcome]:
        """Append keys and values of a coordinator of ours as one batch; with `transactional`, as part of a transaction.

        Whether the transaction includes this partition is the caller's to know. It is answered when it is committed.
        """
        if not self.standing.leads:
            return NOT_LEADER
        if producer_id >= 0:
            refusal = self.log.producers.check_epoch(producer_id, producer_epoch)
            if refusal is not None:
                return refusal
        attributes = TRANSACTIONAL if transactional else 0
        batch = encode_pairs(
            records, now, attributes=attributes, producer_id=producer_id, producer_epoch=producer_epoch
        )
        return self._append_own(batch, now)

    def _append_own(self, batch: bytes, now: int) -> NowOrLater[Outcome]:
        """Append a batch that this broker made: it waits for no other, and its sequence is not checked."""
        refusal = self.unwritable(ALL)
        if refusal is not None:
            return refusal
        if self.standing.moving:
            return Refusal(WireError.NOT_LEADER_OR_FOLLOWER, "the partition is moving to another directory")
        config = self.log.config
        if len(batch) > config.max_message_bytes or len(batch) > config.segment_bytes:
            return Refusal(WireError.MESSAGE_TOO_LARGE, f"A batch of {len(batch)} bytes is too large for its topic.")
        header: RawHeader = HEADER.unpack_from(batch)
        outcome = self._append(header, memoryview(batch), now, None, own=True)
        if self.role is None and config.flush_messages == NEVER:
            return outcome
        return self._settle(outcome, header[_LAST_DELTA], ALL, None)

    def _append(
        self, header: RawHeader, batch: memoryview, now: int, proof: Verification | None, *, own: bool = False
    ) -> Outcome:
        log = self.log
        if header[_PRODUCER_ID] >= 0 and not own:
            known = log.producer_state.check(header, log.start_offset, proof or NOT_ASKED)
            if known is not None:
                if isinstance(known, Refusal):
                    return self.role.final(known) if isinstance(self.role, Leader) else known
                return Appended(known.base_offset, known.timestamp, log.start_offset)  # as Kafka, whatever the type
        append_time = NO_APPEND_TIME
        if log.config.message_timestamp_type == "LogAppendTime":
            append_time = now
            header, stamped = validate.stamp(header, batch, now)
            batch = memoryview(stamped)
        try:
            base_offset = log.append(header, batch, self.leader_epoch, now)
        except OSError as problem:
            return self.write_failed(problem, "Appending to")
        if self.role is not None:
            assert isinstance(self.role, Leader)
            self.role.appended(base_offset, log.end_offset, len(batch))
        elif self.waiters:
            self._tell_waiters(base_offset, len(batch))
        return Appended(base_offset, append_time, log.start_offset)

    def _tell_waiters(self, base_offset: int, size: int) -> None:
        """A batch of so many bytes was appended; readers of committed records may have to wait for it still."""
        decided = size if self.last_stable_offset > base_offset else 0
        for waiter in self.waiters:
            waiter.grown(decided if waiter.committed else size)

    def _tell_decided(self, stable: int) -> None:
        """A marker was written. What lay between the last stable offset before it and the one now is decided."""
        now_stable = min(self.last_stable_offset, self.log.end_offset - 1)  # the marker itself was told of
        waiters = [waiter for waiter in self.waiters if waiter.committed]
        if waiters and now_stable > stable:
            decided = self.log.segments.bytes_between(stable, now_stable)
            for waiter in waiters:
                waiter.grown(decided)

    def write_failed(self, problem: OSError, action: str) -> Refusal:
        """A full disk is waited for; a broken one takes its log directory offline. Returns the error for clients."""
        if passing(problem):
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
        if self.role is None or (isinstance(problem, OSError) and passing(problem)):
            return  # no other replica has a copy; or the log is fine
        self.stand(replace(self.standing, corrupt=True))
        if isinstance(self.role, Leader) and len(self.role.isr.committed) > 1:
            self.role.resign()
        self.owner.log_corrupt(self)

    def go_offline(self) -> None:
        """Its disk failed: what is on it cannot be trusted before a restart has checked it."""
        self.stand(replace(self.standing, offline=True))
        if isinstance(self.role, Leader):
            self.role.end(Refusal.of(WireError.KAFKA_STORAGE_ERROR))
            self.role.resign()
        self.changed()

    def flush_if_due(self, now: int) -> None:
        """flush.ms: records do not stay off the disk for longer than that. Called from time to time."""
        log = self.log
        offline = self.standing.offline
        if self.flusher.put_off and not offline:
            self.flusher.soon()
        if offline or log.config.flush_ms == NEVER or log.end_offset <= log.recovery_point:
            self._dirty_since = None
            return
        if self._dirty_since is None:
            self._dirty_since = now
        if now - self._dirty_since >= log.config.flush_ms:
            self._dirty_since = None
            self.flusher.soon()

    def retire(self, now: int) -> list[Path]:
        """Retention: files of segments that left the log, to be removed later."""
        if self.standing.offline or self.standing.moving:
            return []
        removed: list[Path] = []
        try:
            removed = retire(self.log, now, self.high_watermark)
            self.log.roll_if_due(now)  # behind it: a full disk may have no room for a new segment
        except OSError as problem:
            self.write_failed(problem, "Retention of")
        return removed

    def touch(self) -> None:
        """There is something to tell to followers that copy this partition."""
        for copier in self.copiers.values():
            copier.touch(self.place, 0)

    def changed(self) -> None:
        """The partition is not what it was (deleted, truncated): whoever waits for it has to look again."""
        self.touch()
        for waiter in list(self.waiters):
            waiter.fire_soon()

    async def left_alone(self) -> None:
        """Until nobody else works on its log: what is about to be cut off would come back with what they write."""
        if self.cleaning is not None:
            await self.cleaning.stop()
        await self._lane.stop()
        await self.flusher.stop()

    async def stop(self) -> None:
        await self.left_alone()
        self.changed()
