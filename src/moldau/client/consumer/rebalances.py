"""Rebalances: what happens when partitions are assigned, revoked or lost. All of it runs in the poll thread."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.commits import Commits, OffsetAndMetadata, named
from moldau.client.consumer.handover import Handover

if TYPE_CHECKING:
    from confluent_kafka import Consumer as KafkaConsumer
    from confluent_kafka import TopicPartition as KafkaPartition

logger = logging.getLogger(__name__)

COMMIT_S = 10.0  # for the commit on revocation, with its retries

Partitions: TypeAlias = Sequence[TopicPartition]
OffsetProvider: TypeAlias = Callable[[Partitions], Mapping[TopicPartition, Offset | None]]
RevocationHook: TypeAlias = Callable[[Partitions, bool], None]


class RebalanceListener:
    """Subclass it to learn of rebalances. The methods run in the consumer's poll thread, and may seek and commit."""

    def on_assigned(self, partitions: Partitions) -> None:
        """These partitions are read from now on."""

    def on_revoked(self, partitions: Partitions) -> None:
        """These partitions go to other members; what was done is committed."""

    def on_lost(self, partitions: Partitions) -> None:
        """These partitions went to other members already: nothing can be committed."""


class Rebalances:
    """librdkafka's rebalance callbacks, for eager and incremental protocols."""

    def __init__(
        self,
        handover: Handover,
        commits: Commits,
        listener: RebalanceListener,
        committable: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
        *,
        incremental: bool,
        patience_s: float,
    ) -> None:
        self._handover = handover
        self._commits = commits
        self._listener = listener
        self._committable = committable
        self._incremental = incremental
        self._patience_s = patience_s  # for messages in hand
        self.providers: list[OffsetProvider] = []
        self.hooks: list[RevocationHook] = []
        self.closing = False
        self.paused: Callable[[Partitions], Partitions] = lambda partitions: ()

    def assigned(self, consumer: "KafkaConsumer", partitions: list["KafkaPartition"]) -> None:
        """Start to read these partitions, at the offsets of the provider if there is one."""
        plain = _plain(partitions)
        logger.info("Assigned: %s", named(plain) or "no partitions")
        refused = None
        try:
            starts = {tp: offset for provider in self.providers for tp, offset in provider(plain).items()}
        except Exception as error:  # noqa: BLE001  # of the user's database, or of anything else that keeps offsets
            refused, starts = error, {}
        for each in partitions:
            offset = starts.get(TopicPartition(each.topic, each.partition))
            if offset is not None:
                each.offset = offset
        if self._incremental:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        self._handover.assign(plain)
        if refused is not None:
            self._handover.fail(refused)
        if refused is not None or (pause := self.paused(plain)):
            consumer.pause(partitions if refused is not None else kafka_partitions(pause))
        self._call(self._listener.on_assigned, plain)

    def revoked(self, consumer: "KafkaConsumer", partitions: list["KafkaPartition"]) -> None:
        """Wait for the messages in hand, commit what is done, and let go."""
        plain = _plain(partitions)
        logger.info("Revoked: %s", named(plain) or "no partitions")
        self._handover.revoke(plain)
        self._call_hooks(plain, lost=False)
        if not self.closing and not self._handover.wait_until_done(
            plain, self._patience_s, lambda: self._commits.flush(consumer, {}, COMMIT_S)
        ):
            late = {message.topic_partition for message in self._handover.in_hand(plain)}
            logger.warning("Revoked while messages are in hand: they will be read again (%s)", named(late))
        self._commits.flush(consumer, {tp: each for tp, each in self._committable().items() if tp in plain}, COMMIT_S)
        self._call(self._listener.on_revoked, plain)
        self._release(consumer, partitions, plain)

    def lost(self, consumer: "KafkaConsumer", partitions: list["KafkaPartition"]) -> None:
        """Let go: other members have these partitions already."""
        plain = _plain(partitions)
        logger.warning("Lost: %s; others may have processed their records again", named(plain))
        self._handover.revoke(plain)
        self._call_hooks(plain, lost=True)
        self._call(self._listener.on_lost, plain)
        self._release(consumer, partitions, plain)

    def _release(self, consumer: "KafkaConsumer", partitions: list["KafkaPartition"], plain: Partitions) -> None:
        self._handover.forget(plain)
        if self._incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _call_hooks(self, partitions: Partitions, *, lost: bool) -> None:
        for hook in list(self.hooks):
            try:
                hook(partitions, lost)
            except Exception as error:  # noqa: BLE001  # the rebalance must end
                self._handover.report(error)

    def _call(self, method: Callable[[Partitions], None], partitions: Partitions) -> None:
        """Call the user's listener. The body gets its errors: there is nobody to catch them here."""
        try:
            method(partitions)
        except Exception as error:  # noqa: BLE001  # the user's
            self._handover.report(error)


def _plain(partitions: list["KafkaPartition"]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def kafka_partitions(partitions: Sequence[TopicPartition]) -> list["KafkaPartition"]:
    from confluent_kafka import TopicPartition as KafkaPartition

    return [KafkaPartition(tp.topic, tp.partition) for tp in partitions]
