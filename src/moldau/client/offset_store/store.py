"""The port of offset stores, and the store for a database that the user names. One thread uses it: the body's."""

import secrets
import socket
import sys
from collections.abc import Iterable
from os import getpid
from typing import TYPE_CHECKING, Any, Protocol

from moldau.base.ids import TopicPartition
from moldau.client.errors import InvalidUse
from moldau.client.offset_store.dbapi import DbApiStore, is_connection
from moldau.client.offset_store.table import Advance, Claim

if TYPE_CHECKING:
    from moldau.client.offset_store.sqlalchemy_async import AsyncSqlAlchemyStore

ACCEPTED = "an SQLAlchemy Engine, sessionmaker or Session, a DB-API connection, or a function that returns one"


class OpenTransaction(Protocol):
    """The transaction of one batch, in which the user writes the output. `commit` and `rollback` end it."""

    @property
    def connection(self) -> Any: ...

    @property
    def session(self) -> Any: ...

    def advance(self, advances: Iterable[Advance]) -> list[TopicPartition]:
        """The last statements before the commit. Returns the partitions that another owner has claimed."""
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class OffsetStore(Protocol):
    """The offsets of one group in one database, for one owner."""

    def prepare(self) -> None:
        """Make the table if it is missing, and check that the database can roll back."""
        ...

    def claim(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Claim]:
        """Become the owner of these partitions, in a transaction of its own."""
        ...

    def begin(self) -> OpenTransaction: ...

    def may_pass(self, error: Exception) -> bool:
        """Whether the same may succeed later: lost connections, deadlocks, locks that were not free in time."""
        ...

    def close(self) -> None:
        """Close what was opened here, not what the user gave."""
        ...


def open_store(target: object, group: str) -> OffsetStore:
    """The store for what the user passed to `Consumer.transactions`."""
    owner = new_owner()
    if is_connection(target):
        return DbApiStore(target, None, group, owner)
    if "sqlalchemy" in sys.modules:  # else nothing of it can have been passed
        from moldau.client.offset_store.sqlalchemy import sqlalchemy_store

        found = sqlalchemy_store(target, group, owner)
        if found is not None:
            return found
    if callable(target) and is_connection(made := target()):
        return DbApiStore(made, target, group, owner)
    raise InvalidUse(f"transactions() takes a transactional Producer, {ACCEPTED}; not {type(target).__name__}")


def open_async_store(target: object, group: str) -> "AsyncSqlAlchemyStore | None":
    """The store for what the user passed to `AsyncConsumer.transactions`; None if that is no database."""
    if "sqlalchemy.ext.asyncio" not in sys.modules:
        return None
    from moldau.client.offset_store.sqlalchemy_async import async_sqlalchemy_store

    return async_sqlalchemy_store(target, group, new_owner())


def new_owner() -> str:
    """An id that no other owner ever has, and that tells a reader of the table which process it is."""
    return f"{socket.gethostname()[:200]}:{getpid()}:{secrets.token_hex(8)}"
