"""Open and aborted transactions are those that a plain scan of the log finds, after any sequence of events."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from moldau.base.errors import Refusal
from moldau.log.aborted import Aborted
from moldau.log.log import Log
from moldau.log.markers import Marker, encode_marker, read_marker
from moldau.log.producers import NOT_NEEDED
from moldau.log.settings import LogConfig
from moldau.wire.batch import CONTROL, TRANSACTIONAL, read_header
from support.log.logs import NOW, append, batch, flush, headers_on_disk, open_log, read, segment_files, whole_batches

CONFIG = LogConfig(segment_bytes=250, index_interval_bytes=80)
PRODUCERS = range(4)
ENDS = ("commit", "abort")
STOPS = ("flush", "kill", "stop", "truncate")
steps = st.lists(
    st.tuples(
        st.sampled_from(("data", "data", *ENDS, "whole", "whole", "plain", "own", *STOPS)), st.integers(0, 2**20)
    ),
    min_size=1,
    max_size=50,
)


class Story:
    """A log that is written to, stopped and cut."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = open_log(directory, CONFIG)

    def tell(self, what: str, number: int) -> None:
        producer_id = number % len(PRODUCERS)
        if what == "data":
            self.write(producer_id, 1 + number % 3, own=False)
        elif what == "own":
            self.write(len(PRODUCERS), 1 + number % 3, own=True)
        elif what == "whole":
            for place in PRODUCERS:
                self.write(place, 1, own=False)
                self.end(place, Marker(place == producer_id, 4), bump=0)
        elif what == "plain":
            append(self.log, batch(1 + number % 3))
        elif what in ENDS:
            self.end(number % (len(PRODUCERS) + 1), Marker(what == "commit", number % 5), bump=number % 2)
        elif what == "flush":
            flush(self.log)
        elif what == "truncate":
            self.log.truncate_to(number % (self.log.end_offset + 1), NOW)
        else:
            self.reopen(clean=what == "stop", known=number)

    def write(self, producer_id: int, count: int, *, own: bool) -> None:
        """As a client's batch, or as one of a coordinator, which has no sequence."""
        state = self.log.producers.get(producer_id)
        epoch = state.epoch if state else 0
        sequence = -1 if own else state.last_sequence + 1 if state else 0
        data = batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence, attributes=TRANSACTIONAL)
        if not own:
            assert self.log.producer_state.check(read_header(data), self.log.start_offset, NOT_NEEDED) is None
        append(self.log, data)

    def end(self, producer_id: int, marker: Marker, bump: int) -> None:
        state = self.log.producers.get(producer_id)
        epoch = (state.epoch if state else 0) + bump
        refusal = self.log.producers.check_marker(producer_id, epoch, marker.coordinator_epoch, version=1)
        if not isinstance(refusal, Refusal):
            data = encode_marker(producer_id, epoch, marker, NOW)
            self.log.append(read_header(data), data, 0, NOW)

    def reopen(self, *, clean: bool, known: int) -> None:
        """`known`: the recovery point on disk may be older than the last flush."""
        self.log.close(clean=clean)
        recovery_point = known % (self.log.recovery_point + 1)
        self.log = open_log(self.directory, CONFIG, clean=clean, recovery_point=recovery_point)


def scan(directory: Path) -> tuple[dict[int, int], list[Aborted]]:
    """Open transactions by producer, and the aborted ones: read from the batches, one after the other."""
    begun: dict[int, int] = {}
    aborted: list[Aborted] = []
    position = 0
    data = b"".join(path.read_bytes() for path in segment_files(directory))
    for header in headers_on_disk(directory):
        body = data[position : position + header.size]
        position += header.size
        if header.attributes & CONTROL:
            first = begun.pop(header.producer_id, None)
            marker = read_marker(body)
            assert marker is not None
            if first is not None and not marker.commit:
                stable = min(begun.values(), default=header.base_offset + 1)
                aborted.append(Aborted(header.producer_id, first, header.base_offset, stable))
        elif header.attributes & TRANSACTIONAL:
            begun.setdefault(header.producer_id, header.base_offset)
    return begun, aborted


def states(log: Log, *, batches: bool) -> dict[int, tuple[Any, ...]]:
    return {
        state.producer_id: (
            state.epoch,
            state.last_sequence,
            state.coordinator_epoch,
            state.txn_start_offset,
            tuple(state.batches) if batches else tuple(state.batches)[-1:],
        )
        for state in log.producers
    }


def check(story: Story) -> None:
    log = story.log
    begun, aborted = scan(story.directory)
    end = log.end_offset
    assert {
        state.producer_id: state.txn_start_offset for state in log.producers if state.txn_start_offset >= 0
    } == begun
    assert log.last_stable_offset(end) == min(begun.values(), default=end)
    assert log.aborted_transactions(0, end + 1) == aborted
    for offset in range(0, end, 3):
        for upper in (offset + 1, (offset + end) // 2 + 1, end):
            told = log.aborted_transactions(offset, upper)
            needed = [each for each in aborted if each.last_offset >= offset and each.first_offset < upper]
            assert told == needed
        check_piece(log, offset, aborted)


def check_piece(log: Log, offset: int, aborted: list[Aborted]) -> None:
    """With a piece of a file goes all that its reader must skip, and not much more."""
    stable = log.last_stable_offset(log.end_offset)
    piece = log.locate(offset, 150, stable, whole_first=True)
    if piece is None:
        return
    told = log.aborted_in(offset, piece, stable)
    last = max(header.last_offset for header in whole_batches(read(piece)))
    assert last < stable
    inside = [each for each in aborted if each.last_offset >= offset and each.first_offset <= last]
    assert [each for each in told if each.first_offset <= last] == inside
    assert all(each.first_offset < stable for each in told)


REWRITTEN = [("data", 0), ("whole", 1), ("flush", 0), ("truncate", 0), ("whole", 1), ("flush", 0)]


def test_a_segment_that_is_cut_and_finished_again_forgets_its_old_transactions() -> None:
    with TemporaryDirectory() as name:
        story = Story(Path(name))
        for what, number in REWRITTEN:
            story.tell(what, number)
            check(story)


@settings(max_examples=80, deadline=None)
@given(steps)
def test_the_state_is_what_the_log_says(plan: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as name:
        story = Story(Path(name))
        for what, number in plan:
            story.tell(what, number)
            if what in STOPS:
                check(story)
        check(story)


@settings(max_examples=50, deadline=None)
@example([("data", 2243), ("whole", 0), ("flush", 0), ("data", 0)], False)  # flushed, rolled, killed
@given(steps, st.booleans())
def test_replayed_state_is_the_live_state(plan: list[tuple[str, int]], clean: bool) -> None:
    with TemporaryDirectory() as name:
        story = Story(Path(name))
        for what, number in plan:
            story.tell(what, number)
        live = states(story.log, batches=False)
        story.reopen(clean=clean, known=plan[0][1])
        check(story)
        assert states(story.log, batches=False) == live
        for snapshot in (story.directory / "topic-0").glob("*.snapshot"):
            snapshot.unlink()
        replayed = open_log(story.directory, CONFIG)
        assert states(replayed, batches=False) == live
