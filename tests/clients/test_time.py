"""Time is injected: seven days of retention pass in a moment, on a real broker."""

import time
from datetime import timedelta

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import NewTopic

from moldau.testing import Broker
from support.clients import confluent
from support.clients.raw import RawClient


def test_seven_days_of_retention_pass_in_a_moment() -> None:
    broker = Broker()
    with broker:
        admin = confluent.admin(broker.bootstrap_servers)
        admin.create_topics([NewTopic("t", 1), NewTopic("kept", 1, config={"retention.ms": "-1"})])["t"].result(30)
        write(broker, "t", 5)
        write(broker, "kept", 5)
        broker.pass_time(timedelta(days=6))
        assert starts(broker) == (0, 0)
        began = time.monotonic()
        broker.pass_time(timedelta(days=2))
        print(f"eight days took {1000 * (time.monotonic() - began):.0f} ms")
        assert starts(broker) == (5, 0)
        with RawClient(broker.bootstrap_servers) as client:
            assert client.fetch("t", 2).error_code == KafkaError.OFFSET_OUT_OF_RANGE
        broker.stop()
        broker.start()
        assert starts(broker) == (5, 0)
        write(broker, "t", 1)
        with RawClient(broker.bootstrap_servers) as client:
            assert client.list_offset("t", -1).offset == 6
        broker.kill()
        broker.start()
        assert starts(broker) == (5, 0)


def write(broker: Broker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0


def starts(broker: Broker) -> tuple[int, int]:
    with RawClient(broker.bootstrap_servers) as client:
        return client.list_offset("t", -2).offset, client.list_offset("kept", -2).offset
