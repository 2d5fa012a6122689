"""What a consumer reads: topics of its group, all partitions of topics without a group, or partitions by name.

Everything here runs in the poll thread.
"""

import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.options import ConsumerOptions
from moldau.client.consumer.partitions import for_librdkafka
from moldau.client.consumer.rebalances import Rebalances

if TYPE_CHECKING:
    from confluent_kafka import Consumer as KafkaConsumer
    from confluent_kafka import TopicPartition as KafkaPartition

logger = logging.getLogger(__name__)

PATTERN = "^"
METADATA_S = 5.0  # longest wait for a broker, while nothing is polled
MISSING_S = 1.0  # between two looks for topics that are missing


class Subscription(Protocol):
    def start(self, consumer: "KafkaConsumer") -> None: ...

    def follow(self, consumer: "KafkaConsumer") -> None:
        """Between two polls."""


class GroupSubscription:
    """Topics and patterns; the group assigns their partitions."""

    def __init__(self, options: ConsumerOptions, rebalances: Rebalances) -> None:
        self._topics = list(options.topics)
        self._rebalances = rebalances

    def start(self, consumer: "KafkaConsumer") -> None:
        changes = self._rebalances
        consumer.subscribe(self._topics, on_assign=changes.assigned, on_revoke=changes.revoked, on_lost=changes.lost)

    def follow(self, consumer: "KafkaConsumer") -> None:
        """librdkafka does it."""


class AllPartitions:
    """All partitions of topics, without a group; those that are added later too."""

    def __init__(self, options: ConsumerOptions, rebalances: Rebalances) -> None:
        self._topics = options.topics
        self._rebalances = rebalances
        self._start = start_offset(options)
        self._refresh_s = options.metadata_refresh_s
        self._known: set[TopicPartition] = set()
        self._next = 0.0
        self._missing: set[str] = set()

    def start(self, consumer: "KafkaConsumer") -> None:
        self.follow(consumer)

    def follow(self, consumer: "KafkaConsumer") -> None:
        now = time.monotonic()
        if now < self._next:
            return
        found = self._find(consumer)
        added = found - self._known
        if added:
            # A partition that was not there at first is read from its beginning.
            first = not self._known
            self._rebalances.assign(consumer, for_librdkafka(added, self._start if first else BEGINNING), add=True)
            self._known |= added
        self._next = now + (MISSING_S if self._missing or not self._known else self._refresh_s)

    def _find(self, consumer: "KafkaConsumer") -> set[TopicPartition]:
        from confluent_kafka import KafkaException

        patterns = [re.compile(name) for name in self._topics if name.startswith(PATTERN)]
        names = {name for name in self._topics if not name.startswith(PATTERN)}
        try:
            if patterns:
                topics = consumer.list_topics(timeout=METADATA_S).topics
            else:
                topics = {name: consumer.list_topics(name, METADATA_S).topics[name] for name in names}
        except KafkaException as error:
            logger.warning("Cannot find the partitions of %s: %s; will try again", self._topics, error.args[0].str())
            return set()
        there = {name: each for name, each in topics.items() if each.error is None and each.partitions}
        missing = names - there.keys()
        if missing - self._missing:
            logger.warning("No such topic: %s; waiting for it", ", ".join(sorted(missing)))
        self._missing = missing
        wanted = {name for name in there if name in names or any(pattern.search(name) for pattern in patterns)}
        return {TopicPartition(name, partition) for name in wanted for partition in there[name].partitions}


class OwnAssignment:
    """Partitions that the user names by `assign`; none until then."""

    def start(self, consumer: "KafkaConsumer") -> None:
        """Nothing to read yet."""

    def follow(self, consumer: "KafkaConsumer") -> None:
        """Partitions do not change by themselves."""


BEGINNING = -2  # librdkafka's logical offsets
END = -1
STORED = -1001  # none: the committed offset, or else by auto.offset.reset
TAIL = -2000  # and less: so many records before the end


def start_offset(options: ConsumerOptions) -> Offset | None:
    """Where a partition starts if nobody says more; None: at the committed offset."""
    if options.tail is not None:
        return TAIL - options.tail if options.tail else END
    if options.group is not None:
        return None
    return END if options.start == "latest" else BEGINNING


def with_offsets(offsets: Mapping[TopicPartition, Offset | None], default: Offset | None) -> list["KafkaPartition"]:
    from confluent_kafka import TopicPartition as KafkaPartition

    last = STORED if default is None else default
    return [
        KafkaPartition(tp.topic, tp.partition, last if offset is None else offset) for tp, offset in offsets.items()
    ]


def subscription_of(options: ConsumerOptions, rebalances: Rebalances) -> Subscription:
    if not options.topics:
        return OwnAssignment()
    return GroupSubscription(options, rebalances) if options.group is not None else AllPartitions(options, rebalances)
