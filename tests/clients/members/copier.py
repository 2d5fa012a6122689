"""Copies one topic to another with transactions: reads a batch, writes it, commits both at once. Killed at any time.

`python copier.py '{"bootstrap": …, "source": …, "target": …, "name": …, "batch": 750}'` runs until SIGTERM. Errors that
ask for it abort the transaction and go back to what is committed; fatal ones end the process, and its parent starts
another. Tells a line per committed transaction.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from told import leaving, settings, tell

POLL_S = 0.2
PATIENCE_S = 60
OFFSETS_S = 2
STUCK = 4


@contextlib.contextmanager
def ending_after(seconds: float) -> Iterator[None]:
    """librdkafka 2.16 waits for ever, whatever limit it is given, if a group's coordinator was away at this moment.

    It does so with Apache Kafka too. Ending the process is what helps: whoever started it starts another.
    """
    timer = threading.Timer(seconds, os._exit, (STUCK,))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Copier:
    def __init__(self) -> None:
        given = settings()
        self.given = given
        common = {"bootstrap.servers": given["bootstrap"], "reconnect.backoff.max.ms": 200}
        self.consumer = Consumer(
            {
                **common,
                "group.id": given["name"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": given["session_ms"],
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 50,
            }
        )
        self.producer = Producer(
            {
                **common,
                "transactional.id": given["name"],
                "transaction.timeout.ms": 60_000,
                "linger.ms": 5,
                "queue.buffering.max.ms": 5,
            }
        )

    def run(self) -> None:
        self.producer.init_transactions(PATIENCE_S)
        self.consumer.subscribe([self.given["source"]])
        while not leaving.is_set():
            batch = self.read()
            if batch:
                self.copy(batch)
        self.consumer.close()
        tell("left")

    def read(self) -> list[Message]:
        batch = self.consumer.consume(self.given["batch"], POLL_S)
        for message in batch:
            error = message.error()
            if error is not None and (error.fatal() or not error.retriable()):
                tell("trouble", error=error.str())
        return [message for message in batch if message.error() is None]

    def copy(self, batch: list[Message]) -> None:
        """One transaction; whatever it comes to, the next batch begins behind what is committed."""
        try:
            self.producer.begin_transaction()
            for message in batch:
                self.producer.produce(self.given["target"], message.value(), partition=message.partition())
            self.producer.flush(self.given["work_s"])
            leaving.wait(self.given["work_s"])
            ends = {message.partition(): message.offset() + 1 for message in batch}
            offsets = [TopicPartition(self.given["source"], part, offset) for part, offset in ends.items()]
            group = self.consumer.consumer_group_metadata()
            with ending_after(OFFSETS_S):
                self.again(lambda: self.producer.send_offsets_to_transaction(offsets, group, PATIENCE_S))
            self.again(lambda: self.producer.commit_transaction(PATIENCE_S))
            tell("committed", records=len(batch))
        except KafkaException as failure:
            self.give_up(failure.args[0])

    def again(self, step: Callable[[], None]) -> None:
        """As long as the client says that this helps."""
        while True:
            try:
                return step()
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise

    def give_up(self, error: KafkaError) -> None:
        tell("aborted", error=error.str())
        try:
            if not error.txn_requires_abort():
                raise KafkaException(error)
            self.again(lambda: self.producer.abort_transaction(PATIENCE_S))
            self.rewind()
        except KafkaException:
            self.consumer.close()
            sys.exit(3)

    def rewind(self) -> None:
        """Back to the committed offsets of what it still owns."""
        mine = self.consumer.assignment()
        if not mine:
            return
        for each in self.consumer.committed(mine, timeout=PATIENCE_S):
            start = each.offset if each.offset >= 0 else 0
            self.consumer.seek(TopicPartition(each.topic, each.partition, start))


if __name__ == "__main__":
    Copier().run()
