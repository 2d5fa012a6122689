"""Opens the logs of partitions, in threads: what is there, or an empty one if that is of no use and others have it."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from moldau.log import files
from moldau.log.claim import TopicIdLostError, TopicIdMismatchError
from moldau.log.directory import LogDirectory
from moldau.log.homes import STRAY, put_aside
from moldau.log.log import Log
from moldau.log.repair import cut_before_gap
from moldau.log.segment import CorruptLogError
from moldau.log.settings import LogConfig
from moldau.metadata.elections import had_elsewhere
from moldau.metadata.image import PartitionState, Topic
from moldau.replication.partition import Partition

logger = logging.getLogger("moldau.replication")

Key = tuple[str, int]  # topic and index


class Opening(NamedTuple):
    """A partition to be opened: all that a thread needs for it."""

    topic: Topic
    state: PartitionState
    config: LogConfig
    directory: LogDirectory
    new: bool  # nothing of it can be on disk


class Opener:
    """`topics` are those of the newest image, by id."""

    def __init__(
        self, node_id: int, topics: Mapping[bytes, Topic], now: Callable[[], int], producer_expiration_ms: int
    ) -> None:
        self.trusted = True  # False: what was written before this start may be lost, by a power cut
        self.put_off: set[Key] = set()  # partitions that could not be opened and wait for room on their disk
        self._node_id = node_id
        self._topics = topics
        self._now = now
        self._producer_expiration_ms = producer_expiration_ms

    def open(self, opening: Opening) -> Partition | None:
        """In a thread. A log that cannot be opened leaves its partition out, and the reason in the broker's log."""
        if opening.directory.offline:  # which was told when it failed
            return None
        topic, state = opening.topic, opening.state
        name = f"{topic.name}-{state.index}"
        hollow = False
        try:
            try:
                log = self._open_what_is_there(opening)
            except CorruptLogError as problem:
                if not self._had_elsewhere(opening):
                    alone = ", and no other replica is in sync with it" if len(state.replicas) > 1 else ""
                    logger.error("partition %s is offline%s: %s", name, alone, problem)
                    return None
                logger.error("partition %s is copied anew from its leader: %s", name, problem)
                log, hollow = self._open_anew(opening, "cannot be used"), True
        except (OSError, CorruptLogError) as problem:
            logger.error("partition %s is offline: %s", name, problem)
            if isinstance(problem, OSError) and files.passing(problem):
                self.put_off.add((topic.name, state.index))
            return None
        except Exception:  # a bug of ours with this log must not keep the others from being opened
            logger.exception("partition %s is offline", name)
            return None
        partition = Partition(topic.name, state.index, log, state.leader_epoch, internal=topic.internal)
        partition.hollow = hollow
        return partition

    def _open_what_is_there(self, opening: Opening) -> Log:
        """CorruptLogError: the log cannot be used, whatever is wrong with it. OSError: perhaps later."""
        if opening.new:
            return self._open_anew(opening, STRAY)
        try:
            log = self._open_log(opening)
        except (TopicIdMismatchError, TopicIdLostError) as problem:
            logger.warning("%s", problem)
            return self._open_anew(opening, STRAY, forget=isinstance(problem, TopicIdMismatchError))
        except OSError as problem:
            if files.passing(problem):
                raise
            raise CorruptLogError(str(problem)) from problem
        missing = log.segments.missing
        if opening.config.compacts:  # it has gaps of its own
            return log
        if missing and self._had_elsewhere(opening):
            log.close(clean=False)
            raise CorruptLogError(f"its segments {', '.join(map(str, missing))} are missing")
        if not self.trusted and len(opening.state.replicas) > 1:
            files.remove(cut_before_gap(log, self._now()))
        return log

    def _open_anew(self, opening: Opening, why: str, *, forget: bool = True) -> Log:
        """What is there is put aside. `forget`: nor does what is known of it count, as a log start."""
        topic, state, _, directory, _ = opening
        put_aside(directory.path / f"{topic.name}-{state.index}", why)
        if forget and not opening.new:
            directory.forget((topic.name, state.index))
        return self._open_log(opening)

    def _had_elsewhere(self, opening: Opening) -> bool:
        """Whether others can give what is here, as far as is known now."""
        topic = self._topics.get(opening.topic.id.bytes, opening.topic)
        return had_elsewhere(topic.partitions[opening.state.index], self._node_id)

    def _open_log(self, opening: Opening) -> Log:
        topic, state, config, directory, _ = opening
        key = (topic.name, state.index)
        name = f"{topic.name}-{state.index}"
        return Log.open(
            directory.path / name,
            name,
            config,
            clean=directory.clean,
            recovery_point=directory.recovery_points.get(key, 0),
            log_start=directory.log_starts.get(key, 0),
            now=self._now(),
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
            now=self._now(),
            topic_id=partition.log.topic_id,
            producer_expiration_ms=self._producer_expiration_ms,
        )
