"""TransactionCoordinator: the state machine of transactions/ on the runtime, and the work that its decisions need.

Work is the writing of markers and the allocation of producer ids. On a single node the markers are usually written
before EndTxn is answered, so a client rarely gets CONCURRENT_TRANSACTIONS.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from moldau.base.coordination import INTERNAL_CALLER, Caller, Decision, Timer, TimerFired, TimerKey
from moldau.base.errors import Refusal, WireError
from moldau.base.ids import Epoch, TopicPartition
from moldau.base.later import Later, NowOrLater, chain
from moldau.broker.call import Call
from moldau.broker.coordinators.add_partitions_sender import AddOrVerify, PartitionErrors
from moldau.broker.coordinators.marker_writer import Marker, MarkerWriter
from moldau.broker.coordinators.partitioning import partition_of
from moldau.broker.coordinators.runtime import CoordinatorRuntime
from moldau.broker.coordinators.shard import PendingReply, Shard
from moldau.broker.internal_topics import TRANSACTIONS
from moldau.broker.producer_ids import ProducerIds
from moldau.broker.settings import BrokerConfig
from moldau.metadata.features import TRANSACTION_VERSION, level
from moldau.metadata.image import NO_BROKER, ClusterImage
from moldau.net.tasks import cancel
from moldau.replication.replicas import Replicas
from moldau.transactions.commands import (
    AddPartitions,
    AllocateProducerId,
    MarkersWritten,
    ProducerIdAllocated,
    WriteMarkers,
    markers_key,
)
from moldau.transactions.environment import TransactionConfig, TransactionEnvironment
from moldau.transactions.shard import MAX_TOMBSTONES, TransactionCommand, TransactionShard
from moldau.transactions.state import TRANSACTION_V2
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger("moldau.broker")

CONCURRENT = WireError.CONCURRENT_TRANSACTIONS  # the markers of the last transaction are not written yet
RETRY_MS = 100  # until failed markers, or the allocation of a producer id, are retried
_DONE = (WireError.NONE, WireError.UNKNOWN_TOPIC_OR_PARTITION)  # written, or the partition was deleted
_TRANSIENT = (  # expected when leaders change: logged at INFO
    WireError.NOT_LEADER_OR_FOLLOWER,
    WireError.LEADER_NOT_AVAILABLE,
    WireError.NETWORK_EXCEPTION,
    WireError.REQUEST_TIMED_OUT,
)


R = TypeVar("R")


class RemoteCoordinators(Protocol):
    """Asks the transaction coordinators of other brokers."""

    def add_or_verify(self, broker_id: int, request: AddOrVerify) -> Later[PartitionErrors]: ...


class TransactionCoordinator:
    def __init__(
        self,
        replicas: Replicas,
        markers: MarkerWriter,
        producer_ids: ProducerIds,
        config: Callable[[], BrokerConfig],
        image: Callable[[], ClusterImage],
        now: Callable[[], int],
        remote: RemoteCoordinators,
    ) -> None:
        self.markers = markers
        self._remote = remote
        self._producer_ids = producer_ids
        self._config = config
        self._image = image
        self._now = now
        self._ending: dict[str, _EndingTransaction] = {}  # by transactional id
        self._settings: tuple[object, object, TransactionConfig] = (None, None, TransactionConfig())
        self._tasks: set[asyncio.Task[None]] = set()
        self._runtime = CoordinatorRuntime(TRANSACTIONS, replicas, TransactionShard, self._decide, self._loaded, now)
        self._runtime.on_work = self._do_work
        self._runtime.on_closed = self._on_shard_closed

    # ── for handlers ──

    def ask(
        self,
        transactional_id: str,
        request: InitProducerIdRequest | EndTxnRequest,
        call: Call,
        refused: Callable[[WireError], R],
    ) -> NowOrLater[R]:
        """The reply to a request about a transactional id, now or later."""
        return self._runtime.ask(transactional_id, request, call.caller(), refused)

    def init_producer_id(
        self,
        transactional_id: str,
        request: InitProducerIdRequest,
        call: Call,
        refused: Callable[[WireError], InitProducerIdResponse],
    ) -> NowOrLater[InitProducerIdResponse]:
        """The reply to InitProducerId. It may first abort a transaction that another instance left open."""
        return self._retry_when_ended(
            transactional_id,
            lambda: self.ask(transactional_id, request, call, refused),
            lambda response: response.error_code == CONCURRENT,
        )

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: Epoch,
        partitions: Iterable[TopicPartition],
        client_version: int,
        *,
        retry: bool = True,
    ) -> NowOrLater[WireError]:
        """`retry`: wait for the markers of the producer's last transaction, then try once more."""
        command = AddPartitions(transactional_id, producer_id, producer_epoch, frozenset(partitions), client_version)

        def ask() -> NowOrLater[WireError]:
            return self._runtime.ask(transactional_id, command, INTERNAL_CALLER, lambda error: error)

        return self._retry_when_ended(transactional_id, ask, lambda error: error is CONCURRENT) if retry else ask()

    def _retry_when_ended(
        self, transactional_id: str, ask: Callable[[], NowOrLater[R]], busy: Callable[[R], bool]
    ) -> NowOrLater[R]:
        """The reply. If the markers of the last transaction are missing, ask once more when they are written."""

        def judged(reply: R) -> NowOrLater[R]:
            if not busy(reply):
                return reply
            ending = self._ending.get(transactional_id)
            if ending is None:  # it has ended meanwhile
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
        self, transactional_id: str, producer_id: int, producer_epoch: Epoch, partitions: Sequence[TopicPartition]
    ) -> NowOrLater[PartitionErrors]:
        """Whether each partition is in the producer's open transaction, now or later."""

        def query(shard: TransactionShard) -> PartitionErrors:
            return shard.verify(transactional_id, producer_id, producer_epoch, partitions)

        return self._runtime.read(transactional_id, query, lambda error: dict.fromkeys(partitions, error))

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: Epoch,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> NowOrLater[PartitionErrors]:
        """Whether the open transaction has these partitions of this broker (KIP-890); with `adds`, add them.

        The coordinator of the transactional id may be another broker, which is asked then.
        """
        leader = self._leader(transactional_id)
        if leader == NO_BROKER:
            return dict.fromkeys(partitions, WireError.COORDINATOR_NOT_AVAILABLE)
        if leader != self._config().node_id:
            return self._ask_remote(AddOrVerify(transactional_id, producer_id, producer_epoch, partitions, adds))
        if not adds:
            return self.verify(transactional_id, producer_id, producer_epoch, partitions)
        error = self.add(transactional_id, producer_id, producer_epoch, partitions, TRANSACTION_V2)
        return chain(error, lambda found: dict.fromkeys(partitions, found))

    def _ask_remote(self, request: AddOrVerify, spent_ms: int = 0) -> Later[PartitionErrors]:
        """The result of another broker's coordinator; retried while the last transaction's markers are missing."""
        config = self._config()
        answer: Later[PartitionErrors] = Later()
        pause_ms = config.add_partitions_to_txn_retry_backoff_ms

        def judged(errors: PartitionErrors) -> None:
            spent = spent_ms + pause_ms
            busy = request.adds and CONCURRENT in errors.values()
            if not busy or spent > config.add_partitions_to_txn_retry_backoff_max_ms:
                answer.resolve(errors)
            else:
                asyncio.get_running_loop().call_later(pause_ms / 1000, self._retry_remote, request, spent, answer)

        self._remote.add_or_verify(self._leader(request.transactional_id), request).then(judged)
        return answer

    def _retry_remote(self, request: AddOrVerify, spent_ms: int, answer: Later[PartitionErrors]) -> None:
        if self._leader(request.transactional_id) in (NO_BROKER, self._config().node_id):  # it has moved meanwhile
            answer.resolve(dict.fromkeys(request.partitions, WireError.NOT_COORDINATOR))
        else:
            self._ask_remote(request, spent_ms).then(answer.resolve)

    def _leader(self, transactional_id: str) -> int:
        """The broker that coordinates a transactional id."""
        topic = self._image().topics.get(TRANSACTIONS)
        if topic is None:
            return NO_BROKER
        return topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader

    def read(
        self, transactional_id: str, query: Callable[[TransactionShard], R], refused: Callable[[WireError], R]
    ) -> NowOrLater[R]:
        """A view of the shard of a transactional id, now or later."""
        return self._runtime.read(transactional_id, query, refused)

    def read_all(
        self, query: Callable[[TransactionShard], R], refused: Callable[[WireError], R]
    ) -> list[NowOrLater[R]]:
        """A view of each shard of this broker, now or later; refused for each that is still loading."""
        return self._runtime.read_all(query, refused)

    # ── for the node ──

    def start(self) -> None:
        self._runtime.start()

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self._runtime.follow(old, new)

    def expire(self) -> None:
        """Delete expired transactional ids (transactional.id.expiration.ms)."""
        for shard in self._runtime.loaded_shards():
            while True:
                decision = self._runtime.run(shard, lambda machine: machine.expire(self._env(self._now())))
                if decision is None or len(decision.records) < MAX_TOMBSTONES:
                    break

    async def stop(self) -> None:
        await self._runtime.stop()
        await cancel(*self._tasks)

    # ── inputs of the state machine ──

    def _decide(self, machine: TransactionShard, command: TransactionCommand, caller: Caller, now: int) -> Decision:
        return machine.decide(command, caller, self._env(now))

    def _loaded(self, machine: TransactionShard, now: int) -> Decision:
        return machine.loaded(self._env(now))

    def _env(self, now: int) -> TransactionEnvironment:
        config, image = self._config(), self._image()
        if config is not self._settings[0] or image is not self._settings[1]:
            self._settings = config, image, transaction_config(config, image)
        return TransactionEnvironment(now, self._settings[2])

    # ── work of its decisions ──

    def _do_work(self, shard: Shard[TransactionShard], work: object) -> None:
        if isinstance(work, AllocateProducerId):
            task = asyncio.get_running_loop().create_task(self._allocate_producer_id(shard, work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif isinstance(work, WriteMarkers):
            self._write_markers(shard, work)

    async def _allocate_producer_id(self, shard: Shard[TransactionShard], wanted: AllocateProducerId) -> None:
        producer_id = await self._producer_ids.next()
        if not self._runtime.is_open(shard):
            return
        token = wanted.caller.token
        if isinstance(producer_id, Refusal):
            decided = False
            if isinstance(token, PendingReply):
                self._runtime.execute(shard, Decision(replies=[(token, token.refused(producer_id.error))]))
        else:
            decided = self._decide_and_execute(shard, ProducerIdAllocated(wanted.command, producer_id), wanted.caller)
        if not decided and isinstance(wanted.command, TimerFired):
            self._retry_later(shard, wanted.command.key)

    def _write_markers(self, shard: Shard[TransactionShard], work: WriteMarkers) -> None:
        """Write the missing markers. When all are written, complete the transaction."""
        ending = self._ending.get(work.transactional_id)
        if ending is None or ending.shard is not shard or ending.work != work:
            ending = self._ending[work.transactional_id] = _EndingTransaction(shard, work)
        elif ending.waiting:
            return
        marker = Marker(work.producer_id, work.producer_epoch, work.commit, shard.epoch, work.transaction_version)
        ending.waiting = len(ending.unmarked) + 1  # one more, until all are sent
        for partition in sorted(ending.unmarked):
            self.markers.send(partition, marker, partial(self._on_marker, ending, partition))
        self._marker_done(ending)

    def _on_marker(self, ending: "_EndingTransaction", partition: TopicPartition, error: WireError) -> None:
        if error in _DONE or not error.retriable:
            ending.unmarked.discard(partition)
        if error not in _DONE and not ending.failed:
            ending.failed = True
            level = logging.INFO if error in _TRANSIENT else logging.ERROR
            name = ending.work.transactional_id
            what = "retrying" if error.retriable else "giving up on this partition"
            logger.log(level, "Marker of transactional id %s for %s failed: %s; %s", name, partition, error.name, what)
        self._marker_done(ending)

    def _marker_done(self, ending: "_EndingTransaction") -> None:
        ending.waiting -= 1
        work = ending.work
        if ending.waiting or self._ending.get(work.transactional_id) is not ending:
            return
        if not self._runtime.is_open(ending.shard):
            del self._ending[work.transactional_id]
            return
        done = MarkersWritten(work.transactional_id, work.producer_id, work.producer_epoch)
        if not ending.unmarked and self._decide_and_execute(ending.shard, done, INTERNAL_CALLER):
            del self._ending[work.transactional_id]
            ending.resolve_watchers()
        else:
            self._retry_later(ending.shard, markers_key(work.transactional_id))

    def _on_shard_closed(self, shard: Shard[TransactionShard]) -> None:
        """The next leader of the shard writes the markers."""
        for transactional_id in [each for each, ending in self._ending.items() if ending.shard is shard]:
            self._ending.pop(transactional_id).resolve_watchers()

    def _decide_and_execute(self, shard: Shard[TransactionShard], command: TransactionCommand, caller: Caller) -> bool:
        decision = self._runtime.run(shard, lambda machine: self._decide(machine, command, caller, self._now()))
        return decision is not None

    def _retry_later(self, shard: Shard[TransactionShard], timer: TimerKey) -> None:
        self._runtime.execute(shard, Decision(timers=[Timer(timer, self._now() + RETRY_MS)]))


def transaction_config(config: BrokerConfig, image: ClusterImage) -> TransactionConfig:
    return TransactionConfig(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        transaction_version=level(image, TRANSACTION_VERSION),
    )


class _EndingTransaction:
    """A transaction in the Prepare state: its markers are being written."""

    __slots__ = ("failed", "shard", "unmarked", "waiting", "watchers", "work")

    def __init__(self, shard: Shard[TransactionShard], work: WriteMarkers) -> None:
        self.shard = shard
        self.work = work
        self.unmarked = set(work.partitions)
        self.waiting = 0  # markers in progress
        self.failed = False  # and logged
        self.watchers: list[Later[None]] = []  # resolved when all markers are written

    def resolve_watchers(self) -> None:
        watchers, self.watchers = self.watchers, []
        for each in watchers:
            each.resolve(None)
