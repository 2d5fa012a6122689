"""Removes what deleted topics left in the store. A topic of thousands of partitions goes in one change, nodes later.

One transaction cannot take that many nodes away. So the change empties the topic's own node, which is as good as gone
for whoever reads the tree, and the controller sweeps afterwards. What a controller that died left is swept by the next
one.
"""

from moldau.base.tree import Check, Delete
from moldau.metadata import tree
from moldau.store.port import Conflict, Store

SWEPT_AT_ONCE = 2_000  # nodes


async def sweep(store: Store, controller_epoch: int, known: frozenset[str]) -> None:
    """For whoever holds the turn and leads: removes the nodes of topics that are not known. StoreError: try later."""
    for name in await store.children(tree.TOPICS):
        if name in known:
            continue
        found = await store.subtree(f"{tree.TOPICS}/{name}")
        nodes = sorted(found, key=lambda path: path.count("/"), reverse=True)  # children come first
        for at in range(0, len(nodes), SWEPT_AT_ONCE):
            gone = [Delete(path) for path in nodes[at : at + SWEPT_AT_ONCE]]
            if isinstance(await store.multi([Check(tree.CONTROLLER_EPOCH, controller_epoch), *gone]), Conflict):
                return  # another controller sweeps
