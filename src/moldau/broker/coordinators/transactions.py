"""The transaction coordinator: the machine of transactions/ on the runtime, and the work that it leaves to others.

On a single node the markers of a transaction are usually written before EndTxn is answered, and a client never hears
that its last transaction is still being ended. Where a disk or other brokers make them wait it does, as in Kafka.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from moldau.base.coordination import Caller, Decision, Fired, Timer, TimerKey
from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later, NowOrLater, chain
from moldau.broker.call import Call
from moldau.broker.coordinators.markers import Marker, Markers
from moldau.broker.coordinators.placing import partition_of
from moldau.broker.coordinators.runtime import NOBODY, Runtime
from moldau.broker.coordinators.shard import Asked, Shard
from moldau.broker.internal_topics import TRANSACTIONS
from moldau.broker.producer_ids import ProducerIds
from moldau.broker.settings import BrokerConfig
from moldau.metadata.features import TRANSACTION_VERSION, level
from moldau.metadata.image import NO_BROKER, ClusterImage
from moldau.replication.replicas import Replicas
from moldau.transactions.commands import (
    AddPartitions,
    MarkersWritten,
    ProducerIdGiven,
    ProducerIdWanted,
    WriteMarkers,
    markers_key,
)
from moldau.transactions.env import Env, TransactionConfig
from moldau.transactions.shard import MOST_TOMBSTONES, TransactionShard
from moldau.transactions.state import BUMPING, TopicPartition
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger("moldau.broker")

CONCURRENT = WireError.CONCURRENT_TRANSACTIONS  # the last transaction is still being ended
RETRY_MS = 100  # before markers that could not be written, or a producer id, are tried for again
_GONE = (WireError.NONE, WireError.UNKNOWN_TOPIC_OR_PARTITION)  # written, or nobody is left to read it
_PASSING = (  # as happens when leaders change
    WireError.NOT_LEADER_OR_FOLLOWER,
    WireError.LEADER_NOT_AVAILABLE,
    WireError.NETWORK_EXCEPTION,
    WireError.REQUEST_TIMED_OUT,
)


R = TypeVar("R")
PartitionErrors = Mapping[TopicPartition, WireError]

# Transactional id, producer id and epoch, partitions, and whether they are to be added.
Question = tuple[str, int, int, Sequence[TopicPartition], bool]


class AdmissionPost(Protocol):
    """Asks the coordinators on other brokers about partitions of this one."""

    def ask_admission(
        self,
        broker_id: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Later[PartitionErrors]: ...


class Transactions:
    def __init__(
        self,
        replicas: Replicas,
        markers: Markers,
        producer_ids: ProducerIds,
        config: Callable[[], BrokerConfig],
        image: Callable[[], ClusterImage],
        now: Callable[[], int],
        post: AdmissionPost,
    ) -> None:
        self.markers = markers
        self._post = post
        self._producer_ids = producer_ids
        self._config = config
        self._image = image
        self._now = now
        self._endings: dict[str, _Ending] = {}  # by transactional id
        self._settings: tuple[object, object, TransactionConfig] = (None, None, TransactionConfig())
        self._tasks: set[asyncio.Task[None]] = set()
        self._runtime = Runtime(TRANSACTIONS, replicas, TransactionShard, self._decide, self._loaded, now)
        self._runtime.on_work = self._work
        self._runtime.on_closed = self._forget_endings

    # ── for handlers ──

    def ask(self, transactional_id: str, request: Any, call: Call, refused: Callable[[WireError], R]) -> NowOrLater[R]:
        """The reply to a request about a transactional id, now or later."""
        return self._runtime.ask(transactional_id, request, call.caller(), refused)

    def init_producer_id(
        self,
        transactional_id: str,
        request: InitProducerIdRequest,
        call: Call,
        refused: Callable[[WireError], InitProducerIdResponse],
    ) -> NowOrLater[InitProducerIdResponse]:
        """The reply to a producer that begins. It may first abort the transaction that another instance left open."""
        return self._patiently(
            transactional_id,
            lambda: self.ask(transactional_id, request, call, refused),
            lambda response: response.error_code == CONCURRENT,
        )

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int,
        *,
        patient: bool = True,
    ) -> NowOrLater[WireError]:
        """`patient`: if the producer's last transaction is still being ended, that is waited for."""
        command = AddPartitions(transactional_id, producer_id, producer_epoch, frozenset(partitions), client_version)

        def ask() -> NowOrLater[WireError]:
            return self._runtime.ask(transactional_id, command, NOBODY, lambda error: error)

        return self._patiently(transactional_id, ask, lambda error: error is CONCURRENT) if patient else ask()

    def _patiently(
        self, transactional_id: str, ask: Callable[[], NowOrLater[R]], busy: Callable[[R], bool]
    ) -> NowOrLater[R]:
        """The reply. If the last transaction is still being ended, ask once more when it has."""

        def judged(reply: R) -> NowOrLater[R]:
            if not busy(reply):
                return reply
            ending = self._endings.get(transactional_id)
            if ending is None:  # by now it is done
                return ask()
            ended: Later[None] = Later()
            ending.watchers.append(ended)
            delay = self._config().add_partitions_to_txn_retry_backoff_max_ms / 1000
            timer = asyncio.get_running_loop().call_later(delay, ended.resolve, None)

            def again(_: None) -> NowOrLater[R]:
                timer.cancel()
                return ask()

            return chain(ended, again)

        return chain(ask(), judged)

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> NowOrLater[PartitionErrors]:
        """Whether each partition is in the producer's open transaction, now or later."""

        def look(shard: TransactionShard) -> PartitionErrors:
            return shard.verify(transactional_id, producer_id, producer_epoch, partitions)

        return self._runtime.read(transactional_id, look, lambda error: dict.fromkeys(partitions, error))

    def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> NowOrLater[PartitionErrors]:
        """Whether records of a transaction may go to these partitions (KIP-890); with `adds` they join it by that.

        Asked for partitions of this broker. The transaction may be another broker's: then that one is asked.
        """
        leader = self._leader(transactional_id)
        if leader == NO_BROKER:
            return dict.fromkeys(partitions, WireError.COORDINATOR_NOT_AVAILABLE)
        if leader != self._config().node_id:
            return self._ask_elsewhere((transactional_id, producer_id, producer_epoch, partitions, adds))
        if not adds:
            return self.verify(transactional_id, producer_id, producer_epoch, partitions)
        error = self.add(transactional_id, producer_id, producer_epoch, partitions, BUMPING)
        return chain(error, lambda found: dict.fromkeys(partitions, found))

    def _ask_elsewhere(self, question: Question, spent_ms: int = 0) -> Later[PartitionErrors]:
        """What the coordinator says, which is another broker. Where it is busy ending the last transaction, again."""
        config = self._config()
        answer: Later[PartitionErrors] = Later()
        pause_ms = config.add_partitions_to_txn_retry_backoff_ms

        def judged(errors: PartitionErrors) -> None:
            spent = spent_ms + pause_ms
            adds, busy = question[-1], CONCURRENT in errors.values()
            if not (adds and busy) or spent > config.add_partitions_to_txn_retry_backoff_max_ms:
                answer.resolve(errors)
            else:
                asyncio.get_running_loop().call_later(pause_ms / 1000, self._ask_again, question, spent, answer)

        self._post.ask_admission(self._leader(question[0]), *question).then(judged)
        return answer

    def _ask_again(self, question: Question, spent_ms: int, answer: Later[PartitionErrors]) -> None:
        if self._leader(question[0]) in (NO_BROKER, self._config().node_id):  # it has moved meanwhile
            answer.resolve(dict.fromkeys(question[3], WireError.NOT_COORDINATOR))
        else:
            self._ask_elsewhere(question, spent_ms).then(answer.resolve)

    def _leader(self, transactional_id: str) -> int:
        """The broker that coordinates a transactional id."""
        topic = self._image().topics.get(TRANSACTIONS)
        if topic is None:
            return NO_BROKER
        return topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader

    def read(
        self, transactional_id: str, look: Callable[[TransactionShard], R], refused: Callable[[WireError], R]
    ) -> NowOrLater[R]:
        """A view of the shard of a transactional id, now or later."""
        return self._runtime.read(transactional_id, look, refused)

    def read_all(self, look: Callable[[TransactionShard], R], refused: Callable[[WireError], R]) -> list[NowOrLater[R]]:
        """A view of each shard of this broker, now or later; refused for each that is still loading."""
        return self._runtime.read_all(look, refused)

    # ── for the node ──

    def start(self) -> None:
        self._runtime.start()

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self._runtime.follow(old, new)

    def expire(self) -> None:
        """Forget transactional ids that nobody used for long."""
        for shard in self._runtime.opened():
            while True:
                decision = shard.machine.expire(self._env(self._now()))
                if not self._runtime.carry_out(shard, decision) or len(decision.records) < MOST_TOMBSTONES:
                    break

    async def stop(self) -> None:
        await self._runtime.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ── what the machine is told ──

    def _decide(self, machine: TransactionShard, command: Any, caller: Caller, now: int) -> Decision:
        return machine.decide(command, caller, self._env(now))

    def _loaded(self, machine: TransactionShard, now: int) -> Decision:
        return machine.loaded(self._env(now))

    def _env(self, now: int) -> Env:
        config, image = self._config(), self._image()
        if config is not self._settings[0] or image is not self._settings[1]:
            self._settings = config, image, transaction_config(config, image)
        return Env(now, self._settings[2])

    # ── what it leaves to others ──

    def _work(self, shard: Shard[TransactionShard], work: Any) -> None:
        if isinstance(work, ProducerIdWanted):
            task = asyncio.get_running_loop().create_task(self._give_producer_id(shard, work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._write_markers(shard, work)

    async def _give_producer_id(self, shard: Shard[TransactionShard], wanted: ProducerIdWanted) -> None:
        producer_id = await self._producer_ids.next()
        if not self._runtime.has(shard):
            return
        token = wanted.caller.token
        if isinstance(producer_id, Refusal):
            told = False
            if isinstance(token, Asked):
                self._runtime.carry_out(shard, Decision(replies=[(token, token.refused(producer_id.error))]))
        else:
            told = self._tell(shard, ProducerIdGiven(wanted.command, producer_id), wanted.caller)
        if not told and isinstance(wanted.command, Fired):
            self._again(shard, wanted.command.key)

    def _write_markers(self, shard: Shard[TransactionShard], work: WriteMarkers) -> None:
        """Write the markers that are missing. The machine hears of it when all are there."""
        ending = self._endings.get(work.transactional_id)
        if ending is None or ending.shard is not shard or ending.work != work:
            ending = self._endings[work.transactional_id] = _Ending(shard, work)
        elif ending.waiting:
            return
        marker = Marker(work.producer_id, work.producer_epoch, work.commit, shard.epoch, work.transaction_version)
        ending.waiting = len(ending.unmarked) + 1  # one more, so that it does not end before all are begun
        for partition in sorted(ending.unmarked):
            self.markers.send(*partition, marker, partial(self._marked, ending, partition))
        self._arrived(ending)

    def _marked(self, ending: "_Ending", partition: TopicPartition, error: WireError) -> None:
        if error in _GONE or not error.retriable:
            ending.unmarked.discard(partition)
        if error not in _GONE and not ending.failed:
            ending.failed = True
            level = logging.INFO if error in _PASSING else logging.ERROR
            name = ending.work.transactional_id
            log.log(level, "the marker of %s for %s-%d failed: %s", name, *partition, error.name)
        self._arrived(ending)

    def _arrived(self, ending: "_Ending") -> None:
        ending.waiting -= 1
        work = ending.work
        if ending.waiting or self._endings.get(work.transactional_id) is not ending:
            return
        if not self._runtime.has(ending.shard):
            del self._endings[work.transactional_id]
            return
        done = MarkersWritten(work.transactional_id, work.producer_id, work.producer_epoch)
        if not ending.unmarked and self._tell(ending.shard, done, NOBODY):
            del self._endings[work.transactional_id]
            ending.tell_watchers()
        else:
            self._again(ending.shard, markers_key(work.transactional_id))

    def _forget_endings(self, shard: Shard[TransactionShard]) -> None:
        """The next leader of the shard begins them anew."""
        for transactional_id in [each for each, ending in self._endings.items() if ending.shard is shard]:
            self._endings.pop(transactional_id).tell_watchers()

    def _tell(self, shard: Shard[TransactionShard], command: Any, caller: Caller) -> bool:
        return self._runtime.carry_out(shard, self._decide(shard.machine, command, caller, self._now()))

    def _again(self, shard: Shard[TransactionShard], timer: TimerKey) -> None:
        self._runtime.carry_out(shard, Decision(timers=[Timer(timer, self._now() + RETRY_MS)]))


def transaction_config(config: BrokerConfig, image: ClusterImage) -> TransactionConfig:
    return TransactionConfig(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        transaction_version=level(image, TRANSACTION_VERSION),
    )


class _Ending:
    """A transaction whose markers are being written."""

    __slots__ = ("failed", "shard", "unmarked", "waiting", "watchers", "work")

    def __init__(self, shard: Shard[TransactionShard], work: WriteMarkers) -> None:
        self.shard = shard
        self.work = work
        self.unmarked = set(work.partitions)
        self.waiting = 0  # for disks, and for other brokers
        self.failed = False  # and the log says so
        self.watchers: list[Later[None]] = []  # whoever wants to begin the next one

    def tell_watchers(self) -> None:
        watchers, self.watchers = self.watchers, []
        for each in watchers:
            each.resolve(None)
