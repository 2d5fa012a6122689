"""Where a reset puts offsets, and plans as CSV."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.tools.common.failure import MISUSED, CommandError
from moldau.tools.group_plan import Aim, Facts, Kind, Step, plan_step, read_csv, write_csv
from moldau.tools.places import Place, Scope, read_scope, show_places
from moldau.tools.positions import Bounds

PLACE = Place("orders", 3)
HELD = Bounds(10, 20)

offsets = st.integers(min_value=0, max_value=2**63 - 1)
names = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
places = st.builds(Place, names, st.integers(0, 2**31 - 1))


@pytest.mark.parametrize(
    ("aim", "facts", "new"),
    [
        (Aim(Kind.EARLIEST), Facts(HELD), 10),
        (Aim(Kind.LATEST), Facts(HELD), 20),
        (Aim(Kind.OFFSET, 15), Facts(HELD), 15),
        (Aim(Kind.OFFSET, 10), Facts(HELD), 10),
        (Aim(Kind.OFFSET, 20), Facts(HELD), 20),
        (Aim(Kind.CURRENT), Facts(HELD, committed=12), 12),
        (Aim(Kind.CURRENT), Facts(HELD, committed=3), 3),  # as Kafka's tool: the group stays where it is
        (Aim(Kind.CURRENT), Facts(HELD), 20),
        (Aim(Kind.SHIFT, -2), Facts(HELD, committed=15), 13),
        (Aim(Kind.SHIFT, 2), Facts(HELD, committed=15), 17),
        (Aim(Kind.TIME, 99), Facts(HELD, at_time=14), 14),
        (Aim(Kind.FILE, offsets={PLACE: 11}), Facts(HELD), 11),
    ],
)
def test_every_way_to_reset(aim: Aim, facts: Facts, new: int) -> None:
    assert plan_step(aim, PLACE, facts) == Step(PLACE, facts.committed, new)


@pytest.mark.parametrize(
    ("aim", "committed", "new"),
    [
        (Aim(Kind.OFFSET, 9), None, 10),
        (Aim(Kind.OFFSET, -1), None, 10),
        (Aim(Kind.OFFSET, 2**70), None, 20),
        (Aim(Kind.SHIFT, -100), 15, 10),
        (Aim(Kind.SHIFT, 100), 15, 20),
        (Aim(Kind.FILE, offsets={PLACE: 21}), None, 20),
        (Aim(Kind.TIME, 99), None, 20),  # nothing is that young
    ],
)
def test_what_is_outside_the_log_becomes_its_nearest_end_with_a_warning(
    aim: Aim, committed: int | None, new: int
) -> None:
    step = plan_step(aim, PLACE, Facts(HELD, committed))
    assert step.new == new
    assert "orders-3" in step.warning
    assert str(new) in step.warning


def test_what_was_never_committed_cannot_be_shifted() -> None:
    with pytest.raises(CommandError, match="orders-3"):
        plan_step(Aim(Kind.SHIFT, 1), PLACE, Facts(HELD))


@given(
    st.sampled_from([Kind.OFFSET, Kind.SHIFT, Kind.TIME, Kind.EARLIEST, Kind.LATEST]),
    st.integers(),
    st.tuples(offsets, offsets).map(sorted),
    offsets,
)
def test_a_reset_stays_inside_the_log(kind: Kind, number: int, ends: list[int], committed: int) -> None:
    step = plan_step(Aim(kind, number), PLACE, Facts(Bounds(ends[0], ends[1]), committed))
    assert ends[0] <= step.new <= ends[1]


@given(st.dictionaries(places, offsets, min_size=1))
def test_an_exported_plan_is_read_back(plan: dict[Place, int]) -> None:
    text = write_csv(Step(place, None, new) for place, new in plan.items())
    assert read_csv(text, "g", "plan.csv") == plan


def test_plans_of_kafka_s_own_tool() -> None:
    assert read_csv('"orders",0,5\norders,1,6\n\n', "g", "f") == {Place("orders", 0): 5, Place("orders", 1): 6}
    several = "g,orders,0,5\nother,orders,0,7\n"
    assert read_csv(several, "g", "f") == {Place("orders", 0): 5}
    assert read_csv(several, "other", "f") == {Place("orders", 0): 7}


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
    with pytest.raises(CommandError, match=words) as refused:
        read_csv(text, "g", "plan.csv")
    assert refused.value.exit_code == MISUSED


def test_topics_and_partitions_as_typed() -> None:
    assert read_scope("orders", "--topic") == Scope("orders", None)
    assert read_scope("orders:2,0,2", "--topic") == Scope("orders", (0, 2))
    for text in ("", ":1", "orders:", "orders:1,", "orders:x", "orders:-1", "orders:99999999999", "orders:1:2"):
        with pytest.raises(CommandError, match="--topic"):
            read_scope(text, "--topic")
    assert show_places([Place("b", 1), Place("a", 10), Place("a", 9)]) == "a:9,10 b:1"
