"""Opener: opens the logs of partitions, in threads. Replaces an unusable log if other replicas have its records."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from moldau.base.ids import TopicPartition
from moldau.log import files
from moldau.log.directory import LogDirectory
from moldau.log.log import Log
from moldau.log.partition_locations import STRAY, rename_stray
from moldau.log.partition_metadata import TopicIdLostError, TopicIdMismatchError
from moldau.log.repair import truncate_before_gap
from moldau.log.segment import CorruptLogError
from moldau.log.settings import LogConfig
from moldau.metadata.elections import others_have_committed
from moldau.metadata.image import PartitionState, Topic
from moldau.replication.disk_full import FullDirectories
from moldau.replication.partition import Partition
from moldau.replication.standing import Standing

logger = logging.getLogger("moldau.replication")


class Opening(NamedTuple):
    """A partition to be opened: all that a thread needs for it."""

    topic: Topic
    state: PartitionState
    config: LogConfig
    directory: LogDirectory
    new: bool  # nothing of it can be on disk

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.state.index)


class Opener:
    """`topics` are those of the newest image, by id."""

    def __init__(
        self,
        node_id: int,
        topics: Mapping[bytes, Topic],
        now: Callable[[], int],
        producer_expiration_ms: int,
        full: FullDirectories,
    ) -> None:
        self.trusted = True  # False: the last writes before this start may be lost, by a power cut
        self.retry_later: set[TopicPartition] = set()  # partitions that wait for space on their disk to be opened
        self._node_id = node_id
        self._topics = topics
        self._full = full
        self.now = now
        self._producer_expiration_ms = producer_expiration_ms

    def open(self, opening: Opening) -> Partition | None:
        """Open a log; in a thread. None if that fails, with the reason in the broker's log."""
        if opening.directory.offline:  # logged when it failed
            return None
        topic, state, name = opening.topic, opening.state, opening.topic_partition
        log_replaced = False
        try:
            try:
                log = self._open_existing(opening)
            except CorruptLogError as problem:
                if not self._others_have_it(opening):
                    alone = ", and no other in-sync replica has its records" if len(state.replicas) > 1 else ""
                    logger.error("Partition %s is offline%s: %s", name, alone, problem)
                    return None
                logger.error("The log of %s is copied again from its leader: %s", name, problem)
                log, log_replaced = self._open_anew(opening, "cannot be used"), True
        except (OSError, CorruptLogError) as problem:
            if isinstance(problem, OSError) and files.is_transient(problem):
                self._full.refused(opening.directory.path, str(name), problem, "offline")
                self.retry_later.add(name)
            else:
                logger.error("Partition %s is offline: %s", name, problem)
            return None
        except Exception:  # a bug of ours with this log must not keep the others from being opened
            logger.exception("Partition %s is offline: opening its log failed", name)
            return None
        lossy = not opening.new and (not self.trusted or log.generation)  # the epoch would write other records again
        standing = Standing(log_replaced=log_replaced, fenced_epoch=state.leader_epoch if lossy else -1)
        return Partition(topic.name, state.index, log, state.leader_epoch, internal=topic.internal, standing=standing)

    def _open_existing(self, opening: Opening) -> Log:
        """Open the existing log. CorruptLogError: it cannot be used. OSError: a retry may succeed."""
        if opening.new:
            return self._open_anew(opening, STRAY)
        try:
            log = self._open_log(opening)
        except (TopicIdMismatchError, TopicIdLostError) as problem:
            logger.warning("%s", problem)
            return self._open_anew(opening, STRAY, forget=isinstance(problem, TopicIdMismatchError))
        except OSError as problem:
            if files.is_transient(problem):
                raise
            raise CorruptLogError(str(problem)) from problem
        missing = log.segments.missing
        if opening.config.compacts:  # compaction leaves gaps
            return log
        if missing and self._others_have_it(opening):
            log.close(clean=False)
            raise CorruptLogError(f"its segments {', '.join(map(str, missing))} are missing")
        if not self.trusted and len(opening.state.replicas) > 1:
            files.remove(truncate_before_gap(log, self.now()))
        return log

    def _open_anew(self, opening: Opening, why: str, *, forget: bool = True) -> Log:
        """Rename the existing directory to a stray, and open an empty log. `forget`: drop its checkpoints too."""
        directory = opening.directory
        rename_stray(directory.path / str(opening.topic_partition), why)
        if forget and not opening.new:
            directory.forget(opening.topic_partition)
        return self._open_log(opening)

    def _others_have_it(self, opening: Opening) -> bool:
        """Whether other replicas have the committed records, by the newest image."""
        topic = self._topics.get(opening.topic.id.bytes, opening.topic)
        return others_have_committed(topic.partitions[opening.state.index], self._node_id)

    def _open_log(self, opening: Opening) -> Log:
        topic, _, config, directory, _ = opening
        key, name = opening.topic_partition, str(opening.topic_partition)
        return Log.open(
            directory.path / name,
            name,
            config,
            clean=directory.clean,
            recovery_point=directory.recovery_points.get(key, 0),
            log_start=directory.log_starts.get(key, 0),
            now=self.now(),
            topic_id=topic.id,
            producer_expiration_ms=self._producer_expiration_ms,
        )

    def open_copy(self, partition: Partition, path: Path, log_start: int, clean: bool) -> Log:
        """The log of a partition that moves here, or is about to."""
        return Log.open(
            path,
            partition.log.name,
            partition.log.config,
            clean=clean,
            log_start=log_start,
            now=self.now(),
            topic_id=partition.log.topic_id,
            producer_expiration_ms=self._producer_expiration_ms,
        )
