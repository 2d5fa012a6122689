"""What Spark keeps of a stream: readable, in a fixed order, and all that a batch needs to run again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.spark.cluster import QueryFailed
from moldau.spark.source.plan import OffsetRange, split
from moldau.spark.source.stream_offsets import StreamOffset, read, write

PLACES = st.builds(TopicPartition, st.sampled_from(["orders", "a.b"]), st.integers(0, 20))
MARKS = st.dictionaries(PLACES, st.tuples(st.integers(0, 2**62), st.integers(0, 10**7))).map(
    lambda found: StreamOffset(
        {place: start + size for place, (start, size) in found.items()},
        {place.topic: "id" for place in found},
        tuple(split([OffsetRange(*place, start, start + size) for place, (start, size) in found.items()], cores=7)),
    )
)


@given(MARKS)
def test_what_is_written_is_read(mark: StreamOffset) -> None:
    document = write(mark)
    text = json.dumps(document)
    assert read(json.loads(text)) == mark
    assert json.dumps(json.loads(text)) == text, "Spark compares texts"
    shuffled = StreamOffset(dict(reversed(mark.offsets.items())), mark.topic_ids, mark.tasks[::-1])
    assert json.dumps(write(shuffled)) == text


def test_it_is_readable() -> None:
    tasks = (OffsetRange("orders", 0, 100, 150), OffsetRange("orders", 0, 150, 200), OffsetRange("orders", 10, 0, 5))
    mark = StreamOffset(
        {TopicPartition("orders", 10): 5, TopicPartition("orders", 2): 7, TopicPartition("orders", 0): 200},
        {"orders": "x"},
        tasks,
    )
    assert json.dumps(write(mark)) == (
        '{"offsets": {"orders": {"0": 200, "2": 7, "10": 5}}, '
        '"cuts": {"orders": {"0": [100, 150, 200], "10": [0, 5]}}, "topicIds": {"orders": "x"}}'
    )


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"rows": 4},
        {"offsets": {"orders": {"0": -1}}, "cuts": {}, "topicIds": {}},
        {"offsets": {"orders": 5}, "cuts": {}, "topicIds": {}},
    ],
)
def test_the_checkpoint_of_another_source_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(QueryFailed, match="the checkpoint was not written by format"):
        read(other)


def test_the_checkpoint_of_sparks_kafka_source_is_named() -> None:
    with pytest.raises(QueryFailed, match=r"by format\('kafka'\), for notes, orders\. .* moldau pipeline adopt"):
        read({"orders": {"0": 5, "1": 0}, "notes": {"0": 1}})
