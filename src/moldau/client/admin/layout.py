"""Layout of a cluster: its brokers, the replicas of every partition, ongoing reassignments and cordoned brokers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.admin.assignment import (
    Assignment,
    Racks,
    Replicas,
    plan_decommission,
    plan_move,
    plan_rebalance,
)
from moldau.client.admin.cluster import Cluster, retry_transient
from moldau.client.admin.configs import BROKER, alteration
from moldau.client.admin.errors import BrokerCordoned, NoSuchBroker, NoSuchPartition, NoSuchTopic, refused
from moldau.client.admin.scope import Scope
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from moldau.wire.messages.metadata import MetadataResponseBroker, MetadataResponsePartition

CORDONED, ALL_DIRECTORIES = "cordoned.log.dirs", "*"
UNKNOWN_SETTING = (WireError.INVALID_CONFIG, WireError.INVALID_REQUEST)  # before Kafka 4.3, or its metadata version


@dataclass(frozen=True, slots=True)
class Layout:
    """A cluster as it is now."""

    cluster_id: str | None
    controller: int
    brokers: Mapping[int, MetadataResponseBroker]  # those that are alive
    partitions: Mapping[TopicPartition, MetadataResponsePartition]
    internal: frozenset[str]  # names of topics
    ongoing: Mapping[TopicPartition, OngoingPartitionReassignment]
    cordoned: frozenset[int] = frozenset()  # brokers that take no new replicas, if that was asked for

    @property
    def racks(self) -> Racks:
        """Of every broker that takes replicas."""
        return {each.node_id: each.rack for each in self.brokers.values() if each.node_id not in self.cordoned}

    @property
    def missing(self) -> set[int]:
        """Brokers that have replicas and are not alive."""
        return {broker for each in self.partitions.values() for broker in each.replica_nodes} - set(self.brokers)

    @property
    def topics(self) -> set[str]:
        return {tp.topic for tp in self.partitions}

    def targets(self) -> Assignment:
        """The replicas of every partition once all ongoing reassignments are done."""
        return {tp: self.target(tp) for tp in self.partitions}

    def target(self, tp: TopicPartition) -> Replicas:
        moving = self.ongoing.get(tp)
        leaving = moving.removing_replicas if moving else ()
        return tuple(each for each in self.partitions[tp].replica_nodes if each not in leaving)

    def find(self, scopes: Sequence[Scope]) -> set[TopicPartition]:
        """The partitions that the scopes name; all if there are none."""
        found: set[TopicPartition] = set()
        for topic, partitions in scopes:
            present = {tp for tp in self.partitions if tp.topic == topic}
            if not present:
                raise NoSuchTopic(topic)
            wanted = present if partitions is None else {TopicPartition(topic, each) for each in partitions}
            if wanted - present:
                raise NoSuchPartition(topic, min(wanted - present).partition, len(present))
            found |= wanted
        return found if scopes else set(self.partitions)

    def check_brokers(self, ids: Iterable[int]) -> None:
        """Raise unless all of these can take replicas."""
        for broker in ids:
            if broker not in self.brokers:
                raise NoSuchBroker(broker, sorted(self.brokers))
            if broker in self.cordoned:
                raise BrokerCordoned(broker)


def read_layout(cluster: Cluster) -> Layout:
    answer = cluster.metadata()
    return Layout(
        answer.cluster_id,
        answer.controller_id,
        {row.node_id: row for row in answer.brokers},
        {
            TopicPartition(row.name or "", each.partition_index): each
            for row in answer.topics
            for each in row.partitions
        },
        frozenset(row.name or "" for row in answer.topics if row.is_internal),
        read_ongoing(cluster),
    )


def read_ongoing(cluster: Cluster) -> dict[TopicPartition, OngoingPartitionReassignment]:
    """Every partition that is being reassigned."""
    answer = retry_transient(
        lambda: cluster.ask(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse),
        lambda found: found.error_code,
    )
    if answer.error_code:
        raise refused(answer.error_code, answer.error_message or "cannot list reassignments")
    return {TopicPartition(row.name, each.partition_index): each for row in answer.topics for each in row.partitions}


def with_cordoned(cluster: Cluster, layout: Layout) -> Layout:
    """The layout with the brokers that take no new replicas (KIP-1066). Kafka wants each to be asked for itself."""
    found = set()
    for broker in sorted(layout.brokers):
        resource = DescribeConfigsResource(
            resource_type=BROKER, resource_name=str(broker), configuration_keys=(CORDONED,)
        )
        try:
            answer = cluster.broker(broker).ask(DescribeConfigsRequest(resources=(resource,)), DescribeConfigsResponse)
        except OSError:
            continue  # stopped a moment ago
        if any(each.value == ALL_DIRECTORIES for result in answer.results for each in result.configs):
            found.add(broker)
    return replace(layout, cordoned=frozenset(found))


def cordon(cluster: Cluster, broker: int, *, cordoned: bool) -> bool:
    """Cordon a broker or take the cordon away. Returns False if the brokers do not know the setting."""
    change = alteration(BROKER, str(broker), {CORDONED: ALL_DIRECTORIES if cordoned else None})
    request = IncrementalAlterConfigsRequest(resources=(change,), validate_only=False)
    (row,) = cluster.broker(broker).ask(request, IncrementalAlterConfigsResponse).responses
    if row.error_code and row.error_code not in UNKNOWN_SETTING:
        raise refused(row.error_code, f"cannot cordon broker {broker}: {(row.error_message or 'refused').rstrip('.')}")
    return not row.error_code


def plan_spread(
    layout: Layout, partitions: set[TopicPartition], allowed: list[int] | None
) -> dict[TopicPartition, Replicas]:
    """Spread partitions evenly over these brokers, or all; with as few moves as possible."""
    layout.check_brokers(allowed or ())
    wanted = allowed if allowed is not None else sorted(layout.racks)
    now = layout.targets()
    # Replicas on brokers that are down stay there, unless brokers were named.
    moved = plan_move(layout.racks, now, partitions, wanted) if allowed is not None else {}
    spread = plan_rebalance(layout.racks, {**now, **moved}, partitions, wanted)
    return {tp: replicas for tp, replicas in sorted({**moved, **spread}.items()) if replicas != now[tp]}


def check_plan(layout: Layout, given: Mapping[TopicPartition, Replicas]) -> dict[TopicPartition, Replicas]:
    """The part of a plan that is still to be done; all that it names must exist."""
    for tp, replicas in given.items():
        if tp not in layout.partitions:
            raise NoSuchPartition(tp.topic, tp.partition)
        layout.check_brokers(set(replicas) - set(layout.partitions[tp].replica_nodes))
    return {tp: replicas for tp, replicas in sorted(given.items()) if replicas != layout.target(tp)}


def plan_to_empty(cluster: Cluster, broker: int) -> tuple[Layout, dict[TopicPartition, Replicas]]:
    """The layout, and a plan that leaves this broker without replicas."""
    layout = with_cordoned(cluster, read_layout(cluster))
    if broker not in set(layout.brokers) | layout.missing:
        raise NoSuchBroker(broker, sorted(layout.brokers))
    return layout, plan_decommission(layout.racks, layout.targets(), broker)
