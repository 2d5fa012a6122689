"""Whose records a partition's directory holds: the topic id in `partition.metadata`. Moves and deletes nothing."""

import logging
import os
from pathlib import Path
from uuid import UUID

from moldau.base.uuids import text_of
from moldau.log.checkpoints import LEADER_EPOCHS, MalformedCheckpointError, read_topic_id, write_topic_id

logger = logging.getLogger("moldau.log")


class TopicIdMismatchError(ValueError):
    """The directory belongs to another topic of the same name."""


class TopicIdLostError(ValueError):
    """Nobody can say which topic the directory belonged to, and nothing of it was ever synced."""


def check_topic_id(directory: Path, topic_id: UUID) -> bool:
    """Makes sure that the directory is this topic's; True if the file that says so had to be written.

    The file is synced with the log's first flush, which also writes the leader epochs. So a damaged one without those
    is what a power cut left of a log that nothing was promised of: it may even be an older topic's. With them the
    records are worth more than the file.
    """
    try:
        found = read_topic_id(directory)
    except MalformedCheckpointError as fault:
        if not os.path.exists(directory / LEADER_EPOCHS):
            raise TopicIdLostError(f"{fault}, and the log was never synced") from None
        logger.warning("%s; its records count as those of topic id %s", fault, text_of(topic_id))
        found = None
    if found is None:
        write_topic_id(directory, topic_id, durable=False)
    elif found != topic_id:
        raise TopicIdMismatchError(f"{directory} belongs to topic id {text_of(found)}, not {text_of(topic_id)}")
    return found is None
