"""Rebalances: what happens when partitions are assigned, revoked or lost. All of it runs in the poll thread."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.commits import Commits, Offsets
from moldau.client.consumer.handover import Handover
from moldau.client.consumer.partitions import for_librdkafka, named, plain

if TYPE_CHECKING:
    from confluent_kafka import Consumer as KafkaConsumer
    from confluent_kafka import TopicPartition as KafkaPartition

logger = logging.getLogger(__name__)

UNKNOWN = (-1000, -1001)  # librdkafka's offsets for: the committed one, or by auto.offset.reset
COMMIT_S = 10.0  # for the commit on revocation, with its retries

Partitions: TypeAlias = Sequence[TopicPartition]
OffsetProvider: TypeAlias = Callable[[Partitions], Mapping[TopicPartition, Offset | None]]
RevocationHook: TypeAlias = Callable[[Partitions, bool], None]


class RebalanceListener:
    """Subclass it to learn of rebalances. The methods run in the consumer's poll thread; they may seek and commit."""

    def on_assigned(self, partitions: Partitions) -> None:
        """These partitions are read from now on."""

    def on_revoked(self, partitions: Partitions) -> None:
        """These partitions go to other members; what was done is committed."""

    def on_lost(self, partitions: Partitions) -> None:
        """These partitions went to other members already: nothing can be committed."""


class Rebalances:
    """librdkafka's rebalance callbacks, for eager and incremental protocols; and assignments without a group."""

    def __init__(
        self,
        handover: Handover,
        commits: Commits,
        listener: RebalanceListener,
        committable: Callable[[], Offsets],
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
        self.closing = False  # messages in hand are not waited for
        self.committed = False  # for the last time
        self.released: Callable[[Partitions], None] = lambda partitions: None
        self.meanwhile: Callable[[KafkaConsumer], None] = lambda consumer: None
        self.paused: Callable[[Partitions], Partitions] = lambda partitions: ()

    # ── callbacks of librdkafka ─────────────────────────────────────────────────────────────────────────────────────

    def assigned(self, consumer: "KafkaConsumer", partitions: list["KafkaPartition"]) -> None:
        """Start to read these partitions, at the offsets of the provider if there is one."""
        logger.info("Assigned: %s", named(plain(partitions)) or "no partitions")
        self.assign(consumer, partitions, add=self._incremental)
        self._call(self._listener.on_assigned, plain(partitions))

    def revoked(self, consumer: "KafkaConsumer", partitions: list["KafkaPartition"]) -> None:
        """Wait for the messages in hand, commit what is done, and let go."""
        gone = plain(partitions)
        logger.info("Revoked: %s", named(gone) or "no partitions")
        self._handover.revoke(gone)
        self._call_hooks(gone, lost=False)
        if not self.closing and not self._handover.wait_until_done(
            gone, self._patience_s, lambda: self.meanwhile(consumer)
        ):
            late = {message.topic_partition for message in self._handover.in_hand(gone)}
            logger.warning("Revoked while messages are in hand: they will be read again (%s)", named(late))
        if not self.committed:
            done = {tp: each for tp, each in self._committable().items() if tp in gone}
            self._commits.flush(consumer, done, COMMIT_S)
        self._call(self._listener.on_revoked, gone)
        self._release(consumer, partitions)

    def lost(self, consumer: "KafkaConsumer", partitions: list["KafkaPartition"]) -> None:
        """Let go: other members have these partitions already."""
        gone = plain(partitions)
        logger.warning("Lost: %s; other members read them now, from the last commit on", named(gone))
        self._handover.revoke(gone)
        self._call_hooks(gone, lost=True)
        self._call(self._listener.on_lost, gone)
        self._release(consumer, partitions)

    # ── with and without a group ────────────────────────────────────────────────────────────────────────────────────

    def assign(self, consumer: "KafkaConsumer", partitions: list["KafkaPartition"], *, add: bool) -> None:
        """Read these partitions, in addition to or instead of others."""
        taken = plain(partitions)
        refused = None
        starts: dict[TopicPartition, Offset | None] = {}
        try:
            for provider in self.providers:
                starts |= provider(taken)
        except Exception as error:  # noqa: BLE001  # of the user's database, or whatever else keeps offsets
            refused = error
        for each in partitions:
            offset = starts.get(TopicPartition(each.topic, each.partition))
            if offset is not None:
                each.offset = offset
        if add:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        given = {tp: each.offset for tp, each in zip(taken, partitions, strict=True)}
        self._handover.assign(taken, {tp: offset for tp, offset in given.items() if offset not in UNKNOWN})
        pause = taken if refused is not None else self.paused(taken)
        if pause:
            consumer.pause(for_librdkafka(pause))
        if refused is not None:
            self._handover.fail(refused)

    def replace(self, consumer: "KafkaConsumer", partitions: list["KafkaPartition"]) -> None:
        """Without a subscription: read these partitions from now on, and no others."""
        gone = sorted(self._handover.assignment())
        self._handover.revoke(gone)
        self._call_hooks(gone, lost=False)
        self._commits.flush(consumer, self._committable(), COMMIT_S)
        self._handover.forget(gone)
        self.released(gone)
        self.assign(consumer, partitions, add=False)

    def _release(self, consumer: "KafkaConsumer", partitions: list["KafkaPartition"]) -> None:
        self._handover.forget(plain(partitions))
        self.released(plain(partitions))
        if self._incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _call_hooks(self, partitions: Partitions, *, lost: bool) -> None:
        for hook in list(self.hooks):
            try:
                hook(partitions, lost)
            except Exception as error:  # noqa: BLE001  # the rebalance must end; the body gets it
                self._handover.report(error)

    def _call(self, method: Callable[[Partitions], None], partitions: Partitions) -> None:
        """Call the user's listener. The body gets its errors: nobody could catch them here."""
        try:
            method(partitions)
        except Exception as error:  # noqa: BLE001  # the user's
            self._handover.report(error)
