"""The table `moldau_offsets`: its SQL for each database, and what is done with it. Opens and ends no transaction.

An owner *claims* a partition before it reads it: the row's epoch grows by one and carries the owner's id. Every batch
advances the row on the condition that the claim still stands, in the transaction that writes the output: an owner that
was replaced cannot write. docs/decisions/0029-offsets-beside-the-output.md says why.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from moldau.base.ids import Epoch, Offset, TopicPartition
from moldau.client.errors import InvalidUse

TABLE = "moldau_offsets"
NO_OFFSET: Offset = -1  # in the table: nothing of this partition was processed
BODY_ENDED_IT = (
    "the body of transactions() has committed or rolled back, which parts the output from its offsets; "
    "the loop commits when the next batch is asked for, and rolls back when it is left"
)
LONGEST_GROUP = 255  # in characters: keys of MariaDB and MySQL are short

SqlValue = str | int
Parameters = Mapping[str, SqlValue] | Sequence[SqlValue]

_CREATE = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
  group_id VARCHAR({LONGEST_GROUP}) NOT NULL,
  topic VARCHAR(249) NOT NULL,
  partition_index INTEGER NOT NULL,
  next_offset BIGINT NOT NULL,
  epoch BIGINT NOT NULL,
  batches BIGINT NOT NULL,
  owner VARCHAR(255) NOT NULL,
  PRIMARY KEY (group_id, topic, partition_index)
)"""
_INSERT = f"""INSERT INTO {TABLE} (group_id, topic, partition_index, next_offset, epoch, batches, owner)
VALUES (:group_id, :topic, :partition_index, {NO_OFFSET}, 1, 0, :owner)"""
_KEY = "group_id = :group_id AND topic = :topic AND partition_index = :partition_index"

PROBE = f"SELECT epoch FROM {TABLE} WHERE {_KEY}"
DELETE_PROBE = f"DELETE FROM {TABLE} WHERE {_KEY}"
READ = f"SELECT next_offset, epoch FROM {TABLE} WHERE {_KEY}"
# `batches` grows so that the row changes in any case: MariaDB and MySQL count changed rows, not those that matched.
ADVANCE = f"""UPDATE {TABLE} SET next_offset = :next_offset, batches = batches + 1
WHERE {_KEY} AND epoch = :epoch AND owner = :owner AND next_offset = :from_offset"""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The statements that differ between databases."""

    create: str
    claim: str


_STANDARD = Dialect(
    create=_CREATE,
    claim=f"""{_INSERT}
ON CONFLICT (group_id, topic, partition_index) DO UPDATE SET epoch = {TABLE}.epoch + 1, owner = excluded.owner""",
)
_MYSQL = Dialect(
    # Names that differ in capitals are different; other engines have no transactions.
    create=f"{_CREATE} ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    claim=f"{_INSERT} ON DUPLICATE KEY UPDATE epoch = epoch + 1, owner = :owner",
)
DIALECTS = {"sqlite": _STANDARD, "postgresql": _STANDARD, "mysql": _MYSQL, "mariadb": _MYSQL}


class Execute(Protocol):
    """Executes one statement with `:name` parameters: the number of rows, and the first one of a SELECT."""

    def __call__(self, sql: str, values: Mapping[str, SqlValue], /) -> tuple[int, Sequence[int] | None]: ...


@dataclass(frozen=True, slots=True)
class Claim:
    """What an owner knows of its row: the epoch it was given, and the offset that it must find there."""

    epoch: Epoch
    next_offset: Offset


@dataclass(frozen=True, slots=True)
class Advance:
    """A partition of a batch: the claim under which it was read, and the offset behind its last record."""

    partition: TopicPartition
    claim: Claim
    next_offset: Offset


class OffsetTable:
    """The rows of one group, for one owner."""

    def __init__(self, dialect: str, group: str, owner: str) -> None:
        if dialect not in DIALECTS:
            raise InvalidUse(f"offsets cannot be stored in {dialect}: {', '.join(DIALECTS)} are supported")
        if len(group) > LONGEST_GROUP or group.endswith(" "):
            raise InvalidUse(
                f"offsets of group {group[:40]!r} cannot be stored in a database: a name there has at most "
                f"{LONGEST_GROUP} characters and does not end with a space"
            )
        self.dialect = DIALECTS[dialect]
        self.group = group
        self.owner = owner

    def claim(self, execute: Execute, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Claim]:
        """Become the owner of these partitions: when this transaction is committed, earlier owners are refused."""
        claims = {}
        for partition in sorted(partitions):  # in one order, so that two members wait for each other without deadlock
            execute(self.dialect.claim, self._row(partition) | {"owner": self.owner})
            _, row = execute(READ, self._row(partition))
            assert row is not None, "the row was just written"
            claims[partition] = Claim(epoch=int(row[1]), next_offset=int(row[0]))
        return claims

    def advance(self, execute: Execute, advances: Iterable[Advance]) -> list[TopicPartition]:
        """Move the offsets. Returns the partitions that another owner has claimed: roll back if there is one."""
        refused = []
        for advance in sorted(advances, key=lambda each: each.partition):
            values: dict[str, SqlValue] = {
                "owner": self.owner,
                "epoch": advance.claim.epoch,
                "from_offset": advance.claim.next_offset,
                "next_offset": advance.next_offset,
            }
            count, _ = execute(ADVANCE, self._row(advance.partition) | values)
            if count != 1:
                refused.append(advance.partition)
        return refused

    # ── what is checked at the start ────────────────────────────────────────────────────────────────────────────────

    def read_probe(self, execute: Execute) -> bool:
        """Whether there is a probe. The database's error is raised if there is no table."""
        return execute(PROBE, self._probe())[1] is not None

    def write_probe(self, execute: Execute) -> None:
        """A row that must be gone after a rollback."""
        execute(_INSERT, self._probe() | {"owner": self.owner})

    def take_probe(self, execute: Execute) -> bool:
        """Whether the probe outlived the rollback; deletes it then."""
        stayed = self.read_probe(execute)
        if stayed:
            execute(DELETE_PROBE, self._probe())
        return stayed

    def _probe(self) -> dict[str, SqlValue]:
        return {"group_id": self.owner, "topic": "", "partition_index": -1}

    def _row(self, partition: TopicPartition) -> dict[str, SqlValue]:
        return {"group_id": self.group, "topic": partition.topic, "partition_index": partition.partition}


# ── parameters of DB-API drivers (PEP 249) ──────────────────────────────────────────────────────────────────────────

_PARAMETER = re.compile(r":(\w+)")
_STYLES = {"qmark": "?", "format": "%s", "named": r":\1", "pyformat": r"%(\1)s"}


@cache
def in_paramstyle(sql: str, paramstyle: str) -> tuple[str, tuple[str, ...] | None]:
    """The statement in a driver's style, and the names of its parameters in order; None if the driver takes names."""
    if paramstyle not in _STYLES:
        raise InvalidUse(f"a database driver with paramstyle {paramstyle!r} is not supported")
    text = _PARAMETER.sub(_STYLES[paramstyle], sql)
    return text, None if "\\1" in _STYLES[paramstyle] else tuple(_PARAMETER.findall(sql))


def parameters(names: tuple[str, ...] | None, values: Mapping[str, SqlValue]) -> Parameters:
    return values if names is None else tuple(values[name] for name in names)
