"""Producer state read back from the log is the state that the appends left, and retries are answered as before."""

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from moldau.base.errors import Refusal, WireError
from moldau.log.follower_append import parse_fetched
from moldau.log.log import Log
from moldau.log.producers import BatchMetadata
from moldau.log.settings import LogConfig
from moldau.wire.batch import read_header
from support.log.logs import NOW, append, batch, flush, open_log, producer_view

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=100)
steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from(["append", "append", "append", "epoch", "flush"])),
    min_size=1,
    max_size=50,
)  # producer, records, what happens


def run(log: Log, plan: list[tuple[int, int, str]]) -> None:
    following = dict.fromkeys(range(4), (0, 2**31 - 5))
    for number, (producer, count, action) in enumerate(plan):
        epoch, sequence = following[producer]
        if action == "flush":
            flush(log)
            continue
        if action == "epoch":
            epoch, sequence = epoch + 1, 0
        data = batch(count, timestamp=NOW + number, producer_id=producer, epoch=epoch, sequence=sequence)
        assert log.producer_state.check(read_header(data), log.start_offset) is None
        append(log, data)
        following[producer] = (epoch, (sequence + count) % 2**31)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_replayed_state_is_the_live_state(plan: list[tuple[int, int, str]]) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        log = open_log(directory, CONFIG)
        run(log, plan)
        live = producer_view(log)
        log.close(clean=False)
        for snapshot in (directory / "topic-0").glob("*.snapshot"):
            snapshot.unlink()
        assert producer_view(open_log(directory, CONFIG)) == live


@settings(max_examples=60, deadline=None)
@given(steps, st.booleans())
def test_retries_after_a_restart(plan: list[tuple[int, int, str]], clean: bool) -> None:
    """A producer's last five batches are each answered with their offset, though a snapshot holds the last alone."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        log = open_log(directory, CONFIG)
        run(log, plan)
        live = producer_view(log)
        log.close(clean=clean)
        log = open_log(directory, CONFIG, clean=clean, recovery_point=log.recovery_point)
        for producer_id, (epoch, sequence, _, batches) in live.items():
            for written in batches:
                count = written.last_offset - written.base_offset + 1
                retry = batch(count, producer_id=producer_id, epoch=epoch, sequence=written.base_sequence)
                assert log.producer_state.check(read_header(retry), log.start_offset) == written
            gap = batch(producer_id=producer_id, epoch=epoch, sequence=(sequence + 7) % 2**31)
            refusal = log.producer_state.check(read_header(gap), log.start_offset)
            assert isinstance(refusal, Refusal)
            assert refusal.error is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER
            following = batch(producer_id=producer_id, epoch=epoch, sequence=(sequence + 1) % 2**31)
            assert log.producer_state.check(read_header(following), log.start_offset) is None


@settings(max_examples=60, deadline=None)
@given(steps, st.data())
def test_truncation_takes_the_state_back(plan: list[tuple[int, int, str]], data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        log = open_log(directory, CONFIG)
        run(log, plan)
        log.truncate_to(data.draw(st.integers(0, log.end_offset)), NOW)
        replayed = open_log(directory, CONFIG)
        for snapshot in (directory / "topic-0").glob("*.snapshot"):
            snapshot.unlink()
        replayed = open_log(directory, CONFIG)
        last = {producer: view[:3] for producer, view in producer_view(replayed).items()}
        assert {producer: view[:3] for producer, view in producer_view(log).items()} == last
        assert all(isinstance(written, BatchMetadata) for state in log.producers for written in state.batches)


HOUR_MS = 3_600_000
KEPT = 5
PRODUCERS = range(2)
WRITES = ("lead", "copy", "many", "many", "epoch")
LOOKS = ("early", "early", "retry")
EVENTS = ("truncate", "clock", "flush", "stop", "kill")


class Replica:
    """A log as leader and follower by turns, that is cut off, stopped and killed; what it holds is in a list, too."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = open_log(directory, CONFIG)
        self.now = NOW
        self.leader_epoch = 0
        self.batches: list[tuple[int, int, BatchMetadata]] = []  # producer id, its epoch, the batch

    def do(self, what: str, number: int) -> None:
        producer_id = number // 8 % len(PRODUCERS)
        if what in ("lead", "copy", "epoch"):
            self.write(producer_id, 1 + number % 4, as_copy=what == "copy", new_epoch=what == "epoch")
        elif what == "many":
            for _ in range(4 + number % 4):
                self.write(producer_id, 1, as_copy=number % 2 == 0, new_epoch=False)
        elif what == "early":
            self.send_early(producer_id, 1 + number % 8)
        elif what == "retry":
            self.retry(producer_id)
        elif what == "truncate":
            self.truncate(self.log.end_offset * (number % 1000) // 999)
        elif what == "clock":
            self.now += (number % 3 - 1) * HOUR_MS
            self.log.producers.expire(self.now)
        elif what == "flush":
            flush(self.log)
        else:
            self.reopen(clean=what == "stop")

    def known(self, producer_id: int) -> tuple[int, list[BatchMetadata]]:
        """Epoch and batches of a producer as the list has them."""
        by_epoch: dict[int, list[BatchMetadata]] = defaultdict(list)
        for each, epoch, written in self.batches:
            if each == producer_id:
                by_epoch[epoch].append(written)
        epoch = max(by_epoch, default=-1)
        return epoch, by_epoch[epoch]

    def write(self, producer_id: int, count: int, *, as_copy: bool, new_epoch: bool) -> None:
        epoch, written = self.known(producer_id)
        new_epoch |= not written
        epoch, sequence = (epoch + 1, 0) if new_epoch else (epoch, written[-1].last_sequence + 1)
        base = self.log.end_offset
        fields = {"producer_id": producer_id, "epoch": epoch, "sequence": sequence, "timestamp": NOW + base}
        if as_copy:
            self.leader_epoch += 1
            data = batch(count, base_offset=base, leader_epoch=self.leader_epoch, **fields)
            self.log.append_as_follower(parse_fetched(data, base), self.now)
        else:
            data = batch(count, **fields)
            assert self.log.producer_state.check(read_header(data), self.log.start_offset) is None
            append(self.log, data, self.leader_epoch, self.now)
        told = BatchMetadata(sequence, sequence + count - 1, base, base + count - 1, NOW + base)
        self.batches.append((producer_id, epoch, told))

    def send_early(self, producer_id: int, ahead: int) -> None:
        """What a producer sent too early, as when its leader moved while requests were under way, changes nothing."""
        epoch, written = self.known(producer_id)
        if written:
            early = batch(producer_id=producer_id, epoch=epoch, sequence=written[-1].last_sequence + 1 + ahead)
            refusal = self.log.producer_state.check(read_header(early), self.log.start_offset)
            assert isinstance(refusal, Refusal)
            assert refusal.error is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER

    def retry(self, producer_id: int) -> None:
        epoch, written = self.known(producer_id)
        for each in written[-KEPT:]:
            count = each.last_offset - each.base_offset + 1
            again = batch(count, producer_id=producer_id, epoch=epoch, sequence=each.base_sequence)
            assert self.log.producer_state.check(read_header(again), self.log.start_offset) == each

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset, self.now)
        self.batches = [each for each in self.batches if each[2].last_offset < offset]
        assert self.log.end_offset == (self.batches[-1][2].last_offset + 1 if self.batches else 0)

    def reopen(self, *, clean: bool) -> None:
        self.log.close(clean=clean)
        point = self.log.recovery_point
        self.log = open_log(self.directory, CONFIG, clean=clean, recovery_point=point, now=self.now)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from((WRITES, LOOKS, EVENTS)).flatmap(st.sampled_from), st.integers(0, 2**10)),
        min_size=10,
        max_size=60,
    )
)
@example([("many", 0), ("stop", 0), ("many", 1), ("early", 0), ("retry", 0)])
def test_a_replica_knows_the_last_five_batches_whatever_happened_to_it(plan: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as name:
        replica = Replica(Path(name))
        for what, number in plan:
            replica.do(what, number)
            for state in replica.log.producers:
                epoch, written = replica.known(state.producer_id)
                assert (state.epoch, state.last_sequence) == (epoch, written[-1].last_sequence)
                assert list(state.batches) == written[-len(state.batches) :]
        for producer_id in PRODUCERS:
            replica.retry(producer_id)
            replica.send_early(producer_id, 1)
            replica.retry(producer_id)
