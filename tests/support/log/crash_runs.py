"""Crash runs: seeded actions on a log directory until a power cut or the death of the process, then a check.

A run keeps a ledger of the guarantees: the batches written, the offset before which they are safe, the bounds of the
log start offset. After the crash the broker's own start-up opens the log, which is compared with the ledger. The same
seed of a guarantee always gives the same run.
"""

import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.log.checkpoints import CLEANER_OFFSETS, read_offsets, write_offsets
from moldau.log.compaction.choice import measure, plan
from moldau.log.compaction.rewriting import clean as rewrite
from moldau.log.compaction.swapping import Swaps
from moldau.log.compaction.work import Cleaned
from moldau.log.directory import LogDirectory
from moldau.log.files import remove
from moldau.log.log import Log
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication.replicas import Replicas
from moldau.wire.batch import read_header
from moldau.wire.records import decode_records
from support.log.logs import NOW, batch, record
from support.log.lying_disk import LyingDisk, PowerCut, lying

NODE = 1
PRODUCER = 7
LONGEST_RUN = 400  # calls to the disk before the crash
KEYS = 9
KEY_MEMORY = 100_000
TOPICS = ("first", "second")
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, segment_ms=2**62)


@dataclass
class Ledger:
    """What a topic's only partition must have after a crash, and may have."""

    topic_id: UUID
    written: dict[int, bytes] = field(default_factory=dict)  # batches by base offset, as stored
    safe: int = 0  # everything before this offset must survive a power cut
    end: int = 0
    least_start: int = 0  # the log start offset in a checkpoint
    most_start: int = 0  # the log start offset that was requested
    sequence: int = 0
    epoch: int = 0
    cleaned: int = 0  # before this offset only the last record of each key must be there


@dataclass(frozen=True)
class Promise:
    """A guarantee, and the actions that test it."""

    says: str
    actions: Mapping[str, float]  # by name, with weights
    power: bool = True  # a power cut; otherwise only the process dies
    config: LogConfig = CONFIG
    flush_messages: int = 0  # fewer records than this are acknowledged unsynced; 0: any number


class CrashRun:
    def __init__(self, root: Path, promise: Promise, seed: int) -> None:
        self.promise = promise
        self.dice = random.Random(f"{promise.says} {seed}")
        self.root = root
        self.ledgers: dict[str, Ledger] = {name: Ledger(self._id()) for name in TOPICS}
        self.deleted: list[Path] = []
        self.directory: LogDirectory | None = None
        self.replicas: Replicas

    def _id(self) -> UUID:
        return UUID(int=self.dice.getrandbits(128) | 1)

    # ── start and stop ──

    def start(self) -> None:
        """Start as a broker does: directories first, then every partition of the image."""
        self.directory = directory = LogDirectory.open(self.root)
        self.replicas = Replicas(NODE, [directory], lambda _: self.promise.config, lambda: NOW, 86_400_000)
        self.replicas.load(image_of(self.ledgers), 1, lambda: False)
        first_dirty_offset = read_offsets(self.root / CLEANER_OFFSETS)
        for partition in self.replicas:
            partition.log.first_dirty_offset = first_dirty_offset.get(TopicPartition(partition.topic, 0), 0)
            partition.log.on_roll = None  # there is no event loop: the run flushes at random

    @property
    def here(self) -> LogDirectory:
        assert self.directory is not None
        return self.directory

    def log(self, name: str) -> Log:
        partition = self.replicas.get(name, 0)
        assert partition is not None, f"{name}-0 was not opened"
        return partition.log

    def let_go(self) -> None:
        for partition in self.replicas:
            partition.log.close(clean=False)
        self._close(clean=False)

    def _close(self, *, clean: bool) -> None:
        directory, self.directory = self.here, None
        directory.close(clean=clean)

    def restart(self) -> None:
        """Shut down cleanly, and start."""
        for name, ledger in self.ledgers.items():
            self.log(name).close()
            ledger.safe = ledger.end
        self.checkpoint()
        self._close(clean=True)
        self.start()
        assert self.here.clean
        self.look()

    def die(self) -> None:
        """kill -9, and start: nothing may be lost."""
        self.let_go()
        self.start()
        self.look()

    # ── actions ──

    def append(self) -> None:
        name = self.dice.choice(TOPICS)
        self._append(name)
        ledger, log, most = self.ledgers[name], self.log(name), self.promise.flush_messages
        if most and log.end_offset - log.recovery_point >= most:  # as `Partition` does before it responds
            self._flush(name)
        if most:
            ledger.safe = max(ledger.safe, ledger.end - (most - 1))

    def _append(self, name: str) -> None:
        ledger, log, dice = self.ledgers[name], self.log(name), self.dice
        count = dice.randint(1, 3)
        if dice.random() < 0.1:
            ledger.epoch += 1
        data = batch(
            count,
            timestamp=NOW + ledger.end,
            body=b"".join(_record(delta, dice) for delta in range(count)),
            producer_id=PRODUCER,
            epoch=0,
            sequence=ledger.sequence,
        )
        base = ledger.end
        stored = struct.pack(">qii", base, len(data) - 12, ledger.epoch) + bytes(data[16:])
        ledger.written[base] = stored  # before the write: after a crash in it the batch may be complete
        assert log.append(read_header(data), data, ledger.epoch, NOW) == base
        ledger.sequence += count
        ledger.end += count

    def flush(self) -> None:
        self._flush(self.dice.choice(TOPICS))

    def _flush(self, name: str) -> None:
        ledger, log = self.ledgers[name], self.log(name)
        job = log.begin_flush()
        if not self.promise.flush_messages and self.dice.random() < 0.3:  # on the loop, while a thread syncs
            self._append(name)
        job.run()
        log.finish_flush(job)
        ledger.safe = max(ledger.safe, job.end_offset)

    def checkpoint(self) -> None:
        self.here.write_checkpoints(*self.replicas.directories.checkpoints_of(self.here))
        for name, ledger in self.ledgers.items():
            ledger.least_start = self.log(name).start_offset

    def shorten(self) -> None:
        """Delete the records before an offset, as retention and DeleteRecords do; files are removed later."""
        name = self.dice.choice(TOPICS)
        log = self.log(name)
        offset = self.dice.randint(log.start_offset, log.end_offset)
        self.ledgers[name].most_start = offset
        if offset == log.end_offset:
            log.roll(NOW)
        self.deleted += log.advance_start(offset)

    def clean(self) -> None:
        """Compact as the broker does; the crash may come at any step."""
        name = self.dice.choice(TOPICS)
        log, ledger = self.log(name), self.ledgers[name]
        log.roll(NOW)
        self._flush(name)
        dirt = measure(log, log.end_offset, NOW)
        if not dirt.dirty_bytes:
            return
        work = plan(log, dirt, NOW, KEY_MEMORY, 0)
        ledger.cleaned = max(ledger.cleaned, work.upper)
        swaps = Swaps(log, work)
        for told in rewrite(work, lambda _: None):
            if isinstance(told, Cleaned):
                swaps.commit(told)
                self.deleted += swaps.carry_out(told, NOW)
                swaps.settle()
            else:
                log.first_dirty_offset = told.end
        offsets = {TopicPartition(each, 0): self.log(each).first_dirty_offset for each in TOPICS}
        write_offsets(self.root / CLEANER_OFFSETS, offsets)

    def sweep(self) -> None:
        deleted, self.deleted = self.deleted, []
        remove(deleted)

    def replace(self) -> None:
        """Delete a topic and create it again: first in the metadata, then on disk."""
        name = self.dice.choice(TOPICS)
        old = self.log(name)
        self.ledgers[name] = Ledger(self._id())
        self.deleted += old.delete()
        [partition] = [each for each in self.replicas if each.topic == name]
        self.replicas.directories.remove(partition)
        self.here.write_checkpoints(*self.replicas.directories.checkpoints_of(self.here))
        topic = topic_of(name, self.ledgers[name])
        self.replicas._make_row(topic)
        opening = self.replicas._opening(topic, topic.partitions[0], new=True)
        self.replicas._place(opening, self.replicas._opener.open(opening))
        self.log(name).on_roll = None

    # ── after a crash ──

    def look(self) -> None:
        """Compare the opened logs with the ledger after the death of a process: nothing may be missing."""
        for name, ledger in self.ledgers.items():
            check(self.log(name), ledger, complete=True)


ACTIONS: dict[str, Callable[[CrashRun], None]] = {
    "append": CrashRun.append,
    "flush": CrashRun.flush,
    "checkpoint": CrashRun.checkpoint,
    "shorten": CrashRun.shorten,
    "clean": CrashRun.clean,
    "sweep": CrashRun.sweep,
    "replace": CrashRun.replace,
    "restart": CrashRun.restart,
    "die": CrashRun.die,
}


def topic_of(name: str, ledger: Ledger) -> Topic:
    return Topic(name, ledger.topic_id, (PartitionState(0, (NODE,), (NODE,), NODE),), {})


def image_of(ledgers: Mapping[str, Ledger]) -> ClusterImage:
    return ClusterImage(topics={name: topic_of(name, ledger) for name, ledger in ledgers.items()})


def run_and_crash(directory: Path, promise: Promise, seed: int) -> None:
    """Take actions, crash, often crash again during recovery, and check the rest."""
    (directory / "0").mkdir(parents=True)
    run = CrashRun(directory / "0", promise, seed)
    disk = LyingDisk(directory / "0", seed)
    disk.cut_at = run.dice.randint(1, LONGEST_RUN)
    _run(run, disk, lambda: _act(run))
    crashes = 1
    while run.dice.random() < 0.3:  # another power cut during recovery
        run.root = directory / str(crashes)
        disk.leave(run.root, power=promise.power)
        disk = LyingDisk(run.root, seed + crashes)
        disk.cut_at = run.dice.randint(1, 30)
        _run(run, disk, run.start)
        crashes += 1
    run.root = directory / str(crashes)
    disk.leave(run.root, power=promise.power)
    with lying(LyingDisk(run.root)):
        run.start()
        for name, ledger in run.ledgers.items():
            check(run.log(name), ledger, complete=not promise.power)
        go_on(run)


def _act(run: CrashRun) -> None:
    run.start()
    names, weights = zip(*run.promise.actions.items(), strict=True)
    while True:
        [name] = run.dice.choices(names, weights)
        ACTIONS[name](run)


def _run(run: CrashRun, disk: LyingDisk, work: Callable[[], None]) -> None:
    with lying(disk):
        try:
            work()
        except PowerCut:
            disk.dead = True
    if run.directory is not None:
        run.directory._unlock()
        run.directory = None


def check(log: Log, ledger: Ledger, *, complete: bool) -> None:
    """Check that all batches in the log were written, safe ones are there, and its state agrees with its batches."""
    found = {header.base_offset: bytes(data) for header, data in log.read_batches(log.start_offset)}
    for base, data in found.items():
        known = ledger.written.get(base) == data
        assert known or base < ledger.cleaned, f"the batch at {base} was never written"
    assert ledger.least_start <= log.start_offset <= ledger.most_start
    must = ledger.end if complete else ledger.safe
    for base, data in ledger.written.items():
        end = base + read_header(data).record_count
        if ledger.cleaned <= base < must and end > log.start_offset:
            assert base in found, f"the batch at {base} is lost; safe up to {must}"
    check_keys(found, ledger, log.start_offset, must)
    assert log.end_offset >= must
    headers = list(log.read_headers(log.start_offset))
    if headers:
        assert log.end_offset > headers[-1].last_offset  # an empty segment may begin after it
        assert log.epochs.latest == headers[-1].leader_epoch
        state = log.producers.get(PRODUCER)
        assert state is not None
        assert state.last_sequence == headers[-1].base_sequence + headers[-1].last_offset_delta
    for header in headers:
        assert next(iter(log.read_headers(header.base_offset))) == header
        at_time = log.segments.batch_at_time(header.max_timestamp, log.start_offset)
        assert at_time is not None
        assert read_header(at_time).max_timestamp >= header.max_timestamp


def check_keys(found: Mapping[int, bytes], ledger: Ledger, start: int, must: int) -> None:
    """Check that each key's last safe record, or a later one, is there, and that each record is unchanged."""
    written, kept = _records(ledger.written), _records(found)
    for offset, each in kept.items():
        assert written[offset] == each, f"the record at {offset} was never written"
    newest = {key: offset for offset, (key, _) in sorted(kept.items())}
    for offset, (key, _) in written.items():
        if start <= offset < must:
            assert newest.get(key, -1) >= offset, f"the last record of {key!r} was at {offset} at least"


def _records(batches: Mapping[int, bytes]) -> dict[int, tuple[bytes | None, bytes | None]]:
    decoded = (record for data in batches.values() for record in decode_records(memoryview(data), limit=1 << 20))
    return {record.offset: (record.key, record.value) for record in decoded}


def _record(delta: int, dice: random.Random) -> bytes:
    return record(delta, dice.randbytes(dice.randint(0, 120)), key=b"%d" % dice.randrange(KEYS))


def go_on(run: CrashRun) -> None:
    """Check that the log can be written to, stopped and started again."""
    for name, ledger in run.ledgers.items():
        log = run.log(name)
        ledger.written = {header.base_offset: bytes(data) for header, data in log.read_batches(log.start_offset)}
        ledger.end = ledger.safe = log.end_offset
        ledger.cleaned = 0
        ledger.least_start = ledger.most_start = log.start_offset
        state = log.producers.get(PRODUCER)
        ledger.sequence = state.last_sequence + 1 if state is not None else 0
        ledger.epoch = max(ledger.epoch, log.epochs.latest)
        run._append(name)
    run.restart()
    run.let_go()
