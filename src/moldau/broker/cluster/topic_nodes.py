"""Large topics in the store: nodes are made before the topic is created, and removed after it was deleted.

One transaction cannot make or take away thousands of nodes. So a topic's own node is empty, which is as good as none
for whoever reads the tree, until all of its partitions are there, and from the change on that deletes it. The
controller sweeps afterwards. What a controller that died left is swept by the next one, or when it is in the way.
"""

from moldau.base.tree import Check, Delete, Op, Set
from moldau.metadata import znodes
from moldau.metadata.changes import TopicCreated
from moldau.store.port import Conflict, Store

NODES_PER_DELETE = 2_000  # nodes


async def remove_deleted_topics(store: Store, controller_epoch: int, known: frozenset[str]) -> None:
    """For whoever holds the turn and leads: removes the nodes of topics that are not known. StoreError: try later."""
    for name in await store.children(znodes.TOPICS):
        if name not in known and await remove_topic_nodes(store, controller_epoch, name):
            return  # another controller sweeps


async def remove_topic_nodes(store: Store, controller_epoch: int, name: str) -> Conflict | None:
    """Removes what there is of a topic that is none. A conflict: somebody else is at it, or has made it a topic."""
    path = znodes.topic_path(name)
    own = await store.get(path)
    if own is None or own.data != znodes.DELETED:
        return None
    found = await store.subtree(path)
    nodes = sorted(found, key=lambda each: each.count("/"), reverse=True)  # children come first
    # Two who found a cluster have the same epoch, none. Who makes the topic, or makes it anew, fails or is seen.
    claim: Op = Set(path, znodes.DELETED, own.version)
    for at in range(0, len(nodes), NODES_PER_DELETE):
        gone = [Delete(each) for each in nodes[at : at + NODES_PER_DELETE]]
        result = await store.multi([Check(znodes.CONTROLLER_EPOCH, controller_epoch), claim, *gone])
        if isinstance(result, Conflict):
            return result
        claim = Check(path, own.version + 1)
    return None


async def stage_topic_nodes(store: Store, controller_epoch: int, topic: TopicCreated) -> Conflict | None:
    """Makes the nodes of a large topic's partitions. StoreUnavailable: some of them may be there."""
    left = await remove_topic_nodes(store, controller_epoch, topic.topic)
    if left is not None:
        return left
    for ops in znodes.staging_ops(topic, controller_epoch):
        result = await store.multi(ops)
        if isinstance(result, Conflict):
            return result
    return None
