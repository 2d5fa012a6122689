"""How much one batch of a stream takes."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.spark.source.read_limits import TriggerDelay, limit_offsets

A, B, C = (TopicPartition("a", number) for number in range(3))
SIZES = st.dictionaries(st.sampled_from([A, B, C]), st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)))


@given(SIZES, st.integers(1, 10**6))
def test_partitions_get_their_shares(sizes: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    starts = {place: start for place, (start, _) in sizes.items()}
    ends = {place: start + size for place, (start, size) in sizes.items()}
    nearer = limit_offsets(limit, starts, ends)
    assert nearer.keys() == ends.keys()
    taken = {place: nearer[place] - starts[place] for place in sizes}
    total = sum(size for _, size in sizes.values())
    assert sum(taken.values()) <= limit + len(sizes)
    assert sum(taken.values()) >= min(total, limit - len(sizes))
    for place, (_, size) in sizes.items():
        assert min(1, size) <= taken[place] <= size, "nobody starves, and nobody gets what is not there"


def test_shares_are_proportional() -> None:
    assert limit_offsets(100, {A: 0, B: 500, C: 7}, {A: 900, B: 600, C: 7}) == {A: 90, B: 510, C: 7}
    assert limit_offsets(5000, {A: 0}, {A: 900}) == {A: 900}


def test_a_batch_waits_for_enough_records_or_long_enough() -> None:
    waiting = TriggerDelay(least=10, max_s=60)
    assert not waiting.should_wait(1, now_s=1000), "the first one does not wait"
    assert waiting.should_wait(9, now_s=1059)
    assert not waiting.should_wait(10, now_s=1059)
    assert waiting.should_wait(9, now_s=1118)
    assert not waiting.should_wait(0, now_s=1119)
