"""Reassignments of partitions: begin, throttle, watch and cancel them; and leader elections.

Brokers carry a reassignment out by themselves: it goes on when nothing watches it.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.admin.assignment import Replicas
from moldau.client.admin.cluster import Cluster, retry_transient
from moldau.client.admin.configs import TOPIC, alter_broker, alter_topics, alteration, batches, read_topic_configs
from moldau.client.admin.errors import AdminError, InvalidArgument, refused
from moldau.client.admin.layout import Layout, read_ongoing
from moldau.client.admin.scope import HIGHEST_PARTITION, is_number
from moldau.client.admin.target import REQUEST_TIMEOUT_S
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

MAX_PARTITIONS = 500  # in one request
POLL_S = 0.5
PREFERRED, UNCLEAN = 0, 1  # kinds of elections
ELECTION_MS = 10_000
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


class ReassignmentsFailed(AdminError):
    """Some partitions were refused; the others are being reassigned."""

    def __init__(self, failures: list[AdminError]) -> None:
        more = f" ({len(failures)} partitions failed)" if len(failures) > 1 else ""
        super().__init__(f"{failures[0]}{more}")
        self.failures = failures


class ThrottleRemoval(NamedTuple):
    found: bool  # whether there was a throttle
    unreachable: tuple[int, ...] = ()  # brokers that keep the throttled rates in their settings


def reassign(cluster: Cluster, plan: Mapping[TopicPartition, Replicas | None]) -> None:
    """Begin the reassignments of a plan; None cancels an ongoing one."""
    failures: list[AdminError] = []
    for some in batches(sorted(plan), MAX_PARTITIONS):
        topics = tuple(
            ReassignableTopic(
                name=topic,
                partitions=tuple(
                    ReassignablePartition(partition_index=tp.partition, replicas=plan[tp]) for tp in listed
                ),
            )
            for topic, listed in groupby(some, lambda tp: tp.topic)
        )
        failures += _alter(cluster, AlterPartitionReassignmentsRequest(topics=topics))
    if failures:
        raise ReassignmentsFailed(failures)


def _alter(cluster: Cluster, request: AlterPartitionReassignmentsRequest) -> Iterator[AdminError]:
    answer = retry_transient(
        lambda: cluster.ask(request, AlterPartitionReassignmentsResponse), lambda found: found.error_code
    )
    if answer.error_code:
        raise refused(answer.error_code, answer.error_message or "cannot reassign")
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code not in (WireError.NONE, WireError.NO_REASSIGNMENT_IN_PROGRESS):
                tp = TopicPartition(topic.name, each.partition_index)
                yield refused(each.error_code, f"{tp}: {(each.error_message or 'refused').rstrip('.')}")


def begin(cluster: Cluster, layout: Layout, plan: Mapping[TopicPartition, Replicas], rate: int | None) -> None:
    """Throttle, if a rate is given, and reassign. A plan that was refused as a whole leaves no throttle behind."""
    if rate is not None:
        throttle(cluster, layout, plan, rate)
    try:
        reassign(cluster, plan)
    except AdminError:
        if not read_ongoing(cluster):  # nothing was begun
            end_throttle(cluster, layout, {tp.topic for tp in plan})
        raise


def cancel(cluster: Cluster, layout: Layout, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Cancel the ongoing reassignments of these partitions and their throttle. Returns those that were ongoing."""
    moving = sorted(set(partitions) & set(layout.ongoing))
    reassign(cluster, dict.fromkeys(moving))
    end_throttle(cluster, layout, {tp.topic for tp in moving})
    return moving


def watch(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Iterator[int]:
    """How many of these partitions are still being reassigned, whenever that number changes, down to 0."""
    wanted = set(partitions)
    before = -1
    while before:
        left = len(wanted & _still_moving(cluster))
        if left != before:
            yield left
            before = left
        if left:
            time.sleep(POLL_S)


def _still_moving(cluster: Cluster) -> set[TopicPartition]:
    """The partitions that are being reassigned. Brokers may restart meanwhile."""
    until = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            return set(read_ongoing(cluster))
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(POLL_S)


def throttle(cluster: Cluster, layout: Layout, plan: Mapping[TopicPartition, Replicas], rate: int) -> None:
    """Limit the replication of these partitions, and of those that move already, on every broker (KIP-73)."""
    sources = {tp: each.replica_nodes for tp, each in layout.partitions.items()}
    moves = {tp: set(replicas) - set(sources[tp]) for tp, replicas in plan.items()}
    for tp, moving in layout.ongoing.items():
        moves.setdefault(tp, set(moving.adding_replicas))
    changes = []
    for topic, listed in groupby(sorted(moves), lambda tp: tp.topic):
        some = list(listed)
        leaders = ",".join(f"{tp.partition}:{each}" for tp in some for each in sources[tp])
        followers = ",".join(f"{tp.partition}:{each}" for tp in some for each in sorted(moves[tp]))
        changes.append(alteration(TOPIC, topic, {LEADER_REPLICAS: leaders, FOLLOWER_REPLICAS: followers}))
    alter_topics(cluster, changes)
    for broker in sorted(layout.brokers):
        alter_broker(cluster, broker, dict.fromkeys(RATES, str(rate)))


def end_throttle(cluster: Cluster, layout: Layout, topics: Iterable[str]) -> ThrottleRemoval:
    """Remove the throttles of these topics, and if there are any, the rates of the brokers."""
    names = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
    limited = [
        topic
        for topic, settings in read_topic_configs(cluster, topics, names).items()
        if any(own for _, own in settings.values())
    ]
    if not limited:
        return ThrottleRemoval(False)
    alter_topics(cluster, [alteration(TOPIC, topic, dict.fromkeys(names)) for topic in limited])
    unreachable = []
    for broker in sorted(layout.brokers):
        try:
            alter_broker(cluster, broker, dict.fromkeys(RATES))
        except OSError:
            unreachable.append(broker)
    return ThrottleRemoval(True, tuple(unreachable))


def elect_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, unclean: bool
) -> dict[TopicPartition, AdminError | None]:
    """The outcome per partition: None if a leader was elected. Partitions that need no election are left out."""
    outcomes: dict[TopicPartition, AdminError | None] = {}
    for some in batches(sorted(partitions), MAX_PARTITIONS):
        topics = tuple(
            TopicPartitions(topic=topic, partitions=tuple(tp.partition for tp in listed))
            for topic, listed in groupby(some, lambda tp: tp.topic)
        )
        request = ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED, topic_partitions=topics, timeout_ms=ELECTION_MS
        )
        answer = _ask_election(cluster, request)
        for row in answer.replica_election_results:
            for each in row.partition_result:
                if each.error_code != WireError.ELECTION_NOT_NEEDED:
                    reason = (each.error_message or "refused").rstrip(".")
                    outcomes[TopicPartition(row.topic, each.partition_id)] = (
                        refused(each.error_code, reason) if each.error_code else None
                    )
    return outcomes


def _ask_election(cluster: Cluster, request: ElectLeadersRequest) -> ElectLeadersResponse:
    answer = retry_transient(lambda: cluster.ask(request, ElectLeadersResponse), lambda found: found.error_code)
    if answer.error_code:
        raise refused(answer.error_code, "cannot elect leaders")
    return answer


def plan_document(plan: Mapping[TopicPartition, Replicas]) -> dict[str, Any]:
    """A plan in the JSON of kafka-reassign-partitions."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": partitions}


def read_plan(text: str, source: str) -> dict[TopicPartition, Replicas]:
    """A plan in the JSON of kafka-reassign-partitions; `source` names it in errors."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"{source} is not JSON: {error}") from error
    rows = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise InvalidArgument(f'{source} is not a plan, such as {{"version": 1, "partitions": [{{"topic": …}}]}}')
    plan: dict[TopicPartition, Replicas] = {}
    for row in rows:
        tp, replicas = _read_row(source, row)
        if tp in plan:
            raise InvalidArgument(f"{source} has {tp} twice")
        plan[tp] = replicas
    return plan


def _read_row(source: str, row: Any) -> tuple[TopicPartition, Replicas]:
    def whole(value: Any) -> bool:
        return type(value) is int and is_number(str(value), HIGHEST_PARTITION)

    match row:
        case {"topic": str(topic), "partition": partition, "replicas": [_, *_] as replicas, **rest} if whole(partition):
            if all(map(whole, replicas)):
                _check_directories(source, rest.get("log_dirs", ()))
                return TopicPartition(topic, partition), tuple(replicas)
    raise InvalidArgument(
        f"{source} has {json.dumps(row)[:100]}, which is no partition of a plan: "
        "each has a topic, a partition and a list of broker ids as replicas"
    )


def _check_directories(source: str, directories: object) -> None:
    if not isinstance(directories, list | tuple) or any(each != "any" for each in directories):
        raise InvalidArgument(f"{source} names log_dirs; directories are chosen by each broker: write any")
