"""Reading by index finds what reading from the beginning finds, in live, finished and reopened segments."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.log import Log
from moldau.log.settings import LogConfig
from moldau.wire.batch import BatchHeader
from support.log.logs import NOW, append, batch, flush, headers_on_disk, open_log, read, whole_batches

batches = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 400), st.integers(-50, 200)), min_size=1, max_size=60
)  # records, bytes of a value, timestamp against the one before
configs = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from([2500, 6000, 1 << 30]),
    index_interval_bytes=st.sampled_from([0, 100, 700, 4096]),
    segment_index_bytes=st.sampled_from([64, 1 << 20]),
)


def fill(log: Log, plan: list[tuple[int, int, int]]) -> None:
    timestamp = NOW
    for count, size, step in plan:
        timestamp += step
        append(log, batch(count, value=b"v" * size, timestamp=timestamp))


def check_places(log: Log, expected: list[BatchHeader]) -> None:
    for offset in range(log.start_offset, log.end_offset):
        holding = next(header for header in expected if header.last_offset >= offset)
        found = whole_batches(read(log.locate(offset, 1 << 30, log.end_offset, whole_first=True)))
        assert found[0] == holding
        assert read(log.locate(offset, 1, log.end_offset, whole_first=True)).__len__() == holding.size
        assert log.locate(offset, 1, log.end_offset, whole_first=False) is None
        before_upper = read(log.locate(offset, 1 << 30, holding.last_offset + 1, whole_first=True))
        assert whole_batches(before_upper) == [holding]
        assert len(before_upper) == holding.size
        assert log.locate(offset, 1 << 30, offset, whole_first=True) is None
    assert log.locate(log.end_offset, 1 << 30, log.end_offset, whole_first=True) is None


def check_times(log: Log, expected: list[BatchHeader]) -> None:
    for timestamp in {header.max_timestamp + step for header in expected for step in (-1, 0, 1)}:
        holding = next((header for header in expected if header.max_timestamp >= timestamp), None)
        found = log.segments.batch_at_time(timestamp, log.start_offset)
        assert (found is None) == (holding is None)
        assert found is None or whole_batches(found) == [holding]
    latest = max(header.max_timestamp for header in expected)
    found = log.segments.batch_of_max_timestamp()
    assert found is not None
    assert whole_batches(found) == [next(header for header in expected if header.max_timestamp == latest)]


@settings(max_examples=40, deadline=None)
@given(batches, configs)
def test_places_and_times(plan: list[tuple[int, int, int]], config: LogConfig) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        log = open_log(directory, config)
        fill(log, plan)
        expected = headers_on_disk(directory)
        assert expected[-1].last_offset + 1 == log.end_offset
        for _ in ("live", "flushed"):
            check_places(log, expected)
            check_times(log, expected)
            flush(log)
        log.close()
        for clean in (True, False):
            log = open_log(directory, config, clean=clean, recovery_point=log.recovery_point)
            check_places(log, expected)
            check_times(log, expected)
            assert list(log.read_headers(log.start_offset)) == expected
            log.close()


@settings(max_examples=40, deadline=None)
@given(batches, configs, st.data())
def test_truncation(plan: list[tuple[int, int, int]], config: LogConfig, data: st.DataObject) -> None:
    """What is left after a truncation is the whole batches before it, and the log goes on from there."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        log = open_log(directory, config)
        fill(log, plan)
        before = headers_on_disk(directory)
        if data.draw(st.booleans()):
            flush(log)
            check_places(log, before)  # indexes of finished segments are open now
        offset = data.draw(st.integers(0, log.end_offset))
        log.truncate_to(offset, NOW)
        expected = [header for header in before if header.last_offset < offset]
        assert headers_on_disk(directory) == expected
        assert log.end_offset == (expected[-1].last_offset + 1 if expected else 0)
        assert log.size == sum(header.size for header in expected)
        if expected:
            check_places(log, expected)
            check_times(log, expected)
        fill(log, plan)
        expected = headers_on_disk(directory)
        check_places(log, expected)
        flush(log)
        check_places(log, expected)
        check_times(log, expected)
        log.close()
        reopened = open_log(directory, config, clean=True)
        assert reopened.end_offset == log.end_offset
        check_places(reopened, expected)
        check_times(reopened, expected)
