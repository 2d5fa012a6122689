"""Migration of a single node's metadata into ZooKeeper, once, when the node becomes the first broker of a cluster.

Other brokers may join then, and its partitions may be reassigned to them. The old store is kept under another name.
"""

import logging
from dataclasses import replace
from pathlib import Path

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.metadata.changes import (
    BrokerConfigured,
    Change,
    DocumentsChanged,
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
    """The metadata of a single node. Raises StoreError."""
    store = await SqliteStore.open(store_file)
    try:
        feed = MetadataFeed(store)
        await feed.reload()
        return feed.image
    finally:
        await store.close()


def changes_for(image: ClusterImage, node_id: int) -> tuple[Change, ...]:
    """The changes that create this image in an empty cluster, except its brokers."""
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
        *(DocumentsChanged({path: text}) for path, text in image.documents.items()),
        *((FeaturesFinalized(image.features),) if image.features_epoch >= 0 else ()),
        ProducerIdsAllocated(node_id, image.next_producer_id),
    )


def set_aside(store_file: Path) -> None:
    """Rename the old store: it must not be used again."""
    if store_file.exists():
        moved = store_file.with_name(store_file.name + MOVED_SUFFIX)
        store_file.replace(moved)
        logger.info("Metadata moved to ZooKeeper; the old store is kept as %s", moved)
