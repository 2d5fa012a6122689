"""Where a reset puts offsets, and plans as CSV."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.client.admin.errors import InvalidArgument, NothingToShift
from moldau.client.admin.positions import Bounds
from moldau.client.admin.reset import (
    Kind,
    PartitionOffsets,
    ResetTo,
    Step,
    plan_step,
    read_csv,
    write_csv,
)

PARTITION = TopicPartition("orders", 3)
HELD = Bounds(10, 20)

offsets = st.integers(min_value=0, max_value=2**63 - 1)
names = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
partitions = st.builds(TopicPartition, names, st.integers(0, 2**31 - 1))


@pytest.mark.parametrize(
    ("to", "known", "new"),
    [
        (ResetTo(Kind.EARLIEST), PartitionOffsets(HELD), 10),
        (ResetTo(Kind.LATEST), PartitionOffsets(HELD), 20),
        (ResetTo(Kind.OFFSET, 15), PartitionOffsets(HELD), 15),
        (ResetTo(Kind.OFFSET, 10), PartitionOffsets(HELD), 10),
        (ResetTo(Kind.OFFSET, 20), PartitionOffsets(HELD), 20),
        (ResetTo(Kind.CURRENT), PartitionOffsets(HELD, committed=12), 12),
        (ResetTo(Kind.CURRENT), PartitionOffsets(HELD, committed=3), 3),  # as Kafka's tool: the group stays where it is
        (ResetTo(Kind.CURRENT), PartitionOffsets(HELD), 20),
        (ResetTo(Kind.SHIFT, -2), PartitionOffsets(HELD, committed=15), 13),
        (ResetTo(Kind.SHIFT, 2), PartitionOffsets(HELD, committed=15), 17),
        (ResetTo(Kind.TIME, 99), PartitionOffsets(HELD, at_time=14), 14),
        (ResetTo(Kind.FILE, offsets={PARTITION: 11}), PartitionOffsets(HELD), 11),
    ],
)
def test_every_way_to_reset(to: ResetTo, known: PartitionOffsets, new: int) -> None:
    assert plan_step("g", to, PARTITION, known) == Step(PARTITION, known.committed, new)


@pytest.mark.parametrize(
    ("to", "committed", "new"),
    [
        (ResetTo(Kind.OFFSET, 9), None, 10),
        (ResetTo(Kind.OFFSET, -1), None, 10),
        (ResetTo(Kind.OFFSET, 2**70), None, 20),
        (ResetTo(Kind.SHIFT, -100), 15, 10),
        (ResetTo(Kind.SHIFT, 100), 15, 20),
        (ResetTo(Kind.FILE, offsets={PARTITION: 21}), None, 20),
        (ResetTo(Kind.TIME, 99), None, 20),  # nothing is that young
    ],
)
def test_what_is_outside_the_log_becomes_its_nearest_end_with_a_warning(
    to: ResetTo, committed: int | None, new: int
) -> None:
    step = plan_step("g", to, PARTITION, PartitionOffsets(HELD, committed))
    assert step.new == new
    assert "orders-3" in step.warning
    assert str(new) in step.warning


def test_what_was_never_committed_cannot_be_shifted() -> None:
    with pytest.raises(NothingToShift, match="orders-3"):
        plan_step("g", ResetTo(Kind.SHIFT, 1), PARTITION, PartitionOffsets(HELD))


@given(
    st.sampled_from([Kind.OFFSET, Kind.SHIFT, Kind.TIME, Kind.EARLIEST, Kind.LATEST]),
    st.integers(),
    st.tuples(offsets, offsets).map(sorted),
    offsets,
)
def test_a_reset_stays_inside_the_log(kind: Kind, number: int, ends: list[int], committed: int) -> None:
    step = plan_step("g", ResetTo(kind, number), PARTITION, PartitionOffsets(Bounds(ends[0], ends[1]), committed))
    assert ends[0] <= step.new <= ends[1]


@given(st.dictionaries(partitions, offsets, min_size=1))
def test_an_exported_plan_is_read_back(plan: dict[TopicPartition, int]) -> None:
    text = write_csv(Step(tp, None, new) for tp, new in plan.items())
    assert read_csv(text, "g", "plan.csv") == plan


def test_plans_of_kafka_s_own_tool() -> None:
    assert read_csv('"orders",0,5\norders,1,6\n\n', "g", "f") == {
        TopicPartition("orders", 0): 5,
        TopicPartition("orders", 1): 6,
    }
    several = "g,orders,0,5\nother,orders,0,7\n"
    assert read_csv(several, "g", "f") == {TopicPartition("orders", 0): 5}
    assert read_csv(several, "other", "f") == {TopicPartition("orders", 0): 7}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no line for group"),
        ("other,orders,0,5\n", "no line for group"),
        ("orders,0\n", "line 1"),
        ("orders,0,5\norders,zero,5\n", "line 2"),
        ("orders,0,-5\n", "line 1"),
        ("orders,0,99999999999999999999\n", "line 1"),
        (",0,5\n", "line 1"),
        ("a,b,c,d,e\n", "line 1"),
        ("orders\r,0,5\n", "not CSV"),
        ("orders,0,5\norders,0,6\n", "two offsets"),
    ],
)
def test_a_file_that_is_no_plan(text: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        read_csv(text, "g", "plan.csv")
