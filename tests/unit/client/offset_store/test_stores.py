"""Offsets beside the output, in real databases: what is committed together, and who is refused.

SQLite is always there; PostgreSQL and MariaDB are started if they are installed.
"""

import itertools
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, NullPool, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from moldau.base.ids import TopicPartition
from moldau.client.errors import InvalidUse
from moldau.client.offset_store.store import OffsetStore, OpenTransaction, open_store
from moldau.client.offset_store.table import NO_OFFSET, TABLE, Advance, Claim
from support.databases.targets import (
    KINDS,
    Database,
    mariadb_database,
    postgresql_database,
    sqlite_database,
    target,
)

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
SERVERS = ("postgresql", "mariadb")


@pytest.fixture(params=["sqlite", *SERVERS])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    match request.param:
        case "postgresql":
            return postgresql_database(request.getfixturevalue("postgresql"))
        case "mariadb":
            return mariadb_database(request.getfixturevalue("mariadb"))
    return sqlite_database(tmp_path / "test.db")


@pytest.fixture
def output(database: Database) -> str:
    """The name of a table for the output."""
    name = f"output_{uuid.uuid4().hex}"
    database.change(f"CREATE TABLE {name} (number BIGINT PRIMARY KEY)")
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex}"


# SQLite with every kind; on servers a DB-API connection and SQLAlchemy are enough.
on_every_target = pytest.mark.parametrize(
    ("database", "kind"),
    [*itertools.product(["sqlite"], KINDS), *itertools.product(SERVERS, ["connection", "engine"])],
    indirect=True,
)
on_servers = pytest.mark.parametrize("database", SERVERS, indirect=True)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(database: Database, kind: str, group: str) -> Iterator[OffsetStore]:
    with target(database, kind) as given:
        yield from opened(given, group)


def opened(given: Any, group: str) -> Iterator[OffsetStore]:
    made = open_store(given, group)
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def rival(database: Database, group: str) -> Iterator[OffsetStore]:
    """Another owner, in the same group."""
    yield from opened(database.connect, group)


def write(batch: OpenTransaction, output: str, number: int) -> None:
    sql = f"INSERT INTO {output} VALUES ({number})"
    if hasattr(batch.connection, "exec_driver_sql"):
        batch.connection.execute(text(sql))
    else:
        batch.connection.cursor().execute(sql)


def commit(store: OffsetStore, claim: Claim, next_offset: int) -> Claim:
    batch = store.begin()
    assert batch.advance([Advance(ORDERS, claim, next_offset)]) == []
    batch.commit()
    return Claim(claim.epoch, next_offset)


def numbers(database: Database, output: str) -> list[int]:
    return [number for (number,) in database.rows(f"SELECT number FROM {output} ORDER BY number")]


# ── what every kind of target does ──────────────────────────────────────────────────────────────────────────────────


@on_every_target
def test_output_and_offset_are_committed_together(store: OffsetStore, database: Database, output: str) -> None:
    claims = store.claim([ORDERS, OTHER])
    assert claims == {ORDERS: Claim(1, NO_OFFSET), OTHER: Claim(1, NO_OFFSET)}
    batch = store.begin()
    write(batch, output, 7)
    assert batch.advance([Advance(ORDERS, claims[ORDERS], 12)]) == []
    assert numbers(database, output) == [], "nothing is visible before the commit"
    batch.commit()
    assert numbers(database, output) == [7]
    assert store.claim([ORDERS, OTHER]) == {ORDERS: Claim(2, 12), OTHER: Claim(2, NO_OFFSET)}


@on_every_target
def test_a_rollback_takes_back_both(store: OffsetStore, database: Database, output: str) -> None:
    claim = commit(store, store.claim([ORDERS])[ORDERS], 5)
    batch = store.begin()
    write(batch, output, 7)
    assert batch.advance([Advance(ORDERS, claim, 12)]) == []
    batch.rollback()
    assert numbers(database, output) == []
    assert store.claim([ORDERS])[ORDERS].next_offset == 5


@on_every_target
def test_an_owner_that_was_replaced_is_refused(
    store: OffsetStore, rival: OffsetStore, database: Database, output: str
) -> None:
    mine = store.claim([ORDERS, OTHER])
    batch = store.begin()
    theirs = rival.claim([ORDERS])
    assert theirs == {ORDERS: Claim(2, NO_OFFSET)}
    write(batch, output, 7)
    assert batch.advance([Advance(tp, claim, 3) for tp, claim in mine.items()]) == [ORDERS]
    batch.rollback()
    assert numbers(database, output) == []
    commit(rival, theirs[ORDERS], 9)
    assert store.claim([ORDERS]) == {ORDERS: Claim(3, 9)}


@on_every_target
def test_the_offset_may_stay_the_same(store: OffsetStore) -> None:
    """A topic that was made anew is read from its start: a batch of it may end where the old one did."""
    claim = commit(store, store.claim([ORDERS])[ORDERS], 5)
    commit(store, commit(store, claim, 5), 2)
    assert store.claim([ORDERS]) == {ORDERS: Claim(2, 2)}


@on_every_target
@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_a_body_that_ends_the_transaction_is_told(store: OffsetStore, output: str, how: str) -> None:
    claim = store.claim([ORDERS])[ORDERS]
    batch = store.begin()
    write(batch, output, 7)
    ends = batch.session if hasattr(batch.connection, "exec_driver_sql") else batch.connection
    getattr(ends, how)()
    with pytest.raises(InvalidUse, match="has committed or rolled back"):
        batch.advance([Advance(ORDERS, claim, 12)])
    batch.rollback()
    assert store.claim([ORDERS])[ORDERS].next_offset == NO_OFFSET


# ── what every database does ────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_waits_for_a_commit_in_flight(database: Database, group: str) -> None:
    """The new owner reads the offset that the old one is about to commit."""
    for store in opened(database.connect, group):
        claim = store.claim([ORDERS])[ORDERS]
        batch = store.begin()
        assert batch.advance([Advance(ORDERS, claim, 12)]) == []
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(claimed_by_another, database, group)
            batch.commit()
            assert other.result() == Claim(2, 12)


def claimed_by_another(database: Database, group: str) -> Claim:
    with closing(database.connect()) as connection:
        return open_store(connection, group).claim([ORDERS])[ORDERS]


def test_members_that_start_at_once_make_one_table(database: Database, group: str) -> None:
    database.change(f"DROP TABLE IF EXISTS {TABLE}")
    count = 6
    together = threading.Barrier(count)

    def start(_: int) -> int:
        with closing(database.connect()) as connection:
            store = open_store(connection, group)
            together.wait()
            store.prepare()
            return store.claim([ORDERS])[ORDERS].epoch

    with ThreadPoolExecutor(count) as pool:
        assert sorted(pool.map(start, range(count))) == [*range(1, count + 1)]


def test_a_row_that_was_set_by_hand_counts(database: Database, group: str) -> None:
    for store in opened(database.connect, group):
        claim = commit(store, store.claim([ORDERS])[ORDERS], 100)
        database.change(f"UPDATE {TABLE} SET next_offset = 40 WHERE group_id = '{group}'")
        batch = store.begin()
        assert batch.advance([Advance(ORDERS, claim, 120)]) == [ORDERS]
        batch.rollback()
        assert store.claim([ORDERS]) == {ORDERS: Claim(2, 40)}


def test_a_table_that_was_lost_does_not_bring_an_owner_back(database: Database, group: str) -> None:
    """Epochs begin again then; the owner's id tells the old owner from the new one."""
    for store in opened(database.connect, group):
        before = store.claim([ORDERS])[ORDERS]
        database.change(f"DELETE FROM {TABLE} WHERE group_id = '{group}'")
        after = claimed_by_another(database, group)
        assert after == before
        batch = store.begin()
        assert batch.advance([Advance(ORDERS, before, 120)]) == [ORDERS]
        batch.rollback()


def test_groups_differ_by_every_letter(database: Database, group: str) -> None:
    names = (group, group.upper(), f"{group}-ä", f"{group}-a")
    for name in names:
        for store in opened(database.connect, name):
            assert store.claim([ORDERS]) == {ORDERS: Claim(1, NO_OFFSET)}, name


def test_the_table_tells_who_owns_what(database: Database, group: str) -> None:
    for store in opened(database.connect, group):
        commit(store, commit(store, store.claim([ORDERS])[ORDERS], 3), 8)
    sql = f"SELECT topic, partition_index, next_offset, epoch, batches FROM {TABLE} WHERE group_id = '{group}'"
    assert database.rows(sql) == [("orders", 0, 8, 1, 2)]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orm_orders"
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)


def test_objects_of_the_orm_are_written_with_the_batch(database: Database, group: str) -> None:
    engine = create_engine(database.url, poolclass=NullPool)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    for store in opened(engine, group):
        claim = store.claim([ORDERS])[ORDERS]
        batch = store.begin()
        batch.session.add(Order(number=7))
        assert batch.advance([Advance(ORDERS, claim, 1)]) == []
        batch.commit()
    with Session(engine) as session:
        assert [order.number for order in session.query(Order)] == [7]


# ── connections that do not fit, and connections that are lost ──────────────────────────────────────────────────────


@on_servers
@pytest.mark.parametrize("given", ["connection", "engine"])
def test_autocommit_is_refused(database: Database, group: str, given: str) -> None:
    if given == "engine":
        wrong = create_engine(database.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    else:
        wrong = database.connect(autocommit=True)
    with pytest.raises(InvalidUse, match="does not roll back"):
        open_store(wrong, group).prepare()
    assert database.rows(f"SELECT * FROM {TABLE} WHERE partition_index < 0") == []


@pytest.mark.parametrize("isolation", [None, "", "IMMEDIATE"])
def test_sqlite_with_any_isolation_level(tmp_path: Path, isolation: str | None) -> None:
    database = sqlite_database(tmp_path / "test.db")
    database.change("CREATE TABLE output (number BIGINT)")
    with closing(database.connect(isolation_level=isolation)) as connection:
        for store in opened(connection, "billing"):
            claim = store.claim([ORDERS])[ORDERS]
            batch = store.begin()
            write(batch, "output", 7)
            batch.advance([Advance(ORDERS, claim, 12)])
            batch.rollback()
            assert numbers(database, "output") == []
            batch = store.begin()
            write(batch, "output", 7)
            batch.advance([Advance(ORDERS, claim, 12)])
            batch.commit()
            assert numbers(database, "output") == [7]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
def test_an_open_transaction_is_refused(database: Database, group: str, output: str) -> None:
    with closing(database.connect()) as connection:
        connection.cursor().execute(f"INSERT INTO {output} VALUES (1)")
        with pytest.raises(InvalidUse, match="has an open transaction"):
            open_store(connection, group).prepare()
        connection.rollback()
    with Session(create_engine(database.url, poolclass=NullPool)) as session:
        session.execute(text("SELECT 1"))
        with pytest.raises(InvalidUse, match="has an open transaction"):
            open_store(session, group).prepare()


OTHER_CONNECTIONS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = 'moldau'",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND db = 'moldau'",
}
END = {"postgresql": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}


@on_servers
@pytest.mark.parametrize("kind", ["function", "engine"], indirect=True)
def test_a_lost_connection_is_replaced(
    database: Database, group: str, output: str, kind: str, request: pytest.FixtureRequest
) -> None:
    which = request.node.callspec.params["database"]
    with target(database, kind) as given:
        for store in opened(given, group):
            claim = store.claim([ORDERS])[ORDERS]
            batch = store.begin()
            write(batch, output, 7)
            disconnect_others(database, which)
            with pytest.raises(Exception, match=r".") as lost:
                batch.advance([Advance(ORDERS, claim, 12)])
            assert store.may_pass(lost.value)
            batch.rollback()
            assert numbers(database, output) == []
            assert store.claim([ORDERS]) == {ORDERS: Claim(2, NO_OFFSET)}


def disconnect_others(database: Database, which: str) -> None:
    with closing(database.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(OTHER_CONNECTIONS[which])
        for (each,) in cursor.fetchall():
            cursor.execute(END[which].format(each))


def test_what_is_no_database_is_refused() -> None:
    for given in (None, "sqlite:///file.db", dict):
        with pytest.raises(InvalidUse, match="takes a transactional Producer, an SQLAlchemy Engine"):
            open_store(given, "billing")


def test_a_connection_of_sqlalchemy_is_refused(tmp_path: Path) -> None:
    with (
        create_engine(sqlite_database(tmp_path / "test.db").url).connect() as connection,
        pytest.raises(InvalidUse, match="takes the Engine"),
    ):
        open_store(connection, "billing")


class Unknown:
    def cursor(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


def test_a_connection_of_an_unknown_driver_is_refused() -> None:
    with pytest.raises(InvalidUse, match=r"through .*Unknown: connections of sqlite3, psycopg, .* are supported"):
        open_store(Unknown(), "billing")


def test_a_session_needs_sqlalchemy(tmp_path: Path) -> None:
    with closing(sqlite_database(tmp_path / "test.db").connect()) as connection:
        for store in opened(connection, "billing"):
            batch = store.begin()
            with pytest.raises(InvalidUse, match="pass its Engine or sessionmaker"):
                _ = batch.session
            batch.rollback()
