"""What tests of Consumer and AsyncConsumer share: records that are numbers, and how to read them."""

import itertools
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from moldau.client.consumer.consumer import Consumer
from support.clients import confluent

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def fill(bootstrap: str, topic: str, count: int, partitions: int = 1, **more: Any) -> None:
    """So many records, by turns in each partition; their values are numbers."""
    records = [{"value": str(number), "partition": number % partitions, **more} for number in range(count)]
    confluent.write(bootstrap, topic, records)


def read(consumer: Consumer[Any, Any], count: int) -> list[int]:
    """The values of the next messages."""
    found = []
    for message in consumer:
        found.append(int(message.value))
        if len(found) == count:
            break
    return found


def members(admin: AdminClient, group: str) -> int:
    return len(admin.describe_consumer_groups([group])[group].result(30).members)


def read_all(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    return list(itertools.islice(consumer, count))
