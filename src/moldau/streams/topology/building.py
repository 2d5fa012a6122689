"""The program while it is written: names of operators, and where streams end. Users see it as `Streams`."""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from moldau.streams.topology.nodes import Kind, Node, Shape, Sink, Source, Topology, ordered
from moldau.streams.topology.refusals import TopologyRefused

MAX_NODES: Final = 10_000
TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,99}")

AnyNode = TypeVar("AnyNode", bound=Node)


class Building:
    """Gives each node a name that is unique, and stays the same as long as the operators before it do."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise TopologyRefused(f"the name of an application is letters, digits, - and _, not {name!r}")
        self.name = name
        self.dead_letters = ""
        self._names: dict[str, int] = {}
        self._ends: list[Node] = []
        self._all: set[Node] = set()
        self._inputs: dict[str, Source] = {}

    def add(
        self,
        make: Callable[..., AnyNode],
        operator: str,
        parents: tuple[Node, ...],
        shape: Shape,
        name: str | None = None,
        **more: Any,
    ) -> AnyNode:
        if len(self._all) >= MAX_NODES:
            raise TopologyRefused(f"an application has at most {MAX_NODES} operators")
        for parent in parents:
            if parent not in self._all:
                raise TopologyRefused(f"{operator}: {parent.name} belongs to another application")
        node = make(name=self._unique(operator, name), parents=parents, shape=shape, **more)
        self._all.add(node)
        return node

    def add_source(self, topic: str, shape: Shape, **more: Any) -> Source:
        check_topic(topic)
        if topic in self._inputs:
            known = self._inputs[topic]
            raise TopologyRefused(
                f"topic {topic} is read already, as a {known.shape.kind.value}. Use that one twice, "
                "or turn it into the other with to_table() or to_stream()"
            )
        operator = {Kind.STREAM: "stream", Kind.TABLE: "table", Kind.GLOBAL: "global_table"}[shape.kind]
        self._inputs[topic] = self.add(Source, operator, (), shape, topic=topic, **more)
        return self._inputs[topic]

    def end(self, node: Node) -> None:
        self._ends.append(node)

    def topology(self) -> Topology:
        """The program as it is now. Operators that lead nowhere are not part of it."""
        if not self._ends:
            raise TopologyRefused(f"{self.name} writes nothing: end a stream with .to(topic) or .for_each(function)")
        sinks = [node for node in self._ends if isinstance(node, Sink)]
        for node in sinks:
            if node.topic == self.dead_letters:
                raise TopologyRefused(f"topic {node.topic} is for dead letters and for the results of {node.name}")
        if self.dead_letters in self._inputs:
            raise TopologyRefused(
                f"topic {self.dead_letters} is for dead letters and is read: an unreadable record would circle"
            )
        return Topology(self.name, tuple(ordered(self._ends)), self.dead_letters)

    def _unique(self, operator: str, given: str | None) -> str:
        if given is not None:
            if not NAME.fullmatch(given):
                raise TopologyRefused(f"{operator}: a name is letters, digits, - and _, not {given!r}")
            if given in self._names:
                raise TopologyRefused(f"{operator}: the name {given} is taken")
            self._names[given] = 1
            return given
        while True:
            number = self._names[operator] = self._names.get(operator, 0) + 1
            name = f"{operator}-{number}"
            if name not in self._names:
                self._names[name] = 1
                return name


def check_topic(topic: object) -> None:
    if not isinstance(topic, str) or not TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise TopologyRefused(f"{topic!r} is not the name of a topic: letters, digits, '.', '_' and '-', at most 249")
