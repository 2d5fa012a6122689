"""Letters: the producer of a consumer that writes to its retry topic and to its dead letters."""

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.client.consumer.options import ConsumerOptions
from moldau.client.consumer.queries import SHARED
from moldau.client.consumer.retries import AnyMessage, Forward
from moldau.client.errors import ClientError, KafkaFailure, UnknownTopicOrPartition
from moldau.client.settings import BOOTSTRAP_PROPERTY, CALLBACKS

if TYPE_CHECKING:
    from moldau.client.producer.producer import Producer

# librdkafka's largest: the broker decides, as it did for the record that is copied.
MESSAGE_BYTES = 1_000_000_000
CLOSE_S = 5.0
ASK_S = 1.0  # between two looks at whether the run is to end
MISSING_S = 3.0  # for brokers that create topics


class Letters:
    """Writes copies of messages, one at a time and acknowledged."""

    def __init__(self, options: ConsumerOptions, topics: tuple[str, ...]) -> None:
        self._configuration = options.configuration
        self._topics = topics
        self._producer: Producer[bytes | None, bytes | None] | None = None

    def open(self, stopped: Callable[[], bool]) -> None:
        """Connect, and look for the topics: a run that cannot write dead letters should not begin.

        Waits for brokers that cannot be reached, until `stopped`; and a moment for topics that a broker creates.
        """
        if not self._topics or self._producer is not None:
            return
        from moldau.client.producer.producer import Producer

        shared = {name: value for name, value in self._configuration.items() if name.startswith(SHARED)}
        properties = {name: value for name, value in shared.items() if name not in CALLBACKS}
        bootstrap = str(properties.pop(BOOTSTRAP_PROPERTY))
        properties["message.max.bytes"] = MESSAGE_BYTES
        self._producer = producer = Producer(bootstrap, linger=0, max_block=ASK_S, properties=properties)
        for topic in self._topics:
            missing_since: float | None = None
            while not stopped():
                try:
                    producer.partitions(topic)
                    break
                except KafkaFailure as failure:
                    now = time.monotonic()
                    if isinstance(failure, UnknownTopicOrPartition):
                        missing_since = missing_since or now
                    missing = missing_since is not None and now - missing_since >= MISSING_S
                    if missing or not failure.retriable:
                        failure.add_note(f"retry names the topic {topic}: create it, and let this principal write")
                        raise

    def write(self, message: AnyMessage, forward: Forward) -> None:
        """Write a copy, and wait until it is acknowledged. Raises `ClientError` if it is not.

        Its timestamp is now: retention would delete copies of old records at once.
        """
        assert self._producer is not None
        try:
            self._producer.send(forward.topic, message.raw_value, key=message.raw_key, headers=forward.headers).result()
        except ClientError as failure:
            failure.add_note(f"{message!r} failed, and could not be written to {forward.topic}; it is not done")
            raise

    def close(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            with contextlib.suppress(ClientError):  # every record was waited for
                producer.close(CLOSE_S)
