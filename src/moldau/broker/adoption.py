"""Adoption of data directories written by Apache Kafka: topics, ids and settings are imported at the first start.

They are read from Kafka's metadata log. Without one, topics are derived from the partition directories, and retention
is switched off for them: a compacted topic must not lose records to a default that it never had.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from uuid import UUID

from moldau.base.errors import Refusal
from moldau.base.ids import Epoch, TopicPartition
from moldau.base.settings import Live, SettingError, shortened
from moldau.broker.settings import BROKER
from moldau.broker.stray_partitions import partitions_in, some
from moldau.groups.settings import GROUP
from moldau.log.checkpoints import LEADER_EPOCHS, MalformedCheckpointError, read_epochs, read_topic_id
from moldau.log.directory import METADATA_LOG, DirectoryRefused, LogDirectory
from moldau.log.settings import checked
from moldau.metadata import features
from moldau.metadata.changes import BrokerConfigured, Change, GroupConfigured, ProducerIdsAllocated, TopicCreated
from moldau.metadata.image import CLUSTER_DEFAULT, PartitionState
from moldau.metadata.kraft import KraftImage, KraftTopic, image_from_kraft
from moldau.metadata.kraft import adopt as adopt_topic
from moldau.wire.batch import CONTROL, HEADER_SIZE, PREFIX_SIZE, read_header
from moldau.wire.codec import UnsupportedVersion
from moldau.wire.compression import CorruptRecords
from moldau.wire.messages.kraft import decode_metadata_record
from moldau.wire.primitives import MalformedMessage
from moldau.wire.records import decode_records

logger = logging.getLogger("moldau.broker")

NO_CLEANING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
LARGEST_BATCH = 64 * 1024 * 1024  # of a metadata log; Kafka's own are far smaller


def adopted(directories: list[LogDirectory], metadata_directory: str | None, broker_id: int) -> tuple[Change, ...]:
    """The changes that import the topics in the log directories, for a node that starts for the first time."""
    found = partitions_in(directories)
    places = [each.path for each in directories] + ([Path(metadata_directory)] if metadata_directory else [])
    kraft = next((path for place in places if (path := place / METADATA_LOG).is_dir()), None)
    if kraft is None:
        return _from_directories(found, broker_id)
    return _from_metadata_log(kraft, broker_id, set(found))


# ── from Kafka's metadata log ──


def _from_metadata_log(path: Path, broker_id: int, found: set[TopicPartition]) -> tuple[Change, ...]:
    try:
        kraft = image_from_kraft(_records(path))
    except (OSError, CorruptRecords, MalformedMessage, UnsupportedVersion, ValueError) as problem:
        raise DirectoryRefused(f"Apache Kafka's metadata log {path} cannot be read: {problem}") from None
    topics = [topic for topic in kraft.topics if _is_here(topic, broker_id, found)]
    logger.info("Importing %d topics and their settings from Apache Kafka's metadata log", len(topics))
    _tell_what_is_elsewhere(kraft.topics, topics, broker_id, found)
    return (
        *(adopt_topic(_with_valid_config(topic), broker_id) for topic in topics),
        *_broker_configs(kraft, broker_id),
        *_group_configs(kraft),
        features.kept(kraft.features),
        *((ProducerIdsAllocated(broker_id, kraft.next_producer_id),) if kraft.next_producer_id else ()),
    )


def _is_here(topic: KraftTopic, broker_id: int, found: set[TopicPartition]) -> bool:
    """Whether this node holds any of the topic. Kafka makes a new partition's directory a moment after its metadata."""
    return any(broker_id in state.replicas or (topic.name, state.index) in found for state in topic.partitions)


def _tell_what_is_elsewhere(
    told: Iterable[KraftTopic], taken: list[KraftTopic], broker_id: int, found: set[TopicPartition]
) -> None:
    elsewhere = {topic.name for topic in told} - {topic.name for topic in taken}
    if elsewhere:
        logger.warning(
            "%d topics have no replica on this node and are not imported: %s", len(elsewhere), some(elsewhere)
        )
    empty = [
        f"{topic.name}-{state.index}"
        for topic in taken
        for state in topic.partitions
        if broker_id not in state.replicas and (topic.name, state.index) not in found
    ]
    if empty:
        logger.warning(
            "%d partitions have their records on other nodes only and start empty: %s", len(empty), some(empty)
        )


def _with_valid_config(topic: KraftTopic) -> KraftTopic:
    config = {}
    for name, value in topic.config.items():
        outcome = checked({name: value})
        if isinstance(outcome, Refusal):
            logger.warning("Topic %s: %s=%s is not imported: %s", topic.name, name, value, outcome.message)
        else:
            config[name] = value
    return KraftTopic(topic.name, topic.id, topic.partitions, config)


def _broker_configs(kraft: KraftImage, broker_id: int) -> Iterator[BrokerConfigured]:
    """Dynamic broker settings, for all brokers and for this one; retention may be among them."""
    for name in (CLUSTER_DEFAULT, str(broker_id)):
        told = kraft.broker_configs.get(name, {})
        config = dict(_valid_for_brokers(told))
        if len(config) < len(told):
            left = some(set(told) - set(config))
            logger.warning("Dynamic broker settings that are unknown, static or invalid are not imported: %s", left)
        if config:
            yield BrokerConfigured(name, config)


def _valid_for_brokers(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in config.items():
        changeable = name in BROKER and BROKER[name].live is not Live.READ_ONLY and not BROKER[name].sensitive
        if changeable and not isinstance(BROKER.parse(name, value), SettingError):
            yield name, value


def _group_configs(kraft: KraftImage) -> Iterator[GroupConfigured]:
    for group, told in kraft.group_configs.items():
        config = {name: value for name, value in told.items() if not isinstance(GROUP.parse(name, value), SettingError)}
        if len(config) < len(told):
            left = some(set(told) - set(config))
            logger.warning(
                "Group %s: settings that are unknown or invalid are not imported: %s", shortened(group), left
            )
        if config:
            yield GroupConfigured(group, config)


def _records(path: Path) -> Iterator[object]:
    """The newest snapshot, and the records of the log behind it."""
    snapshots = sorted(path.glob("*.checkpoint"))
    start = 0
    if snapshots:
        start = int(snapshots[-1].name.partition("-")[0])
        yield from _decoded(snapshots[-1], 0)
    for segment in sorted(path.glob("*.log")):
        yield from _decoded(segment, start)


def _decoded(file: Path, start: int) -> Iterator[object]:
    data = file.read_bytes()
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        end = position + header.length + PREFIX_SIZE
        if end < position + HEADER_SIZE or end > len(data):
            return  # the torn end of an unclean stop
        if not header.attributes & CONTROL and header.last_offset >= start:
            for record in decode_records(data[position:end], limit=LARGEST_BATCH):
                if record.value is not None and record.offset >= start:
                    decoded = decode_metadata_record(record.value)
                    if decoded is not None:
                        yield decoded
        position = end


# ── from the directories alone ──


def _from_directories(found: dict[TopicPartition, Path], broker_id: int) -> tuple[Change, ...]:
    topics: dict[str, dict[int, Path]] = {}
    for (topic, index), path in found.items():
        topics.setdefault(topic, {})[index] = path
    logger.warning(
        "Found %d topics without metadata: their settings are unknown, so retention and compaction are switched "
        "off (cleanup.policy=delete, retention.ms=-1, retention.bytes=-1); set them with: moldau topic alter",
        len(topics),
    )
    try:
        return tuple(_from_paths(name, paths, broker_id) for name, paths in sorted(topics.items()))
    except (OSError, MalformedCheckpointError) as problem:
        raise DirectoryRefused(f"importing the topics of the data directories failed: {problem}") from None


def _from_paths(name: str, paths: dict[int, Path], broker_id: int) -> TopicCreated:
    if sorted(paths) != list(range(len(paths))):
        missing = min(set(range(max(paths) + 1)) - set(paths))
        raise DirectoryRefused(f"topic {name} lacks its partition {missing}: its directory {name}-{missing} is missing")
    ids: set[UUID | None] = {read_topic_id(path) for path in paths.values()}
    topic_id = ids.pop()
    if topic_id is None or ids:
        raise DirectoryRefused(f"the directories of topic {name} do not agree on its id (partition.metadata)")
    states = tuple(
        PartitionState(index, (broker_id,), (broker_id,), broker_id, leader_epoch=_last_epoch(paths[index]))
        for index in range(len(paths))
    )
    return adopt_topic(KraftTopic(name, topic_id, states, NO_CLEANING), broker_id)


def _last_epoch(path: Path) -> Epoch:
    epochs = read_epochs(path / LEADER_EPOCHS)
    return epochs[-1][0] if epochs else 0
