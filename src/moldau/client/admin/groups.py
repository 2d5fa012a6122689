"""Consumer groups: list, describe and delete them."""

import re
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from moldau.base.ids import TopicPartition
from moldau.client.admin.clients import RETRY_S, Admin, admin_error
from moldau.client.admin.errors import AdminError, GroupNotEmpty, NoSuchGroup, Refused
from moldau.client.admin.target import REQUEST_TIMEOUT_S

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription, MemberDescription

# librdkafka's name of a state → Kafka's. librdkafka has none for the states of a consumer group (KIP-848) that
# assigns or reconciles, so both are shown as one.
STATES = {
    "STABLE": "Stable",
    "EMPTY": "Empty",
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "DEAD": "Dead",
    "UNKNOWN": "Rebalancing",
}
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Rebalancing")
PROTOCOLS = {"CLASSIC": "classic", "CONSUMER": "consumer"}
TRANSIENT = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
WITHOUT_MEMBERS = ("Empty", "Dead")
# moldau-QUERY-SINK-TASK, where QUERY is the id of a Spark query.
CONTROL_GROUP = re.compile(r"moldau-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-.+-(?:\d+|batches)")


@dataclass(frozen=True, slots=True)
class Listing:
    name: str
    protocol: str | None
    state: str


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    client: str
    instance: str | None
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    state: str
    protocol: str | None
    assignor: str | None
    coordinator: tuple[int, str, int]  # id, host, port
    members: tuple[Member, ...]

    def exists(self) -> bool:
        return self.state != "Dead"

    def is_live(self) -> bool:
        return bool(self.members) or self.state not in WITHOUT_MEMBERS

    def owners(self) -> dict[TopicPartition, str]:
        """The member that each partition is assigned to."""
        return {tp: member.id for member in self.members for tp in member.partitions}


def is_control_group(name: str) -> bool:
    """Tell whether an exactly-once sink of Spark keeps its progress in this group (spark/sink/control_offsets.py)."""
    return CONTROL_GROUP.fullmatch(name) is not None


def list_groups(admin: Admin) -> list[Listing]:
    found = admin.wait(admin.client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S))
    for problem in found.errors or ():
        raise admin_error(problem, admin.target)
    return sorted(
        (Listing(one.group_id, _protocol(one.type), _state(one.state)) for one in found.valid or ()),
        key=lambda listing: listing.name,
    )


def describe_groups(admin: Admin, names: list[str]) -> list[Group]:
    """The groups in the order of these names; one that does not exist has the state Dead."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while names:
        futures = admin.client.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S)
        try:
            return [_group(wait_for_group(admin, future, name)) for name, future in futures.items()]
        except Refused as refused:  # a coordinator that is loading, or was found a moment ago
            if refused.name not in TRANSIENT or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)
    return []


def require_group(admin: Admin, name: str) -> Group:
    """The group, which exists."""
    (group,) = describe_groups(admin, [name])
    if not group.exists():
        raise NoSuchGroup(name)
    return group


def delete_groups(admin: Admin, names: list[str]) -> dict[str, AdminError | None]:
    """The outcome for each group: None if it was deleted."""
    outcomes: dict[str, AdminError | None] = {}
    for name, future in admin.client.delete_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            wait_for_group(admin, future, name)
            outcomes[name] = None
        except AdminError as refused:
            outcomes[name] = refused
    return outcomes


def wait_for_group(admin: Admin, future: Any, name: str) -> Any:
    """The result of a request about a group, or its failure."""
    try:
        return admin.wait(future)
    except Refused as refused:
        if refused.name == "GROUP_ID_NOT_FOUND":
            raise NoSuchGroup(name) from refused
        if refused.name == "INVALID_GROUP_ID":
            raise InvalidGroupName(f"{name!r} is not a group's name") from refused
        if refused.name == "NON_EMPTY_GROUP":
            raise GroupNotEmpty(name) from refused
        raise


class InvalidGroupName(AdminError):
    """A name that brokers refuse."""


def _group(found: "ConsumerGroupDescription") -> Group:
    return Group(
        name=found.group_id,
        state=_state(found.state),
        protocol=_protocol(found.type),
        assignor=found.partition_assignor or None,
        coordinator=(found.coordinator.id, found.coordinator.host, found.coordinator.port),
        members=tuple(sorted(map(_member, found.members), key=lambda member: (member.client, member.id))),
    )


def _member(found: "MemberDescription") -> Member:
    partitions = sorted(TopicPartition(one.topic, one.partition) for one in found.assignment.topic_partitions)
    instance = found.group_instance_id or None
    return Member(found.member_id, found.client_id, instance, found.host.lstrip("/"), tuple(partitions))


def _state(state: Enum) -> str:
    return STATES.get(state.name, state.name)


def _protocol(kind: Enum) -> str | None:
    return PROTOCOLS.get(kind.name)
