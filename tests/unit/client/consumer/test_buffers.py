"""The consumer's buffer against a list of messages."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.client.consumer.buffers import Buffer, Run

PARTITIONS = [TopicPartition("t", number) for number in range(3)]

Message = tuple[TopicPartition, int]


def run(partition: TopicPartition, start: int, count: int, size: int = 10) -> Run[Message]:
    return Run(partition, [(partition, start + number) for number in range(count)], size * count)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(PARTITIONS), st.integers(1, 6)),
        st.tuples(st.just("take"), st.integers(1, 8)),
        st.tuples(st.just("return"), st.integers(1, 8)),
        st.tuples(st.just("drop"), st.sampled_from(PARTITIONS)),
    ),
    max_size=40,
)


@given(steps)
def test_messages_leave_in_the_order_in_which_they_came(script: list[tuple[str, ...]]) -> None:
    """Whatever is added, taken, returned and dropped: the counts are right, and so is each partition's order."""
    buffer: Buffer[Message] = Buffer(10, 1000)
    model: list[Message] = []
    added = 0
    for step in script:
        match step:
            case ("add", partition, count):
                buffer.add([run(partition, added, count)])
                model += [(partition, added + number) for number in range(count)]
                added += count
            case ("take", most):
                slices = buffer.peek(most)
                taken = [message for part in slices for message in part.messages]
                buffer.remove(slices)
                assert taken == model[:most]
                model = model[most:]
            case ("return", most):
                slices = buffer.peek(most)
                taken = [message for part in slices for message in part.messages]
                buffer.remove(slices)
                buffer.add_first([Run(tp, [(tp, number)], 10) for tp, number in taken])
            case ("drop", partition):
                buffer.drop({partition})
                model = [message for message in model if message[0] != partition]
        assert buffer.messages == len(model)
        assert buffer.bytes >= 10 * len(model)
        assert buffer.bytes == 0 or model
        for partition in PARTITIONS:
            assert buffer.first(partition) == next((each for each in model if each[0] == partition), None)


def test_bounds() -> None:
    buffer: Buffer[Message] = Buffer(10, 1000)
    assert not buffer.full
    assert buffer.half_empty
    assert buffer.room(average=0) == 10
    assert buffer.room(average=500) == 2
    buffer.add([run(PARTITIONS[0], 0, 6)])
    assert not buffer.full
    assert not buffer.half_empty
    buffer.add([run(PARTITIONS[1], 0, 5)])
    assert buffer.full
    assert buffer.room(average=0) == 0
    buffer.remove(buffer.peek(6))
    assert not buffer.full
    assert buffer.half_empty


def test_bytes_bound_few_large_messages() -> None:
    buffer: Buffer[Message] = Buffer(10, 1000)
    buffer.add([run(PARTITIONS[0], 0, 2, size=600)])
    assert buffer.full
    assert buffer.room(average=600) == 0
    buffer.remove(buffer.peek(2))
    assert not buffer.full
