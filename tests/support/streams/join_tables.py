"""The join tables of the documentation of Kafka Streams as cases.

What comes from the left and the right at which second, and which pairs the inner, the left and the outer join give.
None is a missing value, and DELETED a deleted row.
"""

from typing import Final, NamedTuple, TypeAlias

Pairs: TypeAlias = tuple[object, ...]

DELETED: Final = "deleted"
NOTHING: Final[Pairs] = ()
LEFT, RIGHT = "left", "right"


class Step(NamedTuple):
    second: int
    side: str
    value: str | None
    inner: Pairs = NOTHING
    left: Pairs = NOTHING
    outer: Pairs = NOTHING


def same(*pairs: object) -> tuple[Pairs, Pairs, Pairs]:
    return pairs, pairs, pairs


# Within 15 s, grace 5 s.
STREAM_STREAM: Final = (
    Step(1, LEFT, None),
    Step(2, RIGHT, None),
    Step(3, LEFT, "A"),
    Step(4, RIGHT, "a", *same(("A", "a"))),
    Step(5, LEFT, "B", *same(("B", "a"))),
    Step(6, RIGHT, "b", *same(("A", "b"), ("B", "b"))),
    Step(7, LEFT, None),
    Step(8, RIGHT, None),
    Step(9, LEFT, "C", *same(("C", "a"), ("C", "b"))),
    Step(10, RIGHT, "c", *same(("A", "c"), ("B", "c"), ("C", "c"))),
    Step(11, RIGHT, None),
    Step(12, LEFT, None),
    Step(13, RIGHT, None),
    Step(14, RIGHT, "d", *same(("A", "d"), ("B", "d"), ("C", "d"))),
    Step(15, LEFT, "D", *same(("D", "a"), ("D", "b"), ("D", "c"), ("D", "d"))),
    Step(40, LEFT, "E"),
    Step(60, LEFT, "F", NOTHING, (("E", None),), (("E", None),)),
    Step(80, RIGHT, "f", NOTHING, (("F", None),), (("F", None),)),
    Step(100, LEFT, "G", NOTHING, NOTHING, ((None, "f"),)),
)

# There is no outer join of a stream with a table.
STREAM_TABLE: Final = (
    Step(1, LEFT, None),
    Step(2, RIGHT, None),
    Step(3, LEFT, "A", NOTHING, (("A", None),)),
    Step(4, RIGHT, "a"),
    Step(5, LEFT, "B", (("B", "a"),), (("B", "a"),)),
    Step(6, RIGHT, "b"),
    Step(7, LEFT, None),
    Step(8, RIGHT, None),
    Step(9, LEFT, "C", NOTHING, (("C", None),)),
    Step(10, RIGHT, "c"),
    Step(11, RIGHT, None),
    Step(12, LEFT, None),
    Step(13, RIGHT, None),
    Step(14, RIGHT, "d"),
    Step(15, LEFT, "D", (("D", "d"),), (("D", "d"),)),
)

TABLE_TABLE: Final = (
    Step(1, LEFT, None),
    Step(2, RIGHT, None),
    Step(3, LEFT, "A", NOTHING, (("A", None),), (("A", None),)),
    Step(4, RIGHT, "a", *same(("A", "a"))),
    Step(5, LEFT, "B", *same(("B", "a"))),
    Step(6, RIGHT, "b", *same(("B", "b"))),
    Step(7, LEFT, None, (DELETED,), (DELETED,), ((None, "b"),)),
    Step(8, RIGHT, None, NOTHING, NOTHING, (DELETED,)),
    Step(9, LEFT, "C", NOTHING, (("C", None),), (("C", None),)),
    Step(10, RIGHT, "c", *same(("C", "c"))),
    Step(11, RIGHT, None, (DELETED,), (("C", None),), (("C", None),)),
    Step(12, LEFT, None, NOTHING, (DELETED,), (DELETED,)),
    Step(13, RIGHT, None),
    Step(14, RIGHT, "d", NOTHING, NOTHING, ((None, "d"),)),
    Step(15, LEFT, "D", *same(("D", "d"))),
)


class ForeignKeyStep(NamedTuple):
    """Left rows are (key, foreign key), right ones (key, value); results (key, foreign key, value)."""

    left: tuple[str, str | None] | None
    right: tuple[str, str] | None
    inner: Pairs = NOTHING
    outer: Pairs = NOTHING  # of the left join


FOREIGN_KEY: Final = (
    ForeignKeyStep(("k", "1"), ("1", "foo"), (("k", "1", "foo"),), (("k", "1", "foo"),)),
    ForeignKeyStep(("k", "2"), None, (("k", DELETED),), (("k", "2", None),)),
    ForeignKeyStep(("k", "3"), None, (("k", DELETED),), (("k", "3", None),)),
    ForeignKeyStep(None, ("3", "bar"), (("k", "3", "bar"),), (("k", "3", "bar"),)),
    ForeignKeyStep(("k", None), None, (("k", DELETED),), (("k", None, None),)),
    ForeignKeyStep(("k", "1"), None, (("k", "1", "foo"),), (("k", "1", "foo"),)),
    ForeignKeyStep(("q", "10"), None, NOTHING, (("q", "10", None),)),
    ForeignKeyStep(("r", "10"), None, NOTHING, (("r", "10", None),)),
    ForeignKeyStep(None, ("10", "baz"), *(2 * ((("q", "10", "baz"), ("r", "10", "baz")),))),
)
