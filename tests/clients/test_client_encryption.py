"""Encrypted values on a real broker: what it stores, what a retry topic does to them, what strangers see."""

import pytest

from moldau import Backoff, Consumer, DeserializationFailed, Encrypted, Keys, Message, Producer, Retry
from support.brokers.processes import AnyBroker

KEYS = Keys({"k1": bytes(range(32))}, current="k1")
OTHER = Keys({"k1": bytes(32)}, current="k1")


def test_a_consumer_with_another_key_is_told_where_it_cannot_read(broker: AnyBroker, topic: str) -> None:
    with Producer(broker.bootstrap, value=Encrypted(str, keys=KEYS)) as producer:
        producer.send(topic, "secret", key="k", props={"kept": "yes"})
        producer.send(topic, None, key="k")
    with Consumer(broker.bootstrap, topic, value=Encrypted(str, keys=OTHER)) as consumer:
        message = consumer.poll(30)
        assert message is not None
        with pytest.raises(DeserializationFailed, match="key 'k1' does not decrypt it") as raised:
            _ = message.value
        assert (raised.value.partition, raised.value.offset) == ((topic, 0), 0)
        assert b"secret" not in (message.raw_value or b"")
        assert message.props == {"kept": "yes", "moldau.encryption.key": "k1"}
        tombstone = consumer.poll(30)
        assert tombstone is not None
        assert tombstone.value is None


def test_a_retry_topic_needs_the_name_that_values_are_bound_to(broker: AnyBroker, topic: str) -> None:
    secret = Encrypted(str, keys=KEYS, topic=topic)
    with Producer(broker.bootstrap, value=Encrypted(str, keys=KEYS)) as producer:
        producer.send(topic, "secret", key="k")
    retry = Retry(times=1, backoff=Backoff(first=0.01, most=0.01), topic=f"{topic}-retry")
    consumer = Consumer(broker.bootstrap, topic, group=topic, value=secret, retry=retry)
    seen: list[tuple[str, str]] = []

    def handle(message: Message[bytes | None, str]) -> None:
        seen.append((message.topic, message.value))
        if len(seen) == 1:
            raise ConnectionError("the first time it fails")
        consumer.wakeup()

    with consumer:
        consumer.run(handle)
    assert seen == [(topic, "secret"), (f"{topic}-retry", "secret")]
