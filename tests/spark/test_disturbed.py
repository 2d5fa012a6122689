"""A stream is disturbed in every way at which reading can fail, and loses nothing: it is delivered at least once.

Python workers are killed, the broker is, and the driver with its JVM, which then goes on with another number of cores.
What exactly-once makes of it is in test_exactly_once.py.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.brokers.processes import BrokerProcess, StartBroker
from support.clients.confluent import read, write
from support.clients.raw import RawClient
from support.eventually import eventually
from support.spark.process import PATIENCE_S, SparkProcess

ROUNDS = 8
EACH = 300  # records between two disturbances
IN_A_BATCH = 60
PARTITIONS = 3
LATEST = -1
SOURCE, TARGET = "source", "target"
TRIES = 4
MASTERS = (f"local[2,{TRIES}]", f"local[1,{TRIES}]", f"local[3,{TRIES}]")  # cores, and how often a task is tried


class Copier:
    """A stream from topic to topic that is started again whenever it ended."""

    def __init__(self, broker: BrokerProcess, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        self.driver: SparkProcess | None = None
        self.starts = 0

    def start(self) -> None:
        """With other cores than before."""
        self.driver = SparkProcess(self.directory / "driver.log", master=MASTERS[self.starts % len(MASTERS)])
        self.starts += 1
        self.run()

    def run(self) -> None:
        assert self.driver is not None
        self.driver.copy(self.broker.bootstrap, (SOURCE, TARGET), self.directory, batch=IN_A_BATCH)

    def go_on_until(self, count: int) -> None:
        """Until so many records are in the target; a query that ended is started again, as a supervisor would."""

        def enough() -> bool:
            assert self.driver is not None
            if not self.driver.ask("running"):
                self.run()
            return self.copied() >= count

        eventually(enough, f"{count} records are copied", self.report, PATIENCE_S)

    def copied(self) -> int:
        with RawClient(self.broker.bootstrap) as client:
            return int(client.list_offset(TARGET, LATEST).offset)

    def report(self) -> str:
        assert self.driver is not None
        return f"{self.copied()} are there\n{self.driver.tail()}"

    # -- what can happen

    def lose_workers(self) -> None:
        """Those of tasks: a daemon forked them."""
        assert self.driver is not None
        for each in self.driver.family():
            parent = each.parent()
            if parent is not None and "pyspark.daemon" in " ".join(_command(parent)):
                each.kill()

    def lose_broker(self) -> None:
        self.broker.kill()
        self.broker.start()

    def lose_driver(self) -> None:
        assert self.driver is not None
        self.driver.kill()
        self.start()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended
        return []


@pytest.fixture
def copier(start_broker: StartBroker, tmp_path: Path) -> Iterator[Copier]:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        client.create_topic(SOURCE, PARTITIONS, {})
        client.create_topic(TARGET, 1, {})
    copier = Copier(broker, tmp_path)
    yield copier
    if copier.driver is not None:
        copier.driver.kill()


@pytest.mark.timeout(1200 * ROUNDS)
@pytest.mark.skipif(not os.environ.get("MOLDAU_FULL"), reason="test_faults.py has it too; make spark runs both")
def test_nothing_is_lost(copier: Copier, python_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path)
    disturb = [copier.lose_workers, copier.lose_broker, copier.lose_driver] * ROUNDS
    random.Random(ROUNDS).shuffle(disturb)
    values = [b"%d" % number for number in range((len(disturb) + 1) * EACH)]
    write(copier.broker.bootstrap, SOURCE, [{"key": value, "value": value} for value in values])
    copier.start()
    for number, happens in enumerate(disturb):
        copier.go_on_until((number + 1) * EACH - EACH // 2)
        happens()
    copier.go_on_until(len(values))
    assert copier.driver is not None
    copier.driver.ask("finish")
    found = [record.value for record in read(copier.broker.bootstrap, TARGET)]
    assert set(found) == set(values), "each record is there"
    assert len(found) - len(values) <= len(disturb) * TRIES * IN_A_BATCH, "and not much more than that"
