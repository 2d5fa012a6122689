"""Settings of topics and brokers, through requests that go to the right broker."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from moldau.client.admin.cluster import Cluster
from moldau.client.admin.errors import refused
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

T = TypeVar("T")

MAX_RESOURCES = 500  # in one request
TOPIC, BROKER = 2, 4  # kinds of resources
SET, DELETE = 0, 1
TOPIC_SOURCE = 1  # a value's source: it was set for this topic


def read_topic_configs(
    cluster: Cluster, topics: Iterable[str], names: tuple[str, ...]
) -> dict[str, dict[str, tuple[str | None, bool]]]:
    """For each topic the values of these settings, and whether they were set for the topic itself."""
    found: dict[str, dict[str, tuple[str | None, bool]]] = {}
    for some in batches(sorted(set(topics)), MAX_RESOURCES):
        resources = tuple(
            DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=names)
            for topic in some
        )
        answer = cluster.ask(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        for result in answer.results:
            if not result.error_code:  # else the topic was deleted a moment ago
                found[result.resource_name] = {
                    each.name: (each.value, each.config_source == TOPIC_SOURCE) for each in result.configs
                }
    return found


def alteration(kind: int, name: str, values: Mapping[str, str | None]) -> AlterConfigsResource:
    """Set these values; None returns a setting to its default."""
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=each, config_operation=DELETE if value is None else SET, value=value)
            for each, value in values.items()
        ),
    )


def alter_topics(cluster: Cluster, changes: Iterable[AlterConfigsResource]) -> None:
    for some in batches(changes, MAX_RESOURCES):
        request = IncrementalAlterConfigsRequest(resources=tuple(some), validate_only=False)
        _check(cluster.ask(request, IncrementalAlterConfigsResponse))


def alter_broker(cluster: Cluster, broker: int, values: Mapping[str, str | None]) -> None:
    """Settings of a broker go to that broker, as Kafka wants it."""
    request = IncrementalAlterConfigsRequest(resources=(alteration(BROKER, str(broker), values),), validate_only=False)
    _check(cluster.broker(broker).ask(request, IncrementalAlterConfigsResponse))


def _check(answer: IncrementalAlterConfigsResponse) -> None:
    for row in answer.responses:
        if row.error_code:
            problem = f"cannot change settings of {row.resource_name}: {(row.error_message or 'refused').rstrip('.')}"
            raise refused(row.error_code, problem)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
