"""SchemaInspector: what happens to batches of topics that declare schemas. Other topics it leaves to threads.

A batch is checked by a worker process against rules that were made here. Where a record fails against a subject, the
schemas are read up to their present end first, so that nobody is refused for a schema that is new.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.broker.schemas.dead_letter_topics import DeadLetterTopics
from moldau.broker.schemas.follower import SchemasFollower
from moldau.broker.schemas.nonconforming import Nonconforming
from moldau.broker.schemas.rules import LETTER_MARGIN, UnknownSubject, needs_subjects, rules_for
from moldau.log.settings import LogConfig
from moldau.replication.inspection_queue import Inspected
from moldau.replication.inspector import IN_THREAD, Arrival
from moldau.replication.record_checks import Checked
from moldau.replication.record_rules import PackedRules
from moldau.replication.record_workers import RecordWorkers, WorkerLost
from moldau.wire.batch import read_header

logger: Final = logging.getLogger("moldau.broker")

CATCH_UP_S: Final = 5.0  # how long a batch waits for schemas
LOSSES_AT_MOST: Final = 2  # workers that one batch may cost
SUSPECTS_AT_MOST: Final = 1_000  # batches that cost a worker, remembered until they are sent again
HELD_AT_MOST: Final = 256 * 1024 * 1024  # bytes of batches that wait for a worker, of all partitions


class _MadeRules(NamedTuple):
    config: LogConfig
    generation: int  # of the subjects
    rules: PackedRules


class SchemaInspector:
    def __init__(
        self,
        workers: RecordWorkers,
        follower: SchemasFollower,
        dead_letters: DeadLetterTopics,
        exists: Callable[[str], bool],
    ) -> None:
        """`exists`: whether there is such a topic."""
        self._workers = workers
        self._follower = follower
        self._dead_letters = dead_letters
        self._exists = exists
        self._made: dict[str, _MadeRules] = {}  # by topic
        self._losses: OrderedDict[tuple[str, int], int] = OrderedDict()  # by partition and checksum of the batch
        self._held = 0
        self._loaded = False
        self._nonconforming = Nonconforming()

    async def inspect(self, arrival: Arrival) -> Inspected:
        if not arrival.config.checks_schemas:
            return await IN_THREAD.inspect(arrival)
        if not arrival.awaited():
            return arrival.batch  # it is answered without its records
        if self._held + len(arrival.batch) > HELD_AT_MOST:
            return Refusal(WireError.REQUEST_TIMED_OUT, "Too many batches wait for their records to be checked; retry.")
        self._held += len(arrival.batch)
        try:
            return await self._inspect(arrival)
        finally:
            self._held -= len(arrival.batch)

    async def stop(self) -> None:
        await self._workers.stop()
        await self._follower.stop()

    async def _inspect(self, arrival: Arrival) -> Inspected:
        partition = arrival.partition
        checked = await self._check(arrival)
        if isinstance(checked, Refusal):
            return checked
        self._nonconforming.count(partition.name, checked)
        if checked.refusal is not None:
            return checked.refusal
        if checked.letters:
            if not arrival.awaited():  # another leader, or the producer's next epoch
                return arrival.batch if checked.batch is None else checked.batch
            largest = arrival.config.max_message_bytes + LETTER_MARGIN
            index, config = partition.index, arrival.config
            refusal = await self._dead_letters.append(partition.topic, index, checked.letters, config, largest)
            if refusal is not None:
                return refusal
        return arrival.batch if checked.batch is None else checked.batch

    async def _check(self, arrival: Arrival) -> Checked | Refusal:
        """The verdict by the newest schemas: with those of before a record may fail, but none is refused for them."""
        follows = needs_subjects(arrival.config)
        if follows and not self._loaded:
            self._loaded = await self._follower.catch_up(CATCH_UP_S)
            if not self._loaded:
                return _unknown_yet(arrival)
        generation = self._follower.subjects.generation
        checked = await self._check_by_known(arrival)
        wrong = isinstance(checked, str) or (isinstance(checked, Checked) and _fails(checked))
        if not follows or not wrong:
            return _settled(checked)
        if not await self._follower.catch_up(CATCH_UP_S):
            return _unknown_yet(arrival)
        if self._follower.subjects.generation != generation:
            checked = await self._check_by_known(arrival)
        return _settled(checked)

    async def _check_by_known(self, arrival: Arrival) -> Checked | Refusal | str:
        """The verdict by the schemas that are known; a str: what the topic names and nobody knows."""
        partition = arrival.partition
        try:
            rules = self._rules(partition.topic, arrival.config)
        except UnknownSubject as unknown:
            return str(unknown)
        suspect = partition.name, read_header(arrival.batch).crc
        try:
            checked = await self._workers.check(rules, arrival.batch, partition.index)
        except WorkerLost as lost:
            return self._lost(suspect, lost)
        self._losses.pop(suspect, None)
        return checked

    def _rules(self, topic: str, config: LogConfig) -> PackedRules:
        subjects = self._follower.subjects
        made = self._made.get(topic)
        if made is None or made.config != config or made.generation != subjects.generation:
            for gone in [name for name in self._made if not self._exists(name)]:
                del self._made[gone]
            packed = PackedRules.of(rules_for(topic, config, subjects))
            made = self._made[topic] = _MadeRules(config, subjects.generation, packed)
        return made.rules

    def _lost(self, suspect: tuple[str, int], lost: WorkerLost) -> Refusal:
        """A worker was lost with a batch: the batch may be sent again, but not for ever."""
        partition, _ = suspect
        if self._workers.stopped:
            return Refusal(WireError.REQUEST_TIMED_OUT, f"The records could not be checked, as {lost}.")
        losses = self._losses.pop(suspect, 0) + 1
        logger.error("Checking a batch of %s failed, attempt %d: %s", partition, losses, lost)
        if losses >= LOSSES_AT_MOST:
            return Refusal(WireError.INVALID_RECORD, f"The records cannot be checked: {lost}, {losses} times.")
        self._losses[suspect] = losses
        if len(self._losses) > SUSPECTS_AT_MOST:
            self._losses.popitem(last=False)
        return Refusal(WireError.REQUEST_TIMED_OUT, f"The records could not be checked, as {lost}; retry.")


def _fails(checked: Checked) -> bool:
    return bool(checked.refusal or checked.dead or checked.warned)


def _settled(checked: Checked | Refusal | str) -> Checked | Refusal:
    return Refusal(WireError.INVALID_RECORD, checked) if isinstance(checked, str) else checked


def _unknown_yet(arrival: Arrival) -> Refusal:
    words = f"The schemas of {arrival.partition.topic} cannot be read from their topic just now; retry."
    return Refusal(WireError.REQUEST_TIMED_OUT, words)
