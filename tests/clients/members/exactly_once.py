"""Copies records exactly once with Consumer.transactions, in lives that end suddenly, one after the other.

`python exactly_once.py '{"bootstrap": …, "source": …, "group": …, "lives": […], …}'` forks a process for each life. It
dies at a step of the client's (`["commit", "before", 2]`: at the second commit, before it is made), or is killed from
outside (`["kill", 0.01]`: so long after its first batch). The last life goes on until SIGTERM; `stop` is a step at
which it stops, until SIGCONT. Steps are wrapped here: the client has no code for this.

With `database`, an SQLAlchemy URL or the path of an SQLite file, records become rows of the table `output`; with
`target`, records of that topic.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from sqlite3 import connect
from typing import Any

from sqlalchemy import NullPool, create_engine, text
from told import leaving, settings, tell

from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.transaction_targets import Batch
from moldau.client.offset_store.dbapi import DbApiStore, DbApiTransaction
from moldau.client.offset_store.sqlalchemy import SessionBatch, SqlAlchemyStore
from moldau.client.producer.producer import Producer
from moldau.client.producer.transactions import Transaction

BUSY_S = 60
DIED = 42  # exit code
Step = tuple[str, str, int]  # a name, before or after it, how often it was reached

STEPS: dict[str, list[tuple[type, str]]] = {
    "prepare": [(DbApiStore, "prepare"), (SqlAlchemyStore, "prepare")],
    "claim": [(DbApiStore, "claim"), (SqlAlchemyStore, "claim")],
    "begin": [(DbApiStore, "begin"), (SqlAlchemyStore, "begin")],
    "advance": [(DbApiTransaction, "advance"), (SessionBatch, "advance")],
    "commit": [(DbApiTransaction, "commit"), (SessionBatch, "commit")],
    "begin_transaction": [(Transaction, "begin")],
    "send_offsets": [(Transaction, "send_offsets")],
    "commit_transaction": [(Transaction, "commit")],
    "done": [(ConsumerEngine, "done_many")],
    "lag": [(ConsumerEngine, "commit")],
}


class Worker:
    """One life, in a process of its own."""

    def __init__(self, given: dict[str, Any], last: bool, began: Callable[[], None]) -> None:
        self.given = given
        self.began = began
        self.body: Callable[[], None] = lambda: None  # called in the middle of a batch
        self.n = given["last_n"] if last else given["n"]
        self.consumer: Consumer[Any, Any] = Consumer(
            given["bootstrap"],
            given["source"],
            group=given["group"],
            delivery="exactly-once",
            instance_id=given.get("instance"),
            protocol=given.get("protocol", "classic"),
            properties={"fetch.wait.max.ms": 20, "reconnect.backoff.max.ms": 200, **given.get("properties", {})},
        )
        self.producer: Producer[Any, Any] | None = None
        if "target" in given:
            self.producer = Producer(
                given["bootstrap"],
                transactional_id=given["transactional_id"],
                linger=0.001,
                properties={"reconnect.backoff.max.ms": 200},
            )
        signal.signal(signal.SIGTERM, lambda *_: self.consumer.wakeup())

    def run(self) -> None:
        with self.consumer:
            for batch in self.batches():
                self.began()
                self.write(batch)

    def batches(self) -> Iterator[Batch[Any, Any]]:
        url = self.given.get("database", "")
        if self.producer is not None:
            with self.producer:
                yield from self.consumer.transactions(self.producer, self.n, 0)
        elif "://" in url:
            yield from self.consumer.transactions(create_engine(url, poolclass=NullPool), self.n, 0)
        else:
            yield from self.consumer.transactions(lambda: connect(url, timeout=BUSY_S), self.n, 0)

    def write(self, batch: Batch[Any, Any]) -> None:
        for number, message in enumerate(batch):
            if number == len(batch) // 2:
                self.body()
            if self.producer is not None:
                self.producer.send(self.given["target"], message.raw_value, partition=message.partition)
                continue
            value = int(message.raw_value or b"")
            sql = f"INSERT INTO output (partition_index, number) VALUES ({message.partition}, {value})"
            if "://" in self.given["database"]:
                batch.session.execute(text(sql))
            else:
                batch.connection.execute(sql)


def interrupt(worker: Worker, step: Step, act: Callable[[], None]) -> None:
    """Call `act` before or after the step, when it is reached for the given time."""
    name, when, times = step
    count = 0

    def reached() -> None:
        nonlocal count
        count += 1
        if count == times:
            act()

    if name == "body":
        worker.body = reached
        return
    for owner, method in STEPS[name]:
        setattr(owner, method, wrapped(getattr(owner, method), when, reached))


def wrapped(original: Callable[..., Any], when: str, reached: Callable[[], None]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            reached()
        result = original(*arguments, **named)
        if when == "after":
            reached()
        return result

    return call


def live(given: dict[str, Any], step: Step | None, last: bool, first_batch: int, parent: int) -> None:
    """The process of a life; never returns."""

    def end_with_parent() -> None:
        os.read(parent, 1)
        os._exit(1)

    def began() -> None:
        nonlocal told
        if not told:
            told = True
            os.write(first_batch, b"1")

    def stop() -> None:
        tell("stopped", pid=os.getpid())
        os.kill(os.getpid(), signal.SIGSTOP)

    told = False
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        worker = Worker(given, last, began)
        if step is not None:
            interrupt(worker, step, stop if last else lambda: os._exit(DIED))
        worker.run()
    except BaseException:
        logging.exception("This life ended by an error.")
        os._exit(3)
    os._exit(0)


def start(given: dict[str, Any], step: Step | None, last: bool) -> tuple[int, int]:
    """Fork a life: its process id, and a pipe in which it tells that it has a batch."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os.close(alive[1])
        live(given, step, last, write, alive[0])
    os.close(write)
    return child, read


def end(child: int, life: object) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    tell("ended", life=life, code=code)
    return code


def run(given: dict[str, Any]) -> None:
    for life in given["lives"]:
        if life[0] == "kill":
            child, began = start(given, None, False)
            os.read(began, 1)
            time.sleep(life[1])
            os.kill(child, signal.SIGKILL)
        else:
            child, began = start(given, life, False)
        end(child, life)
        os.close(began)
    tell("last", life=len(given["lives"]))
    child, began = start(given, given.get("stop"), True)
    leaving.wait()
    os.kill(child, signal.SIGTERM)
    code = end(child, "last")
    os.close(began)
    if code == 0:
        tell("left")
    sys.exit(code)


if __name__ == "__main__":
    alive = os.pipe()
    logging.basicConfig(format="%(asctime)s %(process)d %(name)s: %(message)s", level=logging.INFO)
    run(settings())
