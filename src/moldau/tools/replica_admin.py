"""Where replicas are and where they are going, asked and told over the wire: layout, reassignments, throttles.

Prints nothing but notes of progress, and plans nothing: see replica_plan.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import TypeVar

from moldau.base.errors import WireError
from moldau.tools.common.failure import CommandError, note
from moldau.tools.connect import REQUEST_TIMEOUT_S
from moldau.tools.places import Place
from moldau.tools.replica_plan import Assignment, Racks, Replicas
from moldau.tools.requests import Cluster, await_passing, refusal
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
)

T = TypeVar("T")

PARTITIONS_AT_ONCE = 500
LOOK_AGAIN_S = 0.5
TOPIC, BROKER = 2, 4  # kinds of resources
SET, DELETE = 0, 1
PREFERRED, UNCLEAN = 0, 1  # kinds of elections
ELECTION_MS = 10_000
TOPIC_SETTING = 1  # a value's source: it was set for this topic
LEADERS_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWERS_REPLICAS = "follower.replication.throttled.replicas"
CORDONED, ALL_DIRECTORIES = "cordoned.log.dirs", "*"
UNKNOWN_SETTING = (WireError.INVALID_CONFIG, WireError.INVALID_REQUEST)  # before Kafka 4.3, or its metadata version
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


@dataclass(frozen=True, slots=True)
class Layout:
    """A cluster as it is now."""

    cluster_id: str | None
    controller: int
    brokers: Mapping[int, MetadataResponseBroker]  # those that are there
    partitions: Mapping[Place, MetadataResponsePartition]
    internal: frozenset[str]  # names of topics
    ongoing: Mapping[Place, OngoingPartitionReassignment]
    cordoned: frozenset[int] = frozenset()  # brokers that get nothing new, if that was asked for

    @property
    def racks(self) -> Racks:
        """Of every broker that takes replicas."""
        return {each.node_id: each.rack for each in self.brokers.values() if each.node_id not in self.cordoned}

    @property
    def missing(self) -> set[int]:
        """Brokers that have replicas, and are not there."""
        return {broker for each in self.partitions.values() for broker in each.replica_nodes} - set(self.brokers)

    def targets(self) -> Assignment:
        """The replicas of every partition when all that is under way is done."""
        return {place: self.target(place) for place in self.partitions}

    def target(self, place: Place) -> Replicas:
        moving = self.ongoing.get(place)
        leaving = moving.removing_replicas if moving else ()
        return tuple(each for each in self.partitions[place].replica_nodes if each not in leaving)


def read_layout(cluster: Cluster) -> Layout:
    answer = cluster.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
    return Layout(
        answer.cluster_id,
        answer.controller_id,
        {row.node_id: row for row in answer.brokers},
        {Place(row.name or "", each.partition_index): each for row in answer.topics for each in row.partitions},
        frozenset(row.name or "" for row in answer.topics if row.is_internal),
        read_ongoing(cluster),
    )


def with_cordoned(cluster: Cluster, layout: Layout) -> Layout:
    """With those brokers that take no new replicas (KIP-1066). Each is asked for itself, as Kafka wants it."""
    found = set()
    for broker in sorted(layout.brokers):
        name = str(broker)
        asked = DescribeConfigsResource(resource_type=BROKER, resource_name=name, configuration_keys=(CORDONED,))
        try:
            answer = cluster.broker(broker).ask(DescribeConfigsRequest(resources=(asked,)), DescribeConfigsResponse)
        except OSError:
            continue  # it went a moment ago
        if any(each.value == ALL_DIRECTORIES for result in answer.results for each in result.configs):
            found.add(broker)
    return replace(layout, cordoned=frozenset(found))


def cordon(cluster: Cluster, broker: int, *, cordoned: bool) -> bool:
    """From now on a broker takes no new replicas, or takes them again. Whether the brokers know such a thing."""
    change = _setting(BROKER, str(broker), {CORDONED: ALL_DIRECTORIES if cordoned else None})
    request = IncrementalAlterConfigsRequest(resources=(change,), validate_only=False)
    (row,) = cluster.broker(broker).ask(request, IncrementalAlterConfigsResponse).responses
    if row.error_code and row.error_code not in UNKNOWN_SETTING:
        raise refusal(row.error_code, f"cannot cordon broker {broker}: {(row.error_message or 'refused').rstrip('.')}")
    return not row.error_code


def read_ongoing(cluster: Cluster) -> dict[Place, OngoingPartitionReassignment]:
    """Every partition that is being reassigned."""
    answer = await_passing(
        lambda: cluster.ask(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse),
        lambda found: found.error_code,
    )
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message or "cannot list reassignments")
    return {Place(row.name, each.partition_index): each for row in answer.topics for each in row.partitions}


def reassign(cluster: Cluster, plan: Mapping[Place, Replicas | None]) -> None:
    """Begins it; None cancels what is under way. Fails with the first refusal, when the rest is begun all the same."""
    failures: list[CommandError] = []
    for some in _batches(sorted(plan), PARTITIONS_AT_ONCE):
        topics = tuple(
            ReassignableTopic(
                name=topic,
                partitions=tuple(
                    ReassignablePartition(partition_index=place.partition, replicas=plan[place]) for place in places
                ),
            )
            for topic, places in groupby(some, lambda place: place.topic)
        )
        failures += _alter(cluster, AlterPartitionReassignmentsRequest(topics=topics))
    if failures:
        more = f" ({len(failures)} partitions failed)" if len(failures) > 1 else ""
        raise CommandError(f"{failures[0]}{more}")


def _alter(cluster: Cluster, request: AlterPartitionReassignmentsRequest) -> Iterator[CommandError]:
    answer = await_passing(
        lambda: cluster.ask(request, AlterPartitionReassignmentsResponse), lambda found: found.error_code
    )
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message or "cannot reassign")
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code not in (WireError.NONE, WireError.NO_REASSIGNMENT_IN_PROGRESS):
                place = Place(topic.name, each.partition_index)
                yield refusal(each.error_code, f"{place}: {(each.error_message or 'refused').rstrip('.')}")


def await_done(cluster: Cluster, places: Iterable[Place]) -> None:
    """Until none of these is being reassigned, with notes of how far it is."""
    wanted = set(places)
    told = -1
    while True:
        left = len(wanted & _still_moving(cluster))
        if left != told:
            note(f"{len(wanted) - left} of {len(wanted)} partitions are where they should be.")
            told = left
        if not left:
            return
        time.sleep(LOOK_AGAIN_S)


def _still_moving(cluster: Cluster) -> set[Place]:
    """Brokers may end and come back while somebody watches."""
    until = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            return set(read_ongoing(cluster))
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(LOOK_AGAIN_S)


def elect_leaders(cluster: Cluster, places: Iterable[Place], *, unclean: bool) -> dict[Place, CommandError | None]:
    """Those that got a leader now (None), and those that could not. Whoever leads already as asked is left out."""
    outcomes: dict[Place, CommandError | None] = {}
    for some in _batches(sorted(places), PARTITIONS_AT_ONCE):
        topics = tuple(
            TopicPartitions(topic=topic, partitions=tuple(place.partition for place in of_topic))
            for topic, of_topic in groupby(some, lambda place: place.topic)
        )
        request = ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED, topic_partitions=topics, timeout_ms=ELECTION_MS
        )
        answer = _ask_election(cluster, request)
        for row in answer.replica_election_results:
            for each in row.partition_result:
                if each.error_code != WireError.ELECTION_NOT_NEEDED:
                    said = (each.error_message or "refused").rstrip(".")
                    outcomes[Place(row.topic, each.partition_id)] = (
                        refusal(each.error_code, said) if each.error_code else None
                    )
    return outcomes


def _ask_election(cluster: Cluster, request: ElectLeadersRequest) -> ElectLeadersResponse:
    answer = await_passing(lambda: cluster.ask(request, ElectLeadersResponse), lambda found: found.error_code)
    if answer.error_code:
        raise refusal(answer.error_code, "cannot elect leaders")
    return answer


def throttle(cluster: Cluster, layout: Layout, plan: Mapping[Place, Replicas], rate: int) -> None:
    """Limits what moving these partitions, and those that move already, costs every broker (KIP-73)."""
    sources = {place: each.replica_nodes for place, each in layout.partitions.items()}
    moves = {place: set(replicas) - set(sources[place]) for place, replicas in plan.items()}
    for place, moving in layout.ongoing.items():
        moves.setdefault(place, set(moving.adding_replicas))
    changes: list[AlterConfigsResource] = []
    for topic, places in groupby(sorted(moves), lambda place: place.topic):
        some = list(places)
        leaders = ",".join(f"{place.partition}:{each}" for place in some for each in sources[place])
        followers = ",".join(f"{place.partition}:{each}" for place in some for each in sorted(moves[place]))
        changes.append(_setting(TOPIC, topic, {LEADERS_REPLICAS: leaders, FOLLOWERS_REPLICAS: followers}))
    _configure_topics(cluster, changes)
    for broker in sorted(layout.brokers):
        _configure_broker(cluster, broker, dict.fromkeys(RATES, str(rate)))


def end_throttle(cluster: Cluster, layout: Layout, topics: Iterable[str]) -> bool:
    """Takes away the limits of these topics, if there are any, and of the brokers; returns whether there were any."""
    names = (LEADERS_REPLICAS, FOLLOWERS_REPLICAS)
    limited = [
        topic
        for topic, settings in read_topic_settings(cluster, topics, names).items()
        if any(own for _, own in settings.values())
    ]
    if not limited:
        return False
    _configure_topics(cluster, [_setting(TOPIC, topic, dict.fromkeys(names)) for topic in limited])
    for broker in sorted(layout.brokers):
        try:
            _configure_broker(cluster, broker, dict.fromkeys(RATES))
        except OSError:
            note(f"Broker {broker} is gone, and keeps the throttled rates in its settings: {', '.join(RATES)}")
    return True


def read_topic_settings(
    cluster: Cluster, topics: Iterable[str], names: tuple[str, ...]
) -> dict[str, dict[str, tuple[str | None, bool]]]:
    """For each topic the values of these settings, and whether they were set for this topic itself."""
    found: dict[str, dict[str, tuple[str | None, bool]]] = {}
    for some in _batches(sorted(set(topics)), PARTITIONS_AT_ONCE):
        resources = tuple(
            DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=names)
            for topic in some
        )
        answer = cluster.ask(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        for result in answer.results:
            if not result.error_code:  # else the topic was deleted a moment ago
                found[result.resource_name] = {
                    each.name: (each.value, each.config_source == TOPIC_SETTING) for each in result.configs
                }
    return found


def _setting(kind: int, name: str, values: Mapping[str, str | None]) -> AlterConfigsResource:
    """None takes a setting away."""
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=each, config_operation=DELETE if value is None else SET, value=value)
            for each, value in values.items()
        ),
    )


def _configure_topics(cluster: Cluster, changes: list[AlterConfigsResource]) -> None:
    for some in _batches(changes, PARTITIONS_AT_ONCE):
        request = IncrementalAlterConfigsRequest(resources=tuple(some), validate_only=False)
        _check(cluster.ask(request, IncrementalAlterConfigsResponse))


def _configure_broker(cluster: Cluster, broker: int, values: Mapping[str, str | None]) -> None:
    """Settings of a broker are told to itself, as Kafka wants it."""
    change = _setting(BROKER, str(broker), values)
    request = IncrementalAlterConfigsRequest(resources=(change,), validate_only=False)
    _check(cluster.broker(broker).ask(request, IncrementalAlterConfigsResponse))


def _check(answer: IncrementalAlterConfigsResponse) -> None:
    for row in answer.responses:
        if row.error_code:
            what = f"cannot set the throttle of {row.resource_name}: {(row.error_message or 'refused').rstrip('.')}"
            raise refusal(row.error_code, what)


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
