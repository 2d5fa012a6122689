"""What users pass to `Consumer.transactions` for a database, each kind with each driver, and a look at the rows."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from sqlalchemy import NullPool, create_engine
from sqlalchemy.orm import Session, sessionmaker

from support.databases.servers import Server

BUSY_S = 30


@dataclass(frozen=True)
class Database:
    """A database and how it is reached: `connect` opens a DB-API connection, `url` is SQLAlchemy's."""

    connect: Callable[..., Any]
    url: str

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def change(self, sql: str) -> None:
        with closing(self.connect()) as connection:
            connection.cursor().execute(sql)
            connection.commit()


def sqlite_database(file: Path) -> Database:
    return Database(lambda **more: sqlite3.connect(file, **{"timeout": BUSY_S, **more}), f"sqlite:///{file}")


def postgresql_database(server: Server) -> Database:
    return Database(lambda **more: psycopg.connect(server.postgresql(), **more), server.url("postgresql+psycopg"))


def mariadb_database(server: Server) -> Database:
    return Database(lambda **more: pymysql.connect(**server.mariadb(), **more), server.url("mysql+pymysql"))


@contextmanager
def target(database: Database, kind: str) -> Iterator[Any]:
    """A target of one kind. Engines keep no connections, so that none outlives the test."""
    match kind:
        case "connection":
            with closing(database.connect()) as connection:
                yield connection
        case "function":
            yield database.connect
        case "engine":
            yield create_engine(database.url, poolclass=NullPool)
        case "sessionmaker":
            yield sessionmaker(create_engine(database.url, poolclass=NullPool))
        case "session":
            with Session(create_engine(database.url, poolclass=NullPool)) as session:
                yield session
        case _:
            raise AssertionError(kind)


KINDS = ("connection", "function", "engine", "sessionmaker", "session")
