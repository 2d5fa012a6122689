"""Reading as a member of a consumer group: join, print, commit printed records, leave.

A record counts as consumed when it has been printed, so one that is cut off by a crash is printed again by the next.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from moldau.client.admin.clients import Admin, of_client
from moldau.client.admin.errors import AdminError
from moldau.client.admin.positions import Kind
from moldau.client.admin.scope import Scope
from moldau.client.admin.target import REQUEST_TIMEOUT_S, Target
from moldau.client.admin.topics import existing_partitions
from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.options import Start
from moldau.client.errors import ClientError, Closed
from moldau.tools.common.failure import CommandError, note
from moldau.tools.common.interrupts import Interrupts
from moldau.tools.records.clients import failure_of, open_consumer
from moldau.tools.records.printing import Printer
from moldau.tools.records.watch import ConnectionWatch, tell_stalls

BATCH = 500
WAIT_S = 0.1
LEAVE_S = 5.0
IDLE_S = 6.0  # longer than group.initial.rebalance.delay.ms
STARTS: Final[Mapping[Kind, Start]] = {Kind.BEGINNING: "earliest", Kind.END: "latest"}


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


@dataclass(slots=True)
class Reading:
    """How many records were printed, and whether the member has partitions."""

    count: int = 0
    idle_since: float | None = field(default_factory=time.monotonic)  # None once it was reported

    def tell_if_idle(self, target: Target, group: str, owned: bool) -> None:
        """Say once why no partition is assigned."""
        if owned:
            self.idle_since = None
        elif self.idle_since is not None and time.monotonic() - self.idle_since > IDLE_S:
            self.idle_since = None
            from moldau.client.admin.stalls import why_unassigned

            note(f"No partition assigned yet: {why_unassigned(target, group)}. Still trying.")


def read_as_member(
    target: Target, own: Mapping[str, Any], membership: Membership, printer: Printer, watch: ConnectionWatch
) -> bool:
    """Print records of the assigned partitions. Returns whether Ctrl-C ended it."""
    with tell_stalls(target, lambda: None, lambda: True, f", up to {REQUEST_TIMEOUT_S:.0f} s"):
        existing_partitions(Admin(target), Scope(membership.topic))  # a member would wait for a topic that is not there
    consumer = open_consumer(
        target,
        own,
        membership.topic,
        group=membership.group,
        protocol=membership.protocol.value,
        start=STARTS[membership.start],
    )
    reading = Reading()
    with Interrupts() as interrupts:  # while it closes as well, which commits and leaves
        try:
            while reading.count != membership.maximum and not interrupts.asked:
                count = _print_batch(consumer, membership, reading, printer)
                reading.tell_if_idle(target, membership.group, bool(consumer.assignment()))
                if not count:
                    watch.look(consumer.engine.all_down)
                    if not membership.follow and _at_end(consumer):
                        break
            consumer.engine.finish()
        except ClientError as error:
            raise membership_error(error, target, membership) from error
        finally:
            _leave(consumer, membership.group)
    if not reading.count and not interrupts.asked:
        note(f"No new records in {membership.topic} for group {membership.group}; wait for more with --follow.")
    return bool(interrupts.asked)


def _print_batch(consumer: Consumer[Any, Any], membership: Membership, reading: Reading, printer: Printer) -> int:
    """Print the next records. They are done when the next ones are asked for, and so not if the reader has left."""
    most = BATCH if membership.maximum is None else min(BATCH, membership.maximum - reading.count)
    batch = consumer.poll_batch(most, WAIT_S)
    for message in batch:
        printer(message.record)
    sys.stdout.flush()
    reading.count += len(batch)
    return len(batch)


def _at_end(consumer: Consumer[Any, Any]) -> bool:
    lag = consumer.lag()
    return bool(lag) and not any(lag.values())


def _leave(consumer: Consumer[Any, Any], group: str) -> None:
    """Commit and leave; the coordinator may not answer."""
    closing = threading.Thread(target=_commit_and_close, args=(consumer,), daemon=True)
    closing.start()
    closing.join(LEAVE_S)
    if closing.is_alive():
        note(
            f"The coordinator of group {group} does not answer. The last printed records may not be committed; "
            "if so, the group reads them again."
        )


def _commit_and_close(consumer: Consumer[Any, Any]) -> None:
    try:
        with contextlib.suppress(Closed):  # it has failed, and the command says why
            consumer.commit()
    except ClientError as error:
        note(f"Warning: the last printed records could not be committed: {of_client(error, '')}")
    consumer.close()


def membership_error(error: ClientError, target: Target, membership: Membership) -> AdminError | CommandError:
    """The error that ended the membership. A fatal one is most often a broker without the consumer protocol."""
    if not error.fatal:
        return failure_of(error, target, membership.topic)
    reason = str(error).rpartition("Broker: ")[2]
    remedy = "Try --protocol classic" if membership.protocol is Protocol.CONSUMER else ""
    return CommandError(f"group {membership.group!r} refused this member: {reason}", remedy=remedy)
