"""A stream is hit by failures in the middle of everything: at least once loses nothing, exactly once doubles nothing.

Python workers die before, between and behind the steps of a transaction, the driver's own Python dies around a batch's
end, the broker is killed, and the whole driver is, which then goes on with another number of cores. The run of
`make test` is a small one; `make spark-faults` has over fifty failures.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.brokers.processes import BrokerProcess, StartBroker
from support.clients.confluent import read, write
from support.clients.raw import RawClient
from support.eventually import eventually
from support.spark.process import SparkProcess

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

FULL = bool(os.environ.get("MOLDAU_FULL"))
SOURCE, TARGET = "source", "target"
PARTITIONS = 3
ASKING_S = 0.2
PATIENCE_S = 400  # a query that is started again and again on a busy machine
EACH = 180  # records between two failures
IN_A_BATCH = 60
MASTERS = ("local[2,4]", "local[1]", "local[3,4]")  # cores, and how often a task is tried
STEPS = ("written", "noted", "ended", "returned", "finished")
BROKER, DRIVER = "broker", "driver"


@dataclass
class Copy:
    """A stream from topic to topic, whose processes die when they come to a place that was named."""

    broker: BrokerProcess
    directory: Path
    delivery: str
    chance: random.Random
    driver: SparkProcess | None = None
    sent: list[bytes] = field(default_factory=list)
    starts: int = 0

    @property
    def faults(self) -> Path:
        return self.directory / "faults"

    def start(self) -> None:
        self.driver = SparkProcess(self.directory / "driver.log", master=MASTERS[self.starts % len(MASTERS)])
        self.starts += 1
        self.run()

    def run(self) -> None:
        assert self.driver is not None
        options = {"delivery": self.delivery, "faults": str(self.faults)}
        topics = (SOURCE, TARGET)
        self.driver.copy(self.broker.bootstrap, topics, self.directory, batch=IN_A_BATCH, form="faulty", **options)

    def more(self) -> None:
        values = [b"%d" % number for number in range(len(self.sent), len(self.sent) + EACH)]
        write(self.broker.bootstrap, SOURCE, [{"key": value, "value": value} for value in values])
        self.sent += values

    def suffer(self, what: str) -> None:
        """One failure, and what follows from it."""
        self.more()
        # What the failure hits has begun by then, but how far it is depends on chance.
        self.come_by("written" if what in (BROKER, DRIVER) else what, deadly=what not in (BROKER, DRIVER))
        if what == BROKER:
            self.broker.kill()
            self.broker.start()
        elif what == DRIVER:
            assert self.driver is not None
            self.driver.kill()
            self.start()

    def come_by(self, place: str, *, deadly: bool) -> None:
        """Waits until some process has come to the place a few times, and has died there if it was to."""
        passing = self.chance.randrange(3)
        for number in range(passing):
            (self.faults / f"{place}.{number}.pass").touch()
        (self.faults / f"{place}.{passing}.{'kill' if deadly else 'pass'}").touch()
        eventually(self.all_came_by, place, self.report, PATIENCE_S)

    def all_came_by(self) -> bool:
        if not any(self.faults.iterdir()):
            return True
        self.goes_on()
        time.sleep(ASKING_S)
        return False

    def goes_on(self) -> None:
        """A query that ended is started again, as a supervisor would."""
        assert self.driver is not None
        if not self.driver.ask("running"):
            self.run()

    def finish(self) -> None:
        """All that was sent is copied, and nothing more is under way."""
        eventually(self.all_are_there, "everything is copied", self.report, PATIENCE_S * 2)
        assert self.driver is not None
        self.driver.ask("finish")

    def all_are_there(self) -> bool:
        self.goes_on()
        time.sleep(ASKING_S)
        return set(self.copied()) >= set(self.sent)

    def report(self) -> str:
        assert self.driver is not None
        return f"{sorted(self.faults.iterdir())}\n{self.driver.tail()}"

    def copied(self) -> Counter[bytes]:
        return Counter(record.value or b"" for record in read(self.broker.bootstrap, TARGET))


@pytest.fixture
def copy(
    request: pytest.FixtureRequest,
    start_broker: StartBroker,
    tmp_path: Path,
    python_path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Copy]:
    programs = str(Path(__file__).parent / "programs")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((python_path, programs)))
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        for name in (SOURCE, TARGET):
            client.create_topic(name, PARTITIONS, {})
    seed = int(os.environ.get("MOLDAU_SEED", time.time_ns() % 1_000_000))
    print(f"seed {seed}")
    copy = Copy(broker, tmp_path, request.param, random.Random(seed))
    copy.faults.mkdir()
    yield copy
    if copy.driver is not None:
        copy.driver.kill()


def suffer_all(copy: Copy, failures: list[str]) -> None:
    copy.start()
    for number, what in enumerate(failures):
        begun = time.monotonic()
        copy.suffer(what)
        print(f"{number + 1} of {len(failures)}: {what}, {time.monotonic() - begun:.1f} s", flush=True)
    copy.finish()


@pytest.mark.timeout(3600 if FULL else 1500)
@pytest.mark.parametrize("copy", ["exactly-once"], indirect=True)
def test_exactly_once(copy: Copy) -> None:
    failures = ["ended", BROKER, "returned", DRIVER, "noted"]
    if FULL:
        failures = [*STEPS * 6, *["ended"] * 4, *[BROKER] * 5, *[DRIVER] * 3]
        copy.chance.shuffle(failures)
    suffer_all(copy, failures)
    assert copy.copied() == Counter(copy.sent)


@pytest.mark.timeout(3600 if FULL else 1500)
@pytest.mark.skipif(not FULL, reason="exactly once loses nothing either; make spark-faults has both")
@pytest.mark.parametrize("copy", ["at-least-once"], indirect=True)
def test_at_least_once(copy: Copy) -> None:
    failures = [*("written", "flushed") * 4, *[BROKER] * 2, DRIVER]
    copy.chance.shuffle(failures)
    suffer_all(copy, failures)
    copied = copy.copied()
    assert set(copied) == set(copy.sent)
    print(f"{copied.total() - len(copied)} of {len(copied)} records are there again")
