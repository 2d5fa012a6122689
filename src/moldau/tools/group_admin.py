"""What brokers know of consumer groups, asked through librdkafka: members, committed offsets, lag. Prints nothing."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from moldau.tools.common.failure import CommandError
from moldau.tools.connect import REQUEST_TIMEOUT_S, Target, await_result, build_consumer, failure
from moldau.tools.places import Place

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, MemberDescription

# librdkafka's name of a state → Kafka's. librdkafka does not know those of a consumer group (KIP-848) that assigns or
# reconciles, so both are shown as one.
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
WITHOUT_MEMBERS = ("Empty", "Dead")
GONE = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
NO_OFFSET = -1


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
    places: tuple[Place, ...]


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

    def owners(self) -> dict[Place, str]:
        return {place: member.id for member in self.members for place in member.places}


def list_groups(admin: "AdminClient", target: Target) -> list[Listing]:
    found = await_result(admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), target)
    for problem in found.errors or ():
        raise failure(problem, target)
    return sorted(
        (Listing(one.group_id, _protocol(one.type), _state(one.state)) for one in found.valid or ()),
        key=lambda listing: listing.name,
    )


def describe_groups(admin: "AdminClient", target: Target, names: list[str]) -> list[Group]:
    """The groups in the order of these names; one that does not exist has the state Dead."""
    futures = admin.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S) if names else {}
    return [_group(await_group(future, target, name)) for name, future in futures.items()]


def require_group(admin: "AdminClient", target: Target, name: str) -> Group:
    (group,) = describe_groups(admin, target, [name])
    if not group.exists():
        raise no_such_group(name)
    return group


def no_such_group(name: str) -> CommandError:
    return CommandError(f"there is no group {name!r}", remedy="See what is there with: moldau group list")


def await_group(future: Any, target: Target, name: str) -> Any:
    """The result of an admin request about a group, or its failure in words."""
    from confluent_kafka import KafkaException

    try:
        return await_result(future, target)
    except CommandError as refused:
        cause = refused.__cause__
        code = cause.args[0].name() if isinstance(cause, KafkaException) else ""
        if code == "GROUP_ID_NOT_FOUND":
            raise no_such_group(name) from cause
        if code == "INVALID_GROUP_ID":
            raise CommandError(f"{name!r} is not a group's name") from cause
        if code == "NON_EMPTY_GROUP":
            raise still_live(name) from cause
        raise


def still_live(name: str, members: int | None = None, state: str = "") -> CommandError:
    count = "live members" if members is None else f"{members} live member{'' if members == 1 else 's'}"
    shown = f" (state {state})" if state else ""
    return CommandError(
        f"group {name!r} has {count}{shown}",
        remedy=f"Stop its consumers first; see them with: moldau group describe {name}",
    )


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
    places = sorted(Place(one.topic, one.partition) for one in found.assignment.topic_partitions)
    instance = found.group_instance_id or None
    return Member(found.member_id, found.client_id, instance, found.host.lstrip("/"), tuple(places))


def _state(state: Enum) -> str:
    return STATES.get(state.name, state.name)


def _protocol(kind: Enum) -> str | None:
    return PROTOCOLS.get(kind.name)


def read_committed(admin: "AdminClient", target: Target, name: str) -> dict[Place, int]:
    """What the group has committed, partition by partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(name)]
    future = admin.list_consumer_group_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)[name]
    found = await_group(future, target, name).topic_partitions or ()
    for one in found:
        if one.error is not None:
            raise failure(one.error, target, topic=one.topic)
    return {Place(one.topic, one.partition): one.offset for one in sorted(found, key=_order) if one.offset >= 0}


def _order(place: Any) -> tuple[str, int]:
    return place.topic, place.partition


def write_committed(
    admin: "AdminClient", target: Target, name: str, offsets: Mapping[Place, int]
) -> dict[Place, CommandError]:
    """Commits for a group without members. Returns what was refused; the rest is done."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    asked = [TopicPartition(place.topic, place.partition, offset) for place, offset in offsets.items()]
    request = [ConsumerGroupTopicPartitions(name, asked)]
    future = admin.alter_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[name]
    refused = {}
    for one in await_group(future, target, name).topic_partitions or ():
        if one.error is not None:
            # A member that joined after we looked: the group's own commits come with its id, and ours has none.
            live = one.error.name() in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP")
            place = Place(one.topic, one.partition)
            refused[place] = still_live(name) if live else failure(one.error, target, topic=one.topic)
    return refused


def read_offsets(
    admin: "AdminClient", target: Target, places: Iterable[Place], at: Literal["earliest", "latest"] | int
) -> dict[Place, int | None]:
    """First or next offset of each partition, or that of the first record from a time on.

    None for a partition that is gone, and for a time after its last record.
    """
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    makers: dict[Any, Any] = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}
    spec = makers[at]() if at in makers else OffsetSpec.for_timestamp(int(at))
    asked = {TopicPartition(place.topic, place.partition): spec for place in places}
    futures = admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S) if asked else {}
    offsets: dict[Place, int | None] = {}
    for one, future in futures.items():
        try:
            offset = await_result(future, target, topic=one.topic).offset
        except CommandError as refused:
            cause = refused.__cause__
            if not isinstance(cause, KafkaException) or cause.args[0].name() not in GONE:
                raise
            offset = NO_OFFSET
        offsets[Place(one.topic, one.partition)] = offset if offset > NO_OFFSET else None
    return offsets


def build_age_reader(target: Target) -> "Consumer":
    """A consumer for `read_ages`: without a group, and in no hurry to fetch more than it was asked for."""
    return build_consumer(
        target,
        **{
            "auto.offset.reset": "earliest",  # what was committed may have been deleted meanwhile
            "fetch.message.max.bytes": 1,  # the broker sends one whole batch all the same
            "queued.min.messages": 1,
        },
    )


def read_ages(consumer: "Consumer", offsets: Mapping[Place, int], now_ms: int) -> dict[Place, float]:
    """For how many seconds the first record from an offset on has been there; 0 where there is none.

    Kafka has no request for it, so one batch of each partition is read. A partition that does not answer, or whose
    record has no timestamp, is left out.
    """
    from confluent_kafka import TopicPartition

    ages: dict[Place, float] = {}
    waiting = set(offsets)
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    consumer.assign([TopicPartition(place.topic, place.partition, offset) for place, offset in offsets.items()])
    while waiting and time.monotonic() < deadline:
        for message in consumer.consume(len(waiting), 0.1):
            _take_age(message, now_ms, waiting, ages)
    return ages


def _take_age(message: "Message", now_ms: int, waiting: set[Place], ages: dict[Place, float]) -> None:
    error, topic, partition = message.error(), message.topic(), message.partition()
    if topic is None or partition is None or Place(topic, partition) not in waiting:
        return
    place = Place(topic, partition)
    if error is None:
        timestamp_ms = message.timestamp()[1]
        if timestamp_ms > 0:
            ages[place] = max(0, now_ms - timestamp_ms) / 1000
    elif error.name() == "_PARTITION_EOF":  # markers of transactions count as lag, and are no records
        ages[place] = 0.0
    elif error.retriable():
        return
    waiting.discard(place)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group has come in a partition; what is not known, or not there, is None."""

    place: Place
    committed: int | None
    end: int | None
    lag: int | None
    lag_seconds: float | None
    owner: str | None


def read_progress(admin: "AdminClient", consumer: "Consumer", target: Target, group: Group) -> list[Progress]:
    """All partitions that the group has committed or owns."""
    committed = read_committed(admin, target, group.name)
    owners = group.owners()
    places = sorted({*committed, *owners})
    ends = read_offsets(admin, target, places, "latest")
    lags = {place: lag_of(committed.get(place), ends.get(place)) for place in places}
    now_ms = int(time.time() * 1000)
    ages = read_ages(consumer, {place: committed[place] for place in places if lags[place]}, now_ms)
    return [
        Progress(
            place,
            committed.get(place),
            ends.get(place),
            lags[place],
            0.0 if lags[place] == 0 else ages.get(place),
            owners.get(place),
        )
        for place in places
    ]


def lag_of(committed: int | None, end: int | None) -> int | None:
    return None if committed is None or end is None else max(0, end - committed)
