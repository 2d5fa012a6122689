"""Opens a directory that Apache Kafka wrote: its topics, ids and settings become ours, once, at the first start.

They are read from Kafka's own metadata log. Without one, topics are taken from the directories' names and ids, and
all cleaning of them is switched off: a compacted topic must not lose its records to a default that it never had.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from moldau.base.errors import Refusal
from moldau.broker.controller import Controller
from moldau.log.checkpoints import read_epochs, read_topic_id
from moldau.log.directory import DirectoryRefused, LogDirectory
from moldau.metadata.changes import Batch, Change, ProducerIdsAllocated, TopicCreated
from moldau.metadata.image import ClusterImage, PartitionState
from moldau.metadata.kraft import KraftImage, KraftTopic, image_from_kraft
from moldau.metadata.kraft import adopt as adopt_topic
from moldau.wire.batch import CONTROL, HEADER_SIZE, PREFIX_SIZE, read_header
from moldau.wire.codec import UnservedVersion
from moldau.wire.compression import CorruptRecords
from moldau.wire.messages.kraft import decode_metadata_record
from moldau.wire.primitives import MalformedMessage
from moldau.wire.records import iter_records

log = logging.getLogger("moldau.broker")

METADATA_LOG = "__cluster_metadata-0"
NO_CLEANING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
LARGEST_BATCH = 64 * 1024 * 1024  # of a metadata log; Kafka's own are far smaller


async def adopt(controller: Controller, directories: list[LogDirectory], broker_id: int) -> None:
    """Take over what is found, if this node has no topics of its own yet."""
    if controller.image.topics:
        return
    found = {key: path for directory in directories for key, path in directory.partitions().items()}
    if not found:
        return
    kraft = next((path for each in directories if (path := each.path / METADATA_LOG).is_dir()), None)
    changes = _from_directories(found, broker_id) if kraft is None else _from_metadata_log(kraft, broker_id)
    outcome = await controller.submit(lambda _: Batch(changes))
    if isinstance(outcome, Refusal):
        raise DirectoryRefused(f"taking over the topics found in {directories[0].path} failed: {outcome.message}")


def _from_metadata_log(path: Path, broker_id: int) -> tuple[Change, ...]:
    try:
        kraft = image_from_kraft(_records(path))
    except (CorruptRecords, MalformedMessage, UnservedVersion, ValueError) as problem:
        raise DirectoryRefused(f"Apache Kafka's metadata log {path} cannot be read: {problem}") from None
    log.info("taking over %d topics from Apache Kafka's metadata log, with their settings", len(kraft.topics))
    return (*(adopt_topic(topic, broker_id) for topic in kraft.topics), *_producer_ids(kraft, broker_id))


def _producer_ids(kraft: KraftImage, broker_id: int) -> tuple[Change, ...]:
    if not kraft.next_producer_id:
        return ()
    return (ProducerIdsAllocated(broker_id, kraft.next_producer_id),)


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
        size = header.length + PREFIX_SIZE
        if size < HEADER_SIZE or position + size > len(data):
            return  # the torn end of an unclean stop
        if not header.attributes & CONTROL and header.last_offset >= start:
            for record in iter_records(data[position : position + size], limit=LARGEST_BATCH):
                if record.value is not None and record.offset >= start:
                    decoded = decode_metadata_record(record.value)
                    if decoded is not None:
                        yield decoded
        position += size


def _from_directories(found: dict[tuple[str, int], Path], broker_id: int) -> tuple[Change, ...]:
    topics: dict[str, dict[int, Path]] = {}
    for (topic, index), path in found.items():
        topics.setdefault(topic, {})[index] = path
    log.warning(
        "found %d topics without Apache Kafka's metadata log: their settings are unknown, so all cleaning of them is "
        "switched off (retention.ms=-1, retention.bytes=-1); set them with: moldau topic alter",
        len(topics),
    )
    return tuple(_from_paths(name, paths, broker_id) for name, paths in sorted(topics.items()))


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


def _last_epoch(path: Path) -> int:
    epochs = read_epochs(path / "leader-epoch-checkpoint")
    return epochs[-1][0] if epochs else 0


def unknown_partitions(image: ClusterImage, directories: list[LogDirectory]) -> list[Path]:
    """Partition directories that belong to no topic; they are left alone and named in the log."""
    return [
        path
        for directory in directories
        for (topic, index), path in directory.partitions().items()
        if image.partition(topic, index) is None
    ]
