"""How a topology is cut into queries: each has at most one operator with state, and internal topics are between them.

Structured Streaming takes one aggregate in update mode and no operator with state behind it. So the records that go
from one such operator to the next are written to an internal topic, as Kafka Streams does where a key changes.
"""

from dataclasses import dataclass

from moldau.streams.topology.nodes import GlobalJoin, Node, Sink, Source, Topology, ends, is_stateful


@dataclass(frozen=True, slots=True)
class Internal:
    """The internal topic between two queries: what a parent of an operator with state gives it."""

    topic: str
    reader: Node
    side: int


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where records of a node leave a query: in a sink, a for_each or an internal topic."""

    node: Node
    internal: Internal | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """`root` is the operator with state, or the source of a query without one."""

    name: str
    root: Node
    outlets: tuple[Outlet, ...]
    inputs: tuple[Internal, ...] = ()


def has_query(node: Node) -> bool:
    """Whether a query begins at a node. A join with a global table has one of its own, since the table changes."""
    return is_stateful(node) or isinstance(node, GlobalJoin)


def flow_parents(node: Node) -> tuple[Node, ...]:
    """The parents whose records go through a node. A global table does not: it is looked up."""
    return node.parents[:1] if isinstance(node, GlobalJoin) else node.parents


def roots_of(node: Node) -> list[Node]:
    """The sources and operators with a query from which records come to a node."""
    if isinstance(node, Source) or has_query(node):
        return [node]
    found: dict[Node, None] = {}
    for parent in flow_parents(node):
        found.update(dict.fromkeys(roots_of(parent)))
    return list(found)


def internal_of(topology: Topology, reader: Node, side: int) -> Internal | None:
    """The internal topic before one side of an operator with state; None if that side reads topics of the user."""
    if not any(has_query(root) for root in roots_of(reader.parents[side])):
        return None
    suffix = f"-{side + 1}" if len(flow_parents(reader)) > 1 else ""
    return Internal(f"{topology.name}-{reader.name}{suffix}-repartition", reader, side)


def queries_of(topology: Topology) -> list[Query]:
    """All queries, each after those that it reads from."""
    outlets: dict[Node, list[Outlet]] = {}
    inputs: dict[Node, list[Internal]] = {}
    for node in topology.nodes:
        if ends(node):
            for root in roots_of(node.parents[0]):
                outlets.setdefault(root, []).append(Outlet(node))
        elif has_query(node):
            outlets.setdefault(node, [])
            for side, parent in enumerate(flow_parents(node)):
                internal = internal_of(topology, node, side)
                if internal is not None:
                    inputs.setdefault(node, []).append(internal)
                    for root in roots_of(parent):
                        outlets.setdefault(root, []).append(Outlet(parent, internal))
    return [
        Query(f"{topology.name}-{node.name}", node, tuple(outlets[node]), tuple(inputs.get(node, ())))
        for node in topology.nodes
        if outlets.get(node)
    ]


def members(query: Query, topology: Topology) -> list[Node]:
    """The nodes that run in a query, in order."""
    found: set[Node] = set()

    def down(node: Node) -> bool:
        """Whether records of the root come to a node; collects the nodes on the way."""
        if node is query.root:
            return True
        if isinstance(node, Source) or has_query(node):
            return False
        reached = {down(parent) for parent in flow_parents(node)}  # all of them, to collect what is above each
        if True in reached:
            found.add(node)
        return True in reached

    def up(node: Node) -> None:
        found.add(node)
        if not isinstance(node, Source):
            for parent in node.parents:
                up(parent)

    for outlet in query.outlets:
        down(outlet.node)
        if isinstance(outlet.node, Sink):
            found.add(outlet.node)
    cut = {internal.side for internal in query.inputs}
    found.add(query.root)
    for side, parent in enumerate(query.root.parents):
        if side not in cut:
            up(parent)
    for node in list(found):
        if isinstance(node, GlobalJoin):
            found.add(node.parents[1])
    return [node for node in topology.nodes if node in found]
