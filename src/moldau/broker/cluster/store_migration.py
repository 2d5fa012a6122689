"""A single node becomes the first broker of a cluster: its metadata moves into the ensemble's store, once.

Later brokers join, and its partitions get replicas when somebody asks for them. The old store is kept under another
name.
"""

import logging
from dataclasses import replace
from pathlib import Path

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.metadata.changes import (
    BrokerConfigured,
    Change,
    FeaturesFinalized,
    GroupConfigured,
    ProducerIdsAllocated,
    TopicCreated,
)
from moldau.metadata.image import ClusterImage
from moldau.store.sqlite import SqliteStore

logger = logging.getLogger("moldau.broker")

MOVED_SUFFIX = ".moved"


async def read_metadata(store_file: Path) -> ClusterImage:
    """What a single node knew. StoreError if its store cannot be read."""
    store = await SqliteStore.open(store_file)
    try:
        feed = MetadataFeed(store)
        await feed.reload()
        return feed.image
    finally:
        await store.close()


def changes_for(image: ClusterImage, node_id: int) -> tuple[Change, ...]:
    """What leads from an empty cluster to this image, its brokers aside."""
    return (
        *(
            TopicCreated(
                topic.name,
                topic.id,
                tuple(replace(state, partition_epoch=0) for state in topic.partitions),
                topic.config,
            )
            for topic in image.topics.values()
        ),
        *(BrokerConfigured(name, config) for name, config in image.broker_configs.items()),
        *(GroupConfigured(name, config) for name, config in image.group_configs.items()),
        *((FeaturesFinalized(image.features),) if image.features_epoch >= 0 else ()),
        ProducerIdsAllocated(node_id, image.next_producer_id),
    )


def set_aside(store_file: Path) -> None:
    """The ensemble has it now: it must not be taken for the truth again."""
    if store_file.exists():
        moved = store_file.with_name(store_file.name + MOVED_SUFFIX)
        store_file.replace(moved)
        logger.info("the metadata is in ZooKeeper from now on; what this node had is kept in %s", moved)
