"""What each value of acks is worth when the process dies: nothing acknowledged is lost, and nothing is garbled."""

import pytest
from confluent_kafka import Producer

from support.brokers.processes import StartBroker
from support.clients.raw import RawClient
from support.clients.steady import stored

RECORDS = 2_000


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_kill_keeps_what_was_acknowledged(start_broker: StartBroker, acks: int) -> None:
    own = start_broker()
    with RawClient(own.bootstrap) as client:
        client.create_topic("t", 1, {})
    producer = Producer({"bootstrap.servers": own.bootstrap, "acks": acks, "linger.ms": 1, "log_level": 0})
    acknowledged: list[object] = []
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number, b"%d" % number, on_delivery=lambda _, told: acknowledged.append(told))
        producer.poll(0)
    while len(acknowledged) < RECORDS // 2:
        producer.poll(0.1)
    own.kill()
    count = len(acknowledged)
    producer.purge()
    own.start()
    with RawClient(own.bootstrap) as client:
        client.wait_for_topic("t", 1)
    found = [number for _, _, number in stored(own.bootstrap, ("t", 0))]
    assert found == list(range(len(found))), "a beginning of what was sent, in order"
    assert acks == 0 or len(found) >= count
