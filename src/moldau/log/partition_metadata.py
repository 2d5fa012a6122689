"""The topic id of a partition's directory, in `partition.metadata`. Moves and deletes nothing."""

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
    """The directory's topic id is unknown, and nothing of its log was ever flushed."""


def check_topic_id(directory: Path, topic_id: UUID) -> bool:
    """Check that the directory is this topic's; True if `partition.metadata` had to be written.

    The file is synced with the log's first flush, which also writes the leader epochs. A damaged file without
    leader epochs was left by a power cut before that flush, and may belong to an earlier topic. With leader epochs the
    records are kept.
    """
    try:
        found = read_topic_id(directory)
    except MalformedCheckpointError as fault:
        if not os.path.exists(directory / LEADER_EPOCHS):
            raise TopicIdLostError(f"{fault}, and the log was never flushed") from None
        logger.warning("%s. Assigning its records to topic id %s.", fault, text_of(topic_id))
        found = None
    if found is None:
        write_topic_id(directory, topic_id, durable=False)
    elif found != topic_id:
        raise TopicIdMismatchError(f"{directory} belongs to topic id {text_of(found)}, not {text_of(topic_id)}")
    return found is None
