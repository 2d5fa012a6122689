"""Reading as a member of a consumer group: join, print, commit printed records, leave.

A record counts as consumed when it has been printed, so one that is cut off by a crash is printed again by the next.
"""

import logging
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from moldau.base.ids import TopicPartition
from moldau.client.admin.clients import admin_error, build_consumer, explain, read_topic
from moldau.client.admin.errors import AdminError
from moldau.client.admin.positions import Kind
from moldau.client.admin.target import Target
from moldau.tools.common.failure import CommandError, note
from moldau.tools.common.interrupts import Interrupts
from moldau.tools.records.printing import Printer
from moldau.tools.records.watch import ConnectionWatch

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message
    from confluent_kafka import TopicPartition as KafkaPartition

BATCH = 500
WAIT_S = 0.1
LEAVE_S = 5.0
IDLE_S = 6.0  # longer than group.initial.rebalance.delay.ms
SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)  # the command reports errors itself
RESETS = {Kind.BEGINNING: "earliest", Kind.END: "latest"}


class Protocol(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class Membership:
    """The group to join, the topic to read, and when to stop."""

    group: str
    topic: str
    protocol: Protocol
    start: Kind  # where to begin in a partition without a committed offset
    follow: bool
    maximum: int | None

    def settings(self) -> dict[str, Any]:
        return {
            "group.id": self.group,
            "group.protocol": self.protocol.value,
            "auto.offset.reset": RESETS[self.start],
            "enable.auto.commit": True,  # stored offsets: every few seconds, and when a partition or the group is left
            "on_commit": tell_failed_commit,
        }


def tell_failed_commit(error: "KafkaError | None", partitions: "list[KafkaPartition]") -> None:
    if error is not None and error.name() != "_NO_OFFSET":
        note(f"Warning: the last printed records could not be committed: {explain(error)}")


@dataclass(slots=True)
class Share:
    """The assigned partitions, and the progress in them."""

    group: str
    owned: set[TopicPartition] = field(default_factory=set)
    ended: set[TopicPartition] = field(default_factory=set)
    count: int = 0
    idle_since: float | None = field(default_factory=time.monotonic)  # None once it was reported

    def on_assign(self, consumer: "Consumer", partitions: "list[KafkaPartition]") -> None:
        self.owned.update(TopicPartition(one.topic, one.partition) for one in partitions)

    def tell_if_idle(self, target: Target) -> None:
        """Say once why no partition is assigned."""
        if self.owned:
            self.idle_since = None
        elif self.idle_since is not None and time.monotonic() - self.idle_since > IDLE_S:
            self.idle_since = None
            from moldau.client.admin.stalls import why_unassigned

            note(f"No partition assigned yet: {why_unassigned(target, self.group)}. Still trying.")

    def on_revoke(self, consumer: "Consumer", partitions: "list[KafkaPartition]") -> None:
        gone = {TopicPartition(one.topic, one.partition) for one in partitions}
        self.owned -= gone
        self.ended -= gone

    def is_done(self, membership: Membership) -> bool:
        at_end = bool(self.owned) and self.owned <= self.ended
        return self.count == membership.maximum or (at_end and not membership.follow)


def read_as_member(
    target: Target, own: Mapping[str, Any], membership: Membership, printer: Printer, watch: ConnectionWatch
) -> bool:
    """Print records of the assigned partitions. Returns whether Ctrl-C ended it."""
    quiet = {} if "debug" in target.properties else {"logger": SILENT}
    consumer = build_consumer(target, **own, **membership.settings(), **quiet)
    share = Share(membership.group)
    with Interrupts() as interrupts:  # while it closes as well, which commits and leaves
        try:
            read_topic(consumer, target, membership.topic)  # librdkafka would wait for a topic that does not exist
            consumer.subscribe(
                [membership.topic], on_assign=share.on_assign, on_revoke=share.on_revoke, on_lost=share.on_revoke
            )
            while not share.is_done(membership) and not interrupts.asked:
                _read_batch(consumer, target, membership, share, printer)
                share.tell_if_idle(target)
                if watch.problem is not None:
                    raise watch.problem
        finally:
            _leave(consumer, membership.group)
    if not share.count and not interrupts.asked:
        note(f"No new records in {membership.topic} for group {membership.group}; wait for more with --follow.")
    return bool(interrupts.asked)


def _leave(consumer: "Consumer", group: str) -> None:
    """Commit and leave. librdkafka would wait without limit for a coordinator that does not answer."""
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(LEAVE_S)
    if closing.is_alive():
        note(
            f"The coordinator of group {group} does not answer. The last printed records may not be committed; "
            "if so, the group reads them again."
        )


def _read_batch(consumer: "Consumer", target: Target, membership: Membership, share: Share, printer: Printer) -> None:
    printed: dict[TopicPartition, Message] = {}
    for message in consumer.consume(BATCH, WAIT_S):
        _take(message, target, membership, share, printed, printer)
    sys.stdout.flush()  # before anything counts as consumed: the reader may have left
    for tp, message in printed.items():
        if tp in share.owned:  # it may have been revoked by the same call that returned the record
            consumer.store_offsets(message)


def _take(
    message: "Message",
    target: Target,
    membership: Membership,
    share: Share,
    printed: "dict[TopicPartition, Message]",
    printer: Printer,
) -> None:
    error, topic, partition = message.error(), message.topic(), message.partition()
    tp = TopicPartition(topic or "", -1 if partition is None else partition)
    if error is None:
        if share.count != membership.maximum:
            printer(message)
            share.count += 1
            share.ended.discard(tp)
            printed[tp] = message
    elif error.name() == "_PARTITION_EOF":
        share.ended.add(tp)
    elif not error.retriable():
        raise membership_error(error, target, membership)


def membership_error(error: "KafkaError", target: Target, membership: Membership) -> AdminError | CommandError:
    """The error that ended the membership. A fatal one is most often a broker without the consumer protocol."""
    if error.name() != "_FATAL":
        return admin_error(error, target, topic=membership.topic)
    reason = error.str().rpartition("Broker: ")[2]
    remedy = "Try --protocol classic" if membership.protocol is Protocol.CONSUMER else ""
    return CommandError(f"group {membership.group!r} refused this member: {reason}", remedy=remedy)
