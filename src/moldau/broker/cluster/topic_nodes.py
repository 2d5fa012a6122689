"""Nodes of large topics in the store: staged before the topic is created, removed after it was deleted.

One transaction cannot create or delete thousands of nodes. So a topic's own node is empty, which readers treat as no
topic, until all its partitions are staged, and again from the change that deletes it. The controller removes the nodes
afterwards. Leftovers of a failed controller are removed by the next one, or when they block a new topic.
"""

from moldau.base.ids import Epoch
from moldau.base.tree import Check, Delete, Op, Set
from moldau.metadata import znodes
from moldau.metadata.changes import TopicCreated
from moldau.store.port import Conflict, Store

NODES_PER_DELETE = 2_000


async def remove_deleted_topics(store: Store, controller_epoch: Epoch, known: frozenset[str]) -> None:
    """Remove the nodes of unknown topics. Called by the controller with the feed's lock held. Raises StoreError."""
    for name in await store.children(znodes.TOPICS):
        if name not in known and await remove_topic_nodes(store, controller_epoch, name):
            return  # another controller does it


async def remove_topic_nodes(store: Store, controller_epoch: Epoch, name: str) -> Conflict | None:
    """Remove the nodes of a deleted topic. A conflict: another controller removes them, or has created the topic."""
    path = znodes.topic_path(name)
    own = await store.get(path)
    if own is None or own.data != znodes.DELETED:
        return None
    found = await store.subtree(path)
    nodes = sorted(found, key=lambda each: each.count("/"), reverse=True)  # children first
    # Two brokers that found a cluster have the same controller epoch. This claim makes a concurrent creation fail.
    claim: Op = Set(path, znodes.DELETED, own.version)
    for at in range(0, len(nodes), NODES_PER_DELETE):
        gone = [Delete(each) for each in nodes[at : at + NODES_PER_DELETE]]
        result = await store.multi([Check(znodes.CONTROLLER_EPOCH, controller_epoch), claim, *gone])
        if isinstance(result, Conflict):
            return result
        claim = Check(path, own.version + 1)
    return None


async def stage_topic_nodes(store: Store, controller_epoch: Epoch, topic: TopicCreated) -> Conflict | None:
    """Create the nodes of a large topic's partitions. StoreUnavailable: some of them may exist."""
    left = await remove_topic_nodes(store, controller_epoch, topic.topic)
    if left is not None:
        return left
    for ops in znodes.staging_ops(topic, controller_epoch):
        result = await store.multi(ops)
        if isinstance(result, Conflict):
            return result
    return None
