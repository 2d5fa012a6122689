"""Offsets through SQLAlchemy 2: an Engine, a sessionmaker, or one Session. Coroutines: `sqlalchemy_async`."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from sqlalchemy import Connection, CursorResult, Engine, TextClause, exc, text
from sqlalchemy.orm import Session, SessionTransaction, scoped_session, sessionmaker

from moldau.base.ids import TopicPartition
from moldau.client.errors import InvalidUse
from moldau.client.offset_store.table import BODY_ENDED_IT, Advance, Claim, OffsetTable, SqlValue

logger = logging.getLogger(__name__)


def sqlalchemy_store(target: object, group: str, owner: str) -> "SqlAlchemyStore | None":
    """The store for a target of SQLAlchemy; None for others."""
    if isinstance(target, Engine):
        return SqlAlchemyStore(partial(Session, target), None, group, owner)
    if isinstance(target, Session):
        return SqlAlchemyStore(lambda: target, target, group, owner)
    if isinstance(target, sessionmaker | scoped_session):
        return SqlAlchemyStore(target, None, group, owner)
    if isinstance(target, Connection):
        raise InvalidUse(
            "transactions() takes the Engine, not a Connection of it: each batch is a transaction of its own"
        )
    return None


@cache
def _clause(sql: str) -> TextClause:
    return text(sql)


def execute_in(session: Session, sql: str, values: Mapping[str, SqlValue]) -> tuple[int, Sequence[int] | None]:
    """`Execute` for a session."""
    result = session.execute(_clause(sql), values)
    assert isinstance(result, CursorResult)
    return result.rowcount, result.first() if result.returns_rows else None


# ── on a session; the asynchronous store runs these with `AsyncSession.run_sync` ──────────────────────────────────────


def table_of(session: Session, group: str, owner: str) -> OffsetTable:
    return OffsetTable(session.get_bind().dialect.name, group, owner)


def prepare(session: Session, table: OffsetTable) -> None:
    execute = partial(execute_in, session)
    if not _exists(session, table):
        try:
            with session.begin():
                execute(table.dialect.create, {})
        except exc.DBAPIError:
            # PostgreSQL lets one of two that create a table at the same time fail, in spite of IF NOT EXISTS.
            if not _exists(session, table):
                raise
    with session.begin() as transaction:
        table.write_probe(execute)
        transaction.rollback()
    with session.begin():
        stayed = table.take_probe(execute)
    if stayed:
        raise InvalidUse("the database does not roll back: the Engine's isolation_level must not be AUTOCOMMIT")


def _exists(session: Session, table: OffsetTable) -> bool:
    try:
        with session.begin():
            table.read_probe(partial(execute_in, session))
    except exc.DBAPIError as error:
        logger.debug("No table of offsets yet: %s", error)
        return False
    return True


def claim(session: Session, table: OffsetTable, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Claim]:
    with session.begin():
        return table.claim(partial(execute_in, session), partitions)


def advance(
    session: Session, table: OffsetTable, begun: SessionTransaction, advances: Iterable[Advance]
) -> list[TopicPartition]:
    if session.get_transaction() is not begun:
        raise InvalidUse(BODY_ENDED_IT)
    session.flush()  # before: the row is locked from now to the commit
    return table.advance(partial(execute_in, session), advances)


def may_pass(error: Exception) -> bool:
    lost = isinstance(error, exc.DBAPIError) and error.connection_invalidated
    return lost or isinstance(error, exc.OperationalError | exc.InterfaceError | exc.TimeoutError)


# ── the store ───────────────────────────────────────────────────────────────────────────────────────────────────────


class SqlAlchemyStore:
    """A new session for each claim and each batch, or one that the user gave for all."""

    def __init__(self, make: Callable[[], Session], given: Session | None, group: str, owner: str) -> None:
        self._make = make
        self._given = given
        with self._session() as session:
            self.table = table_of(session, group, owner)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        session = self._make()
        try:
            yield session
        finally:
            self.release(session)

    def release(self, session: Session) -> None:
        if session is not self._given:
            session.close()

    def prepare(self) -> None:
        if self._given is not None and self._given.in_transaction():
            raise InvalidUse("the Session has an open transaction: commit or roll back before the loop")
        with self._session() as session:
            prepare(session, self.table)

    def claim(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Claim]:
        with self._session() as session:
            return claim(session, self.table, partitions)

    def begin(self) -> "SessionBatch":
        return SessionBatch(self, self._make())

    def may_pass(self, error: Exception) -> bool:
        return may_pass(error)

    def close(self) -> None:
        """Nothing is open between two batches."""


class SessionBatch:
    """A batch's transaction: a session that has begun. It takes a connection with its first statement."""

    def __init__(self, store: SqlAlchemyStore, session: Session) -> None:
        self._store = store
        self._session = session
        self._begun = session.begin()

    @property
    def session(self) -> Any:
        return self._session

    @property
    def connection(self) -> Any:
        return self._session.connection()

    def advance(self, advances: Iterable[Advance]) -> list[TopicPartition]:
        return advance(self._session, self._store.table, self._begun, advances)

    def commit(self) -> None:
        self._session.commit()
        self._store.release(self._session)

    def rollback(self) -> None:
        try:
            self._session.rollback()
        except exc.DBAPIError as error:
            logger.warning("Rollback failed, the connection may be lost: %s", error)
        self._store.release(self._session)
