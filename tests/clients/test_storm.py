"""A rebalance storm: members join and leave without a pause; then the group rests, and each partition has one owner.

The one of `make test` is small; `make storm` has 50 members for a minute and tells how long the rest took to come.
"""

import os
import random
import time

import pytest
from confluent_kafka import ConsumerGroupState

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients import confluent
from support.eventually import eventually
from support.groups.crowd import Crowd

FULL = bool(os.environ.get("MOLDAU_FULL"))
MEMBERS, SECONDS = (50, 60) if FULL else (20, 6)
REST_S = 2  # nothing may change for so long
PROTOCOLS = {
    "range": {"partition.assignment.strategy": "range"},
    "consumer protocol": {"group.protocol": "consumer"},
}
if FULL:  # librdkafka takes many rebalances to share out anew by this one, after a short storm as after a long one
    PROTOCOLS["cooperative-sticky"] = {"partition.assignment.strategy": "cooperative-sticky"}
CLASSIC = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 500}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_comes_to_rest_after_a_storm(
    broker: AnyBroker, create_topic: CreateTopic, short_waits: dict[str, int], protocol: str
) -> None:
    name = create_topic(partitions=2 * MEMBERS)
    chosen = PROTOCOLS[protocol]
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"group-{name}",
        "enable.auto.commit": False,
        "log_level": 3,
        **chosen,
        **({} if "group.protocol" in chosen else CLASSIC),
    }
    crowd = Crowd(settings, name)
    places = {(name, partition) for partition in range(2 * MEMBERS)}

    def at_rest() -> bool:
        with crowd.lock:
            shared_out = set(crowd.owners) == places and set(crowd.owners.values()) == set(crowd.members)
            return shared_out and time.monotonic() - crowd.last_change > REST_S

    def told() -> str:
        owners = set(crowd.owners.values())
        return f"{len(crowd.owners)} owned by {len(owners)} of {len(crowd.members)}; {crowd.errors[-3:]}"

    with crowd.polled():
        crowd.storm(MEMBERS, SECONDS, random.Random(MEMBERS))
        ended = time.monotonic()
        eventually(at_rest, "the group comes to rest", told)
        print(
            f"{protocol}: {crowd.joined} joined and {crowd.left} left in {SECONDS} s, {crowd.lost} were put out;"
            f" at rest {max(0.0, crowd.last_change - ended):.2f} s after that"
        )
        admin = confluent.admin(broker.bootstrap)
        described = admin.describe_consumer_groups([settings["group.id"]])[settings["group.id"]].result(30)
    assert described.state == ConsumerGroupState.STABLE
    owned = {
        (part.topic, part.partition): member.client_id
        for member in described.members
        for part in member.assignment.topic_partitions
    }
    assert owned.keys() == places
    assert not crowd.trespasses, crowd.trespasses[:3]
