"""The SQL of `moldau_offsets` as text: parameters in each driver's style, and what is refused."""

import pytest

from moldau.client.errors import InvalidUse
from moldau.client.offset_store.table import ADVANCE, DIALECTS, READ, OffsetTable, in_paramstyle, parameters

VALUES = {"group_id": "billing", "topic": "orders", "partition_index": 3}
WHERE = "group_id = {} AND topic = {} AND partition_index = {}"


@pytest.mark.parametrize(
    ("style", "where", "given"),
    [
        ("qmark", WHERE.format("?", "?", "?"), ("billing", "orders", 3)),
        ("format", WHERE.format("%s", "%s", "%s"), ("billing", "orders", 3)),
        ("named", WHERE.format(":group_id", ":topic", ":partition_index"), VALUES),
        ("pyformat", WHERE.format("%(group_id)s", "%(topic)s", "%(partition_index)s"), VALUES),
    ],
)
def test_parameters_in_each_style(style: str, where: str, given: object) -> None:
    sql, names = in_paramstyle(READ, style)
    assert sql == f"SELECT next_offset, epoch FROM moldau_offsets WHERE {where}"
    assert parameters(names, VALUES) == given


def test_positional_parameters_follow_the_statement() -> None:
    """A name that occurs twice is given twice."""
    sql, names = in_paramstyle(DIALECTS["mysql"].claim, "format")
    assert names == ("group_id", "topic", "partition_index", "owner", "owner")
    assert sql.count("%s") == 5
    _, names = in_paramstyle(ADVANCE, "qmark")
    assert names == ("next_offset", "group_id", "topic", "partition_index", "epoch", "owner", "from_offset")


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(InvalidUse, match="paramstyle 'numeric'"):
        in_paramstyle(READ, "numeric")


def test_an_unknown_database_is_refused() -> None:
    with pytest.raises(InvalidUse, match="in oracle: sqlite, postgresql, mysql, mariadb are supported"):
        OffsetTable("oracle", "billing", "me")


@pytest.mark.parametrize("group", ["g" * 256, "billing "])
def test_groups_that_a_key_cannot_tell_apart_are_refused(group: str) -> None:
    with pytest.raises(InvalidUse, match="at most 255 characters and does not end with a space"):
        OffsetTable("sqlite", group, "me")
