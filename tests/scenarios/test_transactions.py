"""Scripts of transactions: every transition of the machine under both protocols, and every error it answers with."""

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from moldau.base.coordination import Decision, Record
from moldau.transactions.commands import (
    AddPartitions,
    AllocateProducerId,
    MarkersWritten,
    ProducerIdAllocated,
    WriteMarkers,
)
from moldau.transactions.environment import TransactionConfig, TransactionEnvironment
from moldau.transactions.shard import TransactionShard
from moldau.transactions.state import MAX_EPOCH, TopicPartition, record_of, transaction_of
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from scenarios.script import Command, Verb, run_script, scripts
from scenarios.stage import INTERNAL_CALLER, Stage

FIRST_PRODUCER_ID = 100


class TransactionStage(Stage):
    """Producer ids are given at once; markers wait until a script has them written."""

    def __init__(self) -> None:
        self.config: dict[str, int] = {}
        super().__init__(
            TransactionShard, lambda now: TransactionEnvironment(now, TransactionConfig(**self.config)), _states
        )
        self.markers: list[WriteMarkers] = []
        self._producer_ids = count(FIRST_PRODUCER_ID)

    def execute(self, decision: Decision) -> Iterator[str]:
        failed = self.append_fails and bool(decision.records)
        yield from super().execute(decision)
        for work in () if failed else decision.work:
            if isinstance(work, AllocateProducerId):
                given = ProducerIdAllocated(work.command, next(self._producer_ids))
                yield from self.execute(self.machine.decide(given, work.caller, self._env(self.now)))
            else:
                self.markers.append(work)

    def show_record(self, record: Record, producer_id: int) -> str:
        name = record.key.transactional_id
        if record.value is None:
            return f"{name}: gone"
        found = transaction_of(record)
        started = "" if found.start_time < 0 else f" since {found.start_time}"
        following = "" if found.next_producer_id < 0 else f", then {found.next_producer_id}"
        return f"{name}: {found.state.title} {_places(found.partitions)}{started}{following}"

    def show_work(self, work: Any) -> str:
        if isinstance(work, AllocateProducerId):
            return "a producer id"
        what, version = "commit" if work.commit else "abort", work.transaction_version
        return f"{what} markers of {work.producer_id}/{work.producer_epoch} v{version}: {_places(work.partitions)}"


def _places(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(f"{topic}-{index}" for topic, index in sorted(partitions)) or "nowhere"


def _states(machine: Any) -> dict[str, str]:
    assert isinstance(machine, TransactionShard)
    return {
        name: f"{found.state.title} {found.producer_id}/{found.producer_epoch}"
        for name, found in machine.transactions.items()
    }


class Play:
    """The verbs of these scripts. The first word is the client; a producer is `id/epoch`; all are about the id `tx`."""

    def __init__(self) -> None:
        self.stage = TransactionStage()

    def verbs(self) -> dict[str, Verb]:
        own = (self.init, self.add, self.verify, self.end, self.markers, self.lose, self.expire, self.age, self.set)
        return self.stage.verbs() | {verb.__name__: verb for verb in own}

    def set(self, command: Command) -> list[str]:
        """`set transaction_version=1`: the broker's settings."""
        self.stage.config |= {name: int(value) for name, value in command.options.items()}
        return []

    def init(self, command: Command) -> list[str]:
        """`init a 100/0 timeout=1000 version=5`: InitProducerId, perhaps of a producer that has an id."""
        who, *brought = command.words
        producer_id, epoch = _producer(brought[0]) if brought else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=command.options.get("id", "tx"),
            transaction_timeout_ms=int(command.options.get("timeout", 60_000)),
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return self.stage.ask(request, who, int(command.options.get("version", 5)))

    def add(self, command: Command) -> list[str]:
        """`add a 100/0 orders-0 orders-1 client=2`: partitions join; `client` is the client's transaction version."""
        who, producer, *places = command.words
        asked = AddPartitions(
            command.options.get("id", "tx"),
            *_producer(producer),
            frozenset(_partition(place) for place in places),
            int(command.options.get("client", 2)),
        )
        return self.stage.ask(asked, who)

    def verify(self, command: Command) -> list[str]:
        """`verify a 100/0 orders-0`: may records go there?"""
        machine = self.stage.machine
        assert isinstance(machine, TransactionShard)
        who, producer, *places = command.words
        found = machine.verify(command.options.get("id", "tx"), *_producer(producer), map(_partition, places))
        return [f"{who} <- {topic}-{index} {error.name}" for (topic, index), error in found.items()]

    def end(self, command: Command) -> list[str]:
        """`end a 100/0 commit version=5`: EndTxn; below version 5 by the older protocol."""
        who, producer, how = command.words
        producer_id, epoch = _producer(producer)
        request = EndTxnRequest(
            transactional_id=command.options.get("id", "tx"),
            producer_id=producer_id,
            producer_epoch=epoch,
            committed={"commit": True, "abort": False}[how],
        )
        return self.stage.ask(request, who, int(command.options.get("version", 5)))

    def markers(self, command: Command) -> list[str]:
        """`markers`: all that wait are written."""
        told: list[str] = []
        while self.stage.markers:
            done = self.stage.markers.pop(0)
            written = MarkersWritten(done.transactional_id, done.producer_id, done.producer_epoch)
            decision = self.stage.machine.decide(written, INTERNAL_CALLER, self.stage._env(self.stage.now))
            told += self.stage.execute(decision)
        return told

    def lose(self, command: Command) -> list[str]:
        """`lose`: the markers that wait are never written."""
        self.stage.markers.clear()
        return []

    def expire(self, command: Command) -> list[str]:
        """`expire`: the hourly expiration of unused ids."""
        machine = self.stage.machine
        assert isinstance(machine, TransactionShard)
        return list(self.stage.execute(machine.expire(self.stage._env(self.stage.now))))

    def age(self, command: Command) -> list[str]:
        """`age`: the producer has nearly used up its epochs."""
        machine = self.stage.machine
        assert isinstance(machine, TransactionShard)
        old = machine.transactions["tx"]._replace(producer_epoch=MAX_EPOCH - 2)
        return list(self.stage.execute(Decision(records=[record_of(old)])))


def _producer(text: str) -> tuple[int, int]:
    producer_id, _, epoch = text.partition("/")
    return int(producer_id), int(epoch)


def _partition(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


@pytest.mark.parametrize("path", scripts("transactions"), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    run_script(path, Play().verbs())
