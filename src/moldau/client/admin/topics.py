"""Topics: create, list, describe, alter and delete them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.base.ids import Offset, TopicPartition
from moldau.client.admin.clients import Admin, admin_error
from moldau.client.admin.errors import AdminError, NoSuchPartition
from moldau.client.admin.scope import Scope
from moldau.client.admin.target import REQUEST_TIMEOUT_S

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicDescription

URL_SAFE = str.maketrans("+/", "-_")  # librdkafka prints ids in plain base64, Kafka in the kind that URLs take


@dataclass(frozen=True, slots=True)
class Partition:
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: str
    internal: bool
    partitions: tuple[Partition, ...]

    @property
    def replication(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)


Bounds = tuple[Offset | None, Offset | None]  # log start offset and next offset; None without a leader


def create_topic(
    admin: Admin,
    name: str,
    *,
    partitions: int | None = None,
    replication: int | None = None,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """Create a topic; None stands for the broker's default."""
    from confluent_kafka.admin import NewTopic

    topic = NewTopic(
        name, num_partitions=partitions or -1, replication_factor=replication or -1, config=dict(configs or {})
    )
    futures = admin.client.create_topics([topic], validate_only=validate_only, request_timeout=REQUEST_TIMEOUT_S)
    admin.wait(futures[name], topic=name)


def list_topics(admin: Admin) -> list[str]:
    from confluent_kafka import KafkaException

    try:
        return sorted(admin.client.list_topics(timeout=REQUEST_TIMEOUT_S).topics)
    except KafkaException as error:
        raise admin_error(error, admin.target) from error


def describe_topics(admin: Admin, names: Sequence[str]) -> list[Topic]:
    """The topics of these names. Unlike a Metadata request this never creates those that are missing."""
    from confluent_kafka import TopicCollection

    wanted = list(dict.fromkeys(names))
    if not wanted:
        return []
    futures = admin.client.describe_topics(TopicCollection(wanted), request_timeout=REQUEST_TIMEOUT_S)
    return [_topic(admin.wait(futures[name], topic=name)) for name in wanted]


def _topic(found: "TopicDescription") -> Topic:
    partitions = tuple(
        Partition(
            one.id,
            None if one.leader is None else one.leader.id,
            tuple(node.id for node in one.replicas),
            tuple(node.id for node in one.isr),
        )
        for one in found.partitions
    )
    return Topic(found.name, str(found.topic_id).translate(URL_SAFE), found.is_internal, partitions)


def existing_partitions(admin: Admin, scope: Scope) -> list[TopicPartition]:
    """The partitions that a scope means, all of which exist."""
    (topic,) = describe_topics(admin, [scope.topic])
    present = sorted(row.partition for row in topic.partitions)
    for partition in scope.partitions or ():
        if partition not in present:
            raise NoSuchPartition(scope.topic, partition, len(present))
    return [TopicPartition(scope.topic, partition) for partition in scope.partitions or present]


def read_bounds(admin: Admin, topics: Sequence[Topic]) -> dict[TopicPartition, Bounds]:
    """Log start offset and next offset of every partition that has a leader."""
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import OffsetSpec

    led = [
        KafkaPartition(topic.name, one.partition)
        for topic in topics
        for one in topic.partitions
        if one.leader is not None
    ]
    if not led:
        return {}
    earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    begin = admin.client.list_offsets(dict.fromkeys(led, earliest), request_timeout=REQUEST_TIMEOUT_S)
    end = admin.client.list_offsets(dict.fromkeys(led, latest), request_timeout=REQUEST_TIMEOUT_S)
    return {
        TopicPartition(one.topic, one.partition): (
            admin.wait(begin[one], topic=one.topic).offset,
            admin.wait(end[one], topic=one.topic).offset,
        )
        for one in led
    }


def changed_configs(admin: Admin, names: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """For each topic the settings that are not defaults; None is a value that the broker hides."""
    from confluent_kafka.admin import ConfigResource, ConfigSource

    default = ConfigSource.DEFAULT_CONFIG.value
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    futures = admin.client.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S) if resources else {}
    changed: dict[str, dict[str, str | None]] = {}
    for resource, future in futures.items():
        entries = admin.wait(future, topic=resource.name)
        changed[resource.name] = {
            name: entry.value for name, entry in sorted(entries.items()) if _source_number(entry.source) != default
        }
    return changed


def _source_number(source: Any) -> int:
    # librdkafka hands the source over as an enum member in some versions and as a number in others.
    return int(getattr(source, "value", source))


def add_partitions(admin: Admin, name: str, total: int) -> None:
    from confluent_kafka.admin import NewPartitions

    future = admin.client.create_partitions([NewPartitions(name, total)], request_timeout=REQUEST_TIMEOUT_S)[name]
    admin.wait(future, topic=name)


def alter_configs(admin: Admin, name: str, changes: Mapping[str, str | None]) -> None:
    """Set these settings of a topic; None returns a setting to its default."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entries = [
        ConfigEntry(
            key,
            value if value is not None else "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in changes.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
    future = admin.client.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
    admin.wait(future, topic=name)


def delete_topics(admin: Admin, names: Sequence[str]) -> dict[str, AdminError | None]:
    """The outcome for each topic: None if it was deleted."""
    outcomes: dict[str, AdminError | None] = {}
    for name, future in admin.client.delete_topics(list(names), request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            admin.wait(future, topic=name)
            outcomes[name] = None
        except AdminError as refused:
            outcomes[name] = refused
    return outcomes
