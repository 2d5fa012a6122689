"""Reassignments and leader elections with kafka-python's admin client, which wait until they are complete."""

import time
from collections.abc import Callable
from typing import TypeVar

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, NoReassignmentInProgressError

from chaos.access import Access

Found = TypeVar("Found")
PATIENCE_S = 120.0
AGAIN_S = 0.1
PREFERRED = 0  # election type


def reassign(access: Access, topic: str, partition: int, replicas: list[int]) -> None:
    place = TopicPartition(topic, partition)
    until = time.monotonic() + PATIENCE_S
    _again(access, lambda admin: _ask(admin, place, replicas), until)
    while not _again(access, lambda admin: _done(admin, place, replicas), until):
        if time.monotonic() > until:
            raise TimeoutError(f"{topic}-{partition} did not get the replicas {replicas} within {PATIENCE_S:.0f} s")
        time.sleep(AGAIN_S)


def elect_preferred(access: Access) -> None:
    """Elect the preferred leader of every partition if possible."""
    until = time.monotonic() + PATIENCE_S
    _again(access, lambda admin: admin.elect_leaders(PREFERRED, raise_errors=False), until)


def _ask(admin: KafkaAdminClient, place: TopicPartition, replicas: list[int]) -> bool:
    (error,) = admin.alter_partition_reassignments({place: replicas}).values()
    if error is not None and error is not NoReassignmentInProgressError:
        raise error(f"{place}: {replicas}")
    return True


def _done(admin: KafkaAdminClient, place: TopicPartition, replicas: list[int]) -> bool:
    if admin.list_partition_reassignments([place]):
        return False
    rows = [each for row in admin.describe_topics([place.topic]) for each in row["partitions"]]
    return replicas in [each["replica_nodes"] for each in rows if each["partition_index"] == place.partition]


def _again(access: Access, call: Callable[[KafkaAdminClient], Found], until: float) -> Found:
    """Retry every failure with a new client, because brokers come and go."""
    while True:
        try:
            admin = KafkaAdminClient(request_timeout_ms=5_000, **access.kafka_python)
            try:
                return call(admin)
            finally:
                admin.close()
        except KafkaError:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)
