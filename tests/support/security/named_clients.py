"""A broker in this process whose clients have a principal by their listener: ALICE's are User:alice."""

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from moldau.base.session import Principal
from moldau.broker import assembly, node
from moldau.broker.clock import Clock
from moldau.broker.settings import load
from moldau.net.connection import Connection, Handled

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
START_S = 20.0


def _by_listener(dispatch: Callable[[Connection, memoryview], Handled]) -> Callable[[Connection, memoryview], Handled]:
    def named(connection: Connection, frame: memoryview) -> Handled:
        session = connection.session
        if session.principal.name != session.listener.lower():
            session.principal = Principal("User", session.listener.lower())
        return dispatch(connection, frame)

    return named


@contextmanager
def serving(directory: Path, *names: str, **settings: str) -> Iterator[dict[str, str]]:
    """The address of each named client's listener; `admin` is a super user."""
    given = {
        "listeners": ",".join(f"{name.upper()}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": ",".join(f"{name.upper()}:PLAINTEXT" for name in names),
        "log.dirs": str(directory),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    ready = threading.Event()
    state: dict[str, Any] = {}

    def assembled(*arguments: Any, **others: Any) -> assembly.Assembly:
        made = assembly.assemble(*arguments, **others)
        named: Any = _by_listener(made.dispatcher)
        named.log_in = made.dispatcher.log_in
        return dataclasses.replace(made, dispatcher=named)

    async def run() -> None:
        config, _ = load(given, host_name="localhost")
        stop = asyncio.Event()
        broker = node.Node(config, stop, Clock())
        with mock.patch.object(node, "assemble", assembled):
            started = await broker.start(time.monotonic())
        state.update(loop=asyncio.get_running_loop(), stop=stop, started=started)
        ready.set()
        await stop.wait()
        await broker.stop()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(START_S), "the broker did not start"
    try:
        yield dict(zip(names, map(str, state["started"].addresses), strict=True))
    finally:
        state["loop"].call_soon_threadsafe(state["stop"].set)
        thread.join(START_S)
