"""A copier with librdkafka: reads one topic and writes another, in transactions that include the offsets read.

It aborts some transactions and repeats their work.
"""

import logging
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from chaos.history import (
    ATTEMPT,
    Acked,
    Committed,
    Committing,
    Copies,
    Ended,
    Ending,
    Event,
    Failed,
    Placed,
    Polled,
    Send,
)
from chaos.workloads.abandoned import Stuck, within
from chaos.workloads.base import HASTY, PATIENCE_S, Setting, Workload
from chaos.workloads.errors import FENCED, is_hard, is_hard_in_transaction
from chaos.workloads.read import READING, reads_of

BATCH = 100
GIVEN_UP = 0.1  # share of transactions that are aborted once everything is written
CALL_S = 15.0
READY_S = 60.0
log = logging.getLogger("librdkafka")  # to the file with the other clients' logs


class Copy(Workload):
    """One copier at a time with one transactional id; the next one fences the one before."""

    def __init__(self, name: str, setting: Setting, target: str) -> None:
        super().__init__(name, setting)
        self._target = target
        self._attempts = 0
        self._transactions = 0

    def work(self) -> None:
        self.tell(Copies, self.name, self.setting.topic, self._target)
        while not self.ending.is_set():
            try:
                self._life()
            except Stuck as failure:
                self.erred(f"starts again: {failure}", hard=False)
            except KafkaException as failure:
                error = failure.args[0]
                self.erred(f"starts again: {failure}", hard=is_hard(error) and error.code() not in FENCED)

    def _life(self) -> None:
        """Use one producer and one consumer until the end, or until an error that needs new ones."""
        common = {**HASTY, **self.setting.access.librdkafka}
        settings = {**common, "transactional.id": self.name, "transaction.timeout.ms": 120_000, "linger.ms": 2}
        producer = Producer(settings, logger=log)
        consumer = Consumer({**READING, **common, "group.id": self.name})
        try:
            self._within(lambda: producer.init_transactions(READY_S), 2 * READY_S)
            self._rewind(consumer)
            while not self.ending.is_set():
                messages = [each for each in consumer.consume(BATCH, 0.2) if each.error() is None]
                if messages:
                    self._transaction(producer, consumer, messages)
        finally:
            consumer.close()

    def _transaction(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
        self._transactions += 1
        transaction = f"{self.name}-{self._transactions}"
        for place, reads in reads_of(messages).items():
            self.tell(Polled, self.name, place, tuple(reads))
        try:
            producer.begin_transaction()
            for message in messages:
                self._send(producer, message, transaction)
            ends = {int(message.partition() or 0): int(message.offset() or 0) + 1 for message in messages}
            offsets = [TopicPartition(self.setting.topic, index, offset) for index, offset in ends.items()]
            group = consumer.consumer_group_metadata()
            self._again(lambda: producer.send_offsets_to_transaction(offsets, group, CALL_S))
            if self.dice.random() < GIVEN_UP:
                return self._give_up(producer, consumer, transaction)
            self._tell_offsets(Committing, ends)
            self.tell(Ending, self.name, transaction, True)
            self._again(lambda: producer.commit_transaction(CALL_S))
            self.tell(Ended, self.name, transaction, True)
            self._tell_offsets(Committed, ends)
            self.acked += len(messages)
        except KafkaException as failure:
            self._abort(producer, transaction, failure)
            self._rewind(consumer)

    def _tell_offsets(self, kind: type[Event], ends: dict[int, int]) -> None:
        for index, offset in ends.items():
            self.tell(kind, self.name, self.name, f"{self.setting.topic}/{index}", offset)

    def _send(self, producer: Producer, message: Message, transaction: str) -> None:
        self._attempts += 1
        value = f"{(message.value() or b'').decode()}{ATTEMPT}{self._attempts}"
        place = f"{self._target}/{message.partition()}"
        self.tell(Send, self.name, place, value, transaction)
        producer.produce(self._target, value, partition=int(message.partition() or 0), on_delivery=self._told)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        place, value = f"{self._target}/{message.partition()}", (message.value() or b"").decode()
        if error is None:
            offset = message.offset()
            self.tell(Acked, self.name, place, value, -1 if offset is None or offset < 0 else offset)
        else:
            self.tell(Failed, self.name, place, value, error.str(), hard=is_hard_in_transaction(error))

    def _give_up(self, producer: Producer, consumer: Consumer, transaction: str) -> None:
        """Abort a transaction without need: otherwise logs would have hardly any aborted records."""
        producer.flush(CALL_S)
        self.tell(Ending, self.name, transaction, False)
        self._again(lambda: producer.abort_transaction(CALL_S))
        self.tell(Ended, self.name, transaction, False)
        self._rewind(consumer)

    def _abort(self, producer: Producer, transaction: str, failure: KafkaException) -> None:
        error = failure.args[0]
        self.erred(f"{transaction}: {error.str()}", hard=is_hard_in_transaction(error))
        if not error.txn_requires_abort():
            raise Stuck(str(failure))
        self._again(lambda: producer.abort_transaction(CALL_S))
        self.tell(Ended, self.name, transaction, False)

    def _rewind(self, consumer: Consumer) -> None:
        """Seek to the committed offsets. Partitions are assigned by hand; the transactional id fences."""
        wanted = [TopicPartition(self.setting.topic, index) for index in range(self.setting.partitions)]
        begin = []
        for each in consumer.committed(wanted, timeout=CALL_S):
            if each.error is not None:
                raise KafkaException(each.error)
            begin.append(TopicPartition(each.topic, each.partition, max(each.offset, 0)))
            self.tell(Placed, self.name, f"{each.topic}/{each.partition}", max(each.offset, 0))
        consumer.assign(begin)

    def _again(self, call: Callable[[], None]) -> None:
        """Retry while the client says that the error is retriable."""
        until = self.setting.recorder.now() + PATIENCE_S
        while True:
            try:
                return self._within(call, 2 * CALL_S)
            except KafkaException as failure:
                if not failure.args[0].retriable() or self.setting.recorder.now() > until:
                    raise

    def _within(self, call: Callable[[], None], seconds: float) -> None:
        """librdkafka 2.16 may wait forever, whatever the timeout, once a group's coordinator was unreachable.

        It stores the timeout of a request to a coordinator but never checks it (`creq_ts_timeout` in rdkafka_coord.c):
        only a connection to any broker that opens or closes wakes the call. Such a call is abandoned. The next producer
        with this transactional id fences it, so it finally fails with INVALID_PRODUCER_EPOCH; the history has the
        outcome.
        """
        within(seconds, call, self.note)
