"""Base of all workloads: a thread that works until it is stopped, and records everything it does."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError

from chaos.access import Access
from chaos.history import Acked, Erred, Failed, Noted, Placed, Polled, Read, Recorder, Send

PATIENCE_S = 120.0  # limit for a client to recover from a fault; it detects hangs, it does not measure speed

# librdkafka with short timeouts; the defaults notice a lost broker after a minute.
HASTY = {
    "socket.timeout.ms": 4_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2_000,
    "metadata.max.age.ms": 10_000,
    "log_level": 0,
}
# Rejected before the append. All other errors leave open whether the record is written: NOT_ENOUGH_REPLICAS too, which
# may be the response to librdkafka's second attempt (see `produce`; `direct` makes none).
SURELY_NOT_WRITTEN = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._PURGE_QUEUE,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """The topic of a workload, which no other one uses."""

    access: Access
    recorder: Recorder
    topic: str
    partitions: int
    rate: float  # records per second
    seed: int

    @property
    def places(self) -> list[str]:
        return [f"{self.topic}/{index}" for index in range(self.partitions)]


class Gave(Exception):
    """A client did not finish within PATIENCE_S."""


class Workload:
    """Runs `work` in a thread. `stop` ends the work, `finish` waits until all that was begun has an outcome."""

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self.setting = setting
        self.tell = setting.recorder.tell
        self.dice = random.Random(f"{setting.seed} {name}")
        self.ending = threading.Event()
        self.acked = 0  # how much was done: records acknowledged, read, committed
        self.broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.ending.set()

    def finish(self) -> None:
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            raise Gave(f"{self.name} did not finish")
        if self.broken is not None:
            raise self.broken

    def abandon(self) -> None:
        """The run has failed: do not wait for any outcome."""
        self.stop()

    def work(self) -> None:
        """Work until `self.ending` is set, then finish what is in flight."""

    def note(self, text: str) -> None:
        self.tell(Noted, self.name, text)

    def erred(self, text: str, *, hard: bool) -> None:
        self.tell(Erred, self.name, text, hard)

    def pause(self) -> None:
        """Sleep between two records, to keep the average rate."""
        self.ending.wait(self.dice.random() * 2 / self.setting.rate)

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as failure:  # noqa: BLE001 - raised again in the thread that waits for this one
            self.broken = failure
            self.note(f"broken: {failure!r}")


class Numbered(Workload):
    """A producer of the records `name.0`, `name.1`, … to random partitions."""

    once = True

    def __init__(self, name: str, setting: Setting) -> None:
        super().__init__(name, setting)
        self.failed = 0
        self.ends = [0] * setting.partitions  # the offset after the last acknowledged record
        self._number = 0

    def next_record(self, transaction: str = "", partition: int | None = None) -> tuple[int, str]:
        """A partition and a value, which is recorded as sent."""
        if partition is None:
            partition = self.dice.randrange(self.setting.partitions)
        value = f"{self.name}.{self._number}"
        self._number += 1
        self.tell(Send, self.name, f"{self.setting.topic}/{partition}", value, transaction, self.once)
        return partition, value

    def delivered(self, partition: int, value: str, offset: int) -> None:
        self.acked += 1
        self.ends[partition] = max(self.ends[partition], offset + 1)
        self.tell(Acked, self.name, f"{self.setting.topic}/{partition}", value, max(offset, -1))

    def not_delivered(
        self, partition: int, value: str, error: str, *, surely: bool = False, hard: bool = False
    ) -> None:
        self.failed += 1
        self.tell(Failed, self.name, f"{self.setting.topic}/{partition}", value, error, surely, hard)


class Reader(Workload):
    """Reads all partitions of a topic from the beginning, and goes on."""

    def __init__(self, name: str, setting: Setting) -> None:
        super().__init__(name, setting)
        self.positions = [0] * setting.partitions

    def stands_at(self, offset: int) -> None:
        """Record the position in all partitions; -1 if unknown."""
        for place in self.setting.places:
            self.tell(Placed, self.name, place, offset)

    def took(self, partition: int, reads: list[Read]) -> None:
        self.acked += len(reads)
        self.positions[partition] = reads[-1][0] + 1
        self.tell(Polled, self.name, f"{self.setting.topic}/{partition}", tuple(reads))

    def has_read(self, ends: list[int]) -> bool:
        return self.broken is not None or all(map(int.__ge__, self.positions, ends))


def wait_until(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds; raise `Gave` if it does not hold in time."""
    until = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > until:
            raise Gave(f"{what}: not within {patience_s:.0f} s")
        time.sleep(0.05)
