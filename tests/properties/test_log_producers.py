"""Producer state read back from the log is the state that the appends left, and retries are answered as before."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from log_batches import NOW, append, batch, flush, open_log, producer_view
from moldau.base.errors import Refusal, WireError
from moldau.log.log import Log
from moldau.log.producers import Written
from moldau.log.settings import LogConfig
from moldau.wire.batch import read_header

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
        assert log.check_producer(read_header(data)) is None
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
                assert log.check_producer(read_header(retry)) == written
            gap = batch(producer_id=producer_id, epoch=epoch, sequence=(sequence + 7) % 2**31)
            refusal = log.check_producer(read_header(gap))
            assert isinstance(refusal, Refusal)
            assert refusal.error is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER
            following = batch(producer_id=producer_id, epoch=epoch, sequence=(sequence + 1) % 2**31)
            assert log.check_producer(read_header(following)) is None


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
        assert all(isinstance(written, Written) for state in log.producers for written in state.batches)
