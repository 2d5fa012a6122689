"""Producers with librdkafka: one without idempotence and retries, and an idempotent one.

Even without retries librdkafka sends a record again after NOT_LEADER_OR_FOLLOWER: it assumes that the record was not
written. It was, if the leader was replaced while the record waited for the followers.
"""

from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chaos.workloads.base import HASTY, PATIENCE_S, SURELY_NOT_WRITTEN, Gave, Numbered, Setting
from chaos.workloads.errors import is_hard

PLAIN: dict[str, Any] = {"enable.idempotence": False, "retries": 0, "acks": "all", "message.timeout.ms": 20_000}
IDEMPOTENT: dict[str, Any] = {"enable.idempotence": True, "message.timeout.ms": 600_000}


class Produce(Numbered):
    """Sends records one by one, several in flight. After a fatal error a new producer goes on."""

    def __init__(self, name: str, setting: Setting, settings: dict[str, Any]) -> None:
        super().__init__(name, setting)
        self.once = bool(settings["enable.idempotence"])
        self._settings = {**HASTY, **setting.access.librdkafka, "linger.ms": 2, **settings}

    def work(self) -> None:
        producer = Producer(self._settings)
        while not self.ending.is_set():
            partition, value = self.next_record()
            try:
                producer.produce(self.setting.topic, value, partition=partition, on_delivery=self._told)
            except BufferError:
                self.not_delivered(partition, value, "the queue is full", surely=True)
            except KafkaException as failure:
                self.not_delivered(partition, value, str(failure), surely=True, hard=is_hard(failure.args[0]))
                producer = self._after_fatal(producer, failure)
            producer.poll(0)
            self.pause()
        self._bring_home(producer)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        partition, value = int(message.partition() or 0), (message.value() or b"").decode()
        if error is None:
            offset = message.offset()
            self.delivered(partition, value, -1 if offset is None else offset)
        else:
            surely = error.code() in SURELY_NOT_WRITTEN
            self.not_delivered(partition, value, error.str(), surely=surely, hard=is_hard(error))

    def _after_fatal(self, producer: Producer, failure: KafkaException) -> Producer:
        self.note(f"a new producer after {failure}")
        self._bring_home(producer)
        return Producer(self._settings)

    def _bring_home(self, producer: Producer) -> None:
        """Wait for the outcome of every record; records without one after a long time are purged and fail."""
        left = producer.flush(PATIENCE_S)
        if left:
            producer.purge()
            producer.flush(PATIENCE_S)
            raise Gave(f"{self.name}: {left} records had no outcome within {PATIENCE_S:.0f} s")


def plain(setting: Setting) -> Produce:
    return Produce("plain", setting, PLAIN)


def idempotent(setting: Setting) -> Produce:
    return Produce("idempotent", setting, IDEMPOTENT)
