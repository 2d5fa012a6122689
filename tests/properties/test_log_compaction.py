"""Any history, cleaned at any times: last values stay, offsets too, and nobody sees what was aborted."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from support.log.histories import History, check, check_clean

KEYS = st.sampled_from([b"a", b"b", b"long" * 20])
VALUES = st.one_of(st.none(), st.binary(max_size=12))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)
CODECS = st.sampled_from([0, 0, 1, 2, 3, 4])
PRODUCERS = (1, 2, 3)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), PAIRS, CODECS),
        st.tuples(st.just("idempotent"), PAIRS, CODECS),
        st.tuples(st.just("transactional"), PAIRS, CODECS, st.sampled_from(PRODUCERS)),
        st.tuples(st.just("transactional"), PAIRS, CODECS, st.sampled_from(PRODUCERS)),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans(), st.integers(0, 1)),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans(), st.integers(0, 1)),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans(), st.integers(0, 1)),
        st.tuples(st.just("clean"), st.sampled_from([1, 1 << 20, 1 << 20])),
        st.tuples(st.just("time"), st.sampled_from([1, 600, 2000])),
        st.tuples(st.just("stop"), st.booleans(), st.integers(0, 1000)),
    ),
    min_size=5,
    max_size=30,
)


def tell(history: History, what: str, *rest: object) -> None:
    if what == "plain":
        history.write(rest[0], codec=rest[1])  # type: ignore[arg-type]
    elif what == "idempotent":
        history.write(rest[0], codec=rest[1], producer=9)  # type: ignore[arg-type]
    elif what == "transactional":
        history.write(rest[0], codec=rest[1], producer=rest[2], transactional=True)  # type: ignore[arg-type]
    elif what == "end":
        history.end(rest[0], commit=rest[1], bump=rest[2])  # type: ignore[arg-type]
    elif what == "time":
        history.now += rest[0]  # type: ignore[operator]
    elif what == "clean":
        tally = history.clean(rest[0])  # type: ignore[arg-type]
        check(history)
        if tally is not None and rest[0] != 1:
            check_clean(history)
    else:
        known = producers(history)
        history.reopen(clean_stop=rest[0], recovery_point=rest[1])  # type: ignore[arg-type]
        assert producers(history) == known
        check(history)


def producers(history: History) -> dict[int, tuple[int, int, int]]:
    """What fences and what makes retries idempotent; a producer of whom only a marker was left may be forgotten."""
    return {
        state.producer_id: (state.epoch, state.last_sequence, state.txn_start_offset)
        for state in history.log.producers
        if state.batches
    }


@settings(max_examples=100, deadline=None)
@given(steps)
def test_what_compaction_keeps(plan: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as name:
        history = History(Path(name))
        for what, *rest in plan:
            tell(history, what, *rest)  # type: ignore[arg-type]
        grow_old(history)


def grow_old(history: History) -> None:
    """Tombstones and markers go in the end, and a log that is read again from its beginning is still the same."""
    for _ in range(3):
        history.now += 2000
        history.write([(b"other", b"value")])
        history.clean()
        check(history)
        check_clean(history)
    known, end = producers(history), history.log.end_offset
    for clean_stop in (False, True):
        history.reopen(clean_stop=clean_stop)
        assert producers(history) == known
        assert history.log.end_offset == end
        check(history)
