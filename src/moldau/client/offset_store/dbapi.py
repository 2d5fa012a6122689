"""Offsets through a DB-API connection (PEP 249): sqlite3, psycopg, pymysql and their like. Knows nothing of Kafka."""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NoReturn, Protocol, TypeGuard

from moldau.base.ids import TopicPartition
from moldau.client.errors import InvalidUse
from moldau.client.offset_store.table import (
    BODY_ENDED_IT,
    Advance,
    Claim,
    OffsetTable,
    Parameters,
    SqlValue,
    in_paramstyle,
    parameters,
)

logger = logging.getLogger(__name__)

# By the module of the connection's class.
DRIVERS = {
    "sqlite3": "sqlite",
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "pymysql": "mysql",
    "mysql.connector": "mysql",
}
IDLE = 0  # a connection of PostgreSQL that has no transaction
SAVEPOINT = "moldau_batch"  # gone if the body commits or rolls back, which would part the output from its offsets


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...
    @property
    def description(self) -> Any: ...
    def execute(self, sql: str, parameters: Parameters = ..., /) -> object: ...
    def fetchone(self) -> Sequence[int] | None: ...
    def close(self) -> object: ...


class DbApiConnection(Protocol):
    def cursor(self) -> Cursor: ...
    def commit(self) -> object: ...
    def rollback(self) -> object: ...
    def close(self) -> object: ...


class DriverModule(Protocol):
    """What PEP 249 says of a driver's module."""

    paramstyle: str
    Error: type[Exception]
    OperationalError: type[Exception]
    InterfaceError: type[Exception]


def is_connection(target: object) -> TypeGuard[DbApiConnection]:
    return all(callable(getattr(target, name, None)) for name in ("cursor", "commit", "rollback"))


def driver_of(connection: DbApiConnection) -> tuple[DriverModule, str]:
    """The driver's module and the dialect of its databases."""
    for kind in type(connection).__mro__:
        for name, dialect in DRIVERS.items():
            if f"{kind.__module__}.".startswith(f"{name}."):
                module: Any = sys.modules[name]
                return module, dialect
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise InvalidUse(f"offsets cannot be stored through {name}: connections of {', '.join(DRIVERS)} are supported")


class Sqlite:
    """sqlite3 begins a transaction before the first change only, or never: here before any statement."""

    def is_open(self, connection: Any) -> bool:
        always = getattr(connection, "autocommit", None) is False  # Python 3.12: open from the start
        return not always and bool(connection.in_transaction)

    def begin(self, connection: Any, how: str = "") -> None:
        if not connection.in_transaction:
            connection.execute(f"BEGIN {how}")

    def begin_writing(self, connection: Any) -> None:
        self.begin(connection, "IMMEDIATE")  # waits for others that write; from reading to writing there is no waiting

    def end(self, connection: Any, how: Literal["commit", "rollback"]) -> None:
        if getattr(connection, "autocommit", None) is True:  # Python 3.12: its methods do nothing then
            if connection.in_transaction:
                connection.execute(how)
        else:
            getattr(connection, how)()


class Implicit:
    """Other drivers begin a transaction with the first statement, as PEP 249 says."""

    def is_open(self, connection: Any) -> bool:
        status = getattr(getattr(connection, "info", None), "transaction_status", IDLE)  # psycopg's; others cannot say
        return bool(status != IDLE)

    def begin(self, connection: Any) -> None:
        del connection

    begin_writing = begin

    def end(self, connection: Any, how: Literal["commit", "rollback"]) -> None:
        getattr(connection, how)()


class DbApiStore:
    """One connection for claims and batches. With `connect`, one that failed is replaced."""

    def __init__(
        self, connection: DbApiConnection, connect: Callable[[], object] | None, group: str, owner: str
    ) -> None:
        self._driver, dialect = driver_of(connection)
        self._control = Sqlite() if dialect == "sqlite" else Implicit()
        self._table = OffsetTable(dialect, group, owner)
        self._connect = connect
        self._connection: DbApiConnection | None = connection

    def prepare(self) -> None:
        connection = self._connected()
        if self._control.is_open(connection):
            raise InvalidUse("the connection has an open transaction: commit or roll back before the loop")
        if not self._exists(connection):
            self._create(connection)
        self._control.begin_writing(connection)
        self._table.write_probe(self.execute)
        self._control.end(connection, "rollback")
        self._control.begin_writing(connection)
        stayed = self._table.take_probe(self.execute)
        self._control.end(connection, "commit")
        if stayed:
            raise InvalidUse("the database does not roll back: turn off autocommit of the connection")

    def claim(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Claim]:
        connection = self._connected()
        try:
            self._control.begin_writing(connection)
            claims = self._table.claim(self.execute, partitions)
            self._control.end(connection, "commit")
        except BaseException:
            self.rollback()
            raise
        return claims

    def begin(self) -> "DbApiTransaction":
        connection = self._connected()
        try:
            self._control.begin(connection)
            self.execute(f"SAVEPOINT {SAVEPOINT}", {})
        except BaseException:
            self.rollback()
            raise
        return DbApiTransaction(self, connection)

    def advance(self, advances: Iterable[Advance]) -> list[TopicPartition]:
        try:
            self.execute(f"RELEASE SAVEPOINT {SAVEPOINT}", {})
        except self._driver.Error as error:
            if SAVEPOINT not in str(error):
                raise
            raise InvalidUse(BODY_ENDED_IT) from error
        return self._table.advance(self.execute, advances)

    def commit(self) -> None:
        self._control.end(self._connected(), "commit")

    def rollback(self) -> None:
        """Also after an error, which may have cost the connection."""
        if self._connection is None:
            return
        try:
            self._control.end(self._connection, "rollback")
        except self._driver.Error as error:
            if self._connect is None:
                logger.warning("Rollback failed, the connection may be lost: %s", error)
                return
            logger.warning("Rollback failed, connecting again: %s", error)
            with suppress(self._driver.Error):
                self._connection.close()
            self._connection = None

    def may_pass(self, error: Exception) -> bool:
        return isinstance(error, self._driver.OperationalError | self._driver.InterfaceError)

    def close(self) -> None:
        if self._connect is not None and self._connection is not None:
            self._connection.close()
            self._connection = None

    def execute(self, sql: str, values: Mapping[str, SqlValue]) -> tuple[int, Sequence[int] | None]:
        text, names = in_paramstyle(sql, self._driver.paramstyle)
        cursor = self._connected().cursor()
        try:
            if values:
                cursor.execute(text, parameters(names, values))
            else:
                cursor.execute(text)
            return cursor.rowcount, cursor.fetchone() if cursor.description else None
        finally:
            cursor.close()

    def _connected(self) -> DbApiConnection:
        if self._connection is None:
            made = self._connect() if self._connect is not None else None
            assert is_connection(made), "it was one the first time"
            self._connection = made
        return self._connection

    def _exists(self, connection: DbApiConnection) -> bool:
        try:
            self._table.read_probe(self.execute)
        except self._driver.Error as error:
            logger.debug("No table of offsets yet: %s", error)
            return False
        finally:
            self._control.end(connection, "rollback")
        return True

    def _create(self, connection: DbApiConnection) -> None:
        try:
            self.execute(self._table.dialect.create, {})
            self._control.end(connection, "commit")
        except self._driver.Error:
            # PostgreSQL lets one of two that create a table at the same time fail, in spite of IF NOT EXISTS.
            self._control.end(connection, "rollback")
            if not self._exists(connection):
                raise


class DbApiTransaction:
    """A batch's transaction on the store's connection."""

    def __init__(self, store: DbApiStore, connection: DbApiConnection) -> None:
        self._store = store
        self.connection: Any = connection

    @property
    def session(self) -> NoReturn:
        raise InvalidUse("batch.session needs SQLAlchemy: pass its Engine or sessionmaker, or use batch.connection")

    def advance(self, advances: Iterable[Advance]) -> list[TopicPartition]:
        return self._store.advance(advances)

    def commit(self) -> None:
        self._store.commit()

    def rollback(self) -> None:
        self._store.rollback()
