"""Offsets through SQLAlchemy's asyncio extension: the store for threads, run in a greenlet of SQLAlchemy's."""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.util import await_only

from moldau.client.errors import InvalidUse
from moldau.client.offset_store.sqlalchemy import SessionBatch, SqlAlchemyStore

P = ParamSpec("P")
T = TypeVar("T")


def async_sqlalchemy_store(target: object, group: str, owner: str) -> "AsyncSqlAlchemyStore | None":
    """The store for a target of SQLAlchemy's asyncio extension; None for others."""
    if isinstance(target, AsyncEngine):
        return AsyncSqlAlchemyStore(lambda: AsyncSession(target), None, group, owner)
    if isinstance(target, AsyncSession):
        return AsyncSqlAlchemyStore(lambda: target, target, group, owner)
    if isinstance(target, async_sessionmaker):
        return AsyncSqlAlchemyStore(target, None, group, owner)
    return None


class AsyncSqlAlchemyStore(SqlAlchemyStore):
    """Its methods, and those of its batches, are to be called by `run`."""

    def __init__(self, make: Callable[[], AsyncSession], given: AsyncSession | None, group: str, owner: str) -> None:
        self._make_async = make
        super().__init__(lambda: make().sync_session, given.sync_session if given else None, group, owner)

    def begin(self) -> "AsyncSessionBatch":
        return AsyncSessionBatch(self, self._make_async())

    async def run(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """Call a function in which sessions wait without blocking the event loop."""
        async with AsyncSession() as door:
            return await door.run_sync(lambda _: function(*arguments))

    def off_the_loop(self, function: Callable[P, T]) -> Callable[P, T]:
        """A function to be called inside of `run` that blocks: it runs in a thread then."""

        def call(*arguments: P.args, **named: P.kwargs) -> T:
            return await_only(asyncio.to_thread(function, *arguments, **named))

        return call


class AsyncSessionBatch(SessionBatch):
    """A batch's transaction: an AsyncSession that has begun."""

    def __init__(self, store: AsyncSqlAlchemyStore, session: AsyncSession) -> None:
        super().__init__(store, session.sync_session)
        self._async_session = session

    @property
    def session(self) -> AsyncSession:
        return self._async_session

    @property
    def connection(self) -> NoReturn:
        raise InvalidUse("an AsyncSession gives its connection to those who wait: await batch.session.connection()")
