"""A topology as functions of batches: each node turns the records of its parents into its own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from moldau.streams.interpreter.keyed import Keyed
from moldau.streams.operators.calls import joiner_of, mapper_of, of_record, predicate_of
from moldau.streams.operators.foreign_keys import ROW, SUBSCRIPTION, Answer, Answers, References, Referred
from moldau.streams.operators.lookups import Lookup, TableToTable
from moldau.streams.operators.processing import Processing
from moldau.streams.operators.records import Event, Record, frozen
from moldau.streams.operators.stream_joins import StreamToStream
from moldau.streams.operators.tables import GroupOfRows, Regrouping
from moldau.streams.operators.values import conform
from moldau.streams.operators.windowed import Aligned, Sessions, Slides, Unwindowed
from moldau.streams.topology.nodes import (
    Aggregate,
    Apply,
    Arm,
    Cogroup,
    Filter,
    Flow,
    ForeignKeyJoin,
    GlobalJoin,
    JoinKind,
    Kind,
    LookupJoin,
    Map,
    Merge,
    Node,
    Process,
    Regroup,
    Sink,
    Source,
    StreamJoin,
    TableAggregate,
    TableJoin,
    Topology,
    View,
    is_stateful,
)
from moldau.streams.topology.windows import Session, Sliding

Batch: TypeAlias = list[Record]
Step: TypeAlias = Callable[[Sequence[Batch]], Batch]


class Engine:
    """The nodes of a topology with their states."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._keyed: dict[str, list[Keyed]] = {}
        self._steps: dict[Node, Step] = {
            node: self._step(node) for node in topology.nodes if not isinstance(node, Source)
        }

    def batch(self, sources: dict[Source, Batch]) -> dict[Sink, Batch]:
        """One batch of records through all nodes; what came to each sink."""
        made: dict[Node, Batch] = {}
        for node in self._topology.nodes:
            if isinstance(node, Source):
                made[node] = [
                    each for each in sources.get(node, ()) if node.shape.kind is Kind.STREAM or each.key is not None
                ]
            else:
                made[node] = self._steps[node]([made[parent] for parent in node.parents])
        return {node: made[node] for node in self._topology.sinks}

    def close(self) -> None:
        """Nothing runs outside of this object."""

    def late(self) -> dict[str, int]:
        """Records that came too late, by operator."""
        counts = {name: sum(each.late for each in keyed) for name, keyed in self._keyed.items()}
        return {name: count for name, count in counts.items() if count}

    def _step(self, node: Node) -> Step:
        match node:
            case ForeignKeyJoin():
                return self._foreign_key_join(node)
            case GlobalJoin():
                return _global_join(node)
            case _:
                return self._stateful(node) if is_stateful(node) else stateless_step(node)

    def _stateful(self, node: Node) -> Step:
        keyed = Keyed(operator_of(node))
        self._keyed[node.name] = [keyed]
        wanted = accepts(node)
        return lambda batches: keyed.batch(
            Event(side, record) for side, batch in enumerate(batches) for record in batch if wanted(side, record)
        )

    def _foreign_key_join(self, node: ForeignKeyJoin) -> Step:
        first, second, third = Keyed(References(node)), Keyed(Referred()), Keyed(Answers(node))

        def step(batches: Sequence[Batch]) -> Batch:
            references = first.batch(Event(0, record) for record in batches[0])
            subscriptions = [each for each in references if not isinstance(each.value, Answer)]
            direct = [each for each in references if isinstance(each.value, Answer)]
            answers = second.batch(
                [Event(SUBSCRIPTION, record) for record in subscriptions]
                + [Event(ROW, record) for record in batches[1]]
            )
            return third.batch(Event(0, record) for record in direct + answers)

        return step


def stateless_step(node: Node) -> Step:
    match node:
        case Filter():
            return _filter(node)
        case Arm():
            return _arm(node)
        case Map():
            return _map(node)
        case Apply():
            return _apply(node)
        case Merge():
            return lambda batches: [record for batch in batches for record in batch]
        case _:
            return _view(node)


def operator_of(node: Node) -> Any:
    """The state machine of a node, for one key."""
    match node:
        case Aggregate(window=None) | Cogroup(window=None):
            return Unwindowed(node)
        case Aggregate(window=Session()) | Cogroup(window=Session()):
            return Sessions(node)
        case Aggregate(window=Sliding()) | Cogroup(window=Sliding()):
            return Slides(node)
        case Aggregate() | Cogroup():
            return Aligned(node)
        case StreamJoin():
            return StreamToStream(node)
        case LookupJoin():
            return Lookup(node)
        case TableJoin():
            return TableToTable(node)
        case Process():
            return Processing(node)
        case Regroup():
            return Regrouping(node)
        case TableAggregate():
            return GroupOfRows(node)
        case _:
            raise TypeError(f"{node.name} has no state")


def accepts(node: Node) -> Callable[[int, Record], bool]:
    """Records that the operator does not look at: those without a key or a value, where these say nothing."""
    match node:
        case Aggregate() | Cogroup():
            return lambda side, record: record.key is not None and record.value is not None
        case StreamJoin(how=how):
            alone = {JoinKind.INNER: (), JoinKind.LEFT: (0,), JoinKind.OUTER: (0, 1)}[how]
            return lambda side, record: record.value is not None and (record.key is not None or side in alone)
        case LookupJoin(how=how):
            left = how is JoinKind.LEFT
            return lambda side, record: record.key is not None or (side == 0 and left)
        case _:
            return lambda side, record: record.key is not None


def _filter(node: Filter) -> Step:
    test = predicate_of(node.predicate, node.parents[0].shape)
    wanted = not node.negated
    table = node.shape.kind is Kind.TABLE

    def holds(record: Record) -> bool:
        if table and record.value is None:
            return False
        answer = test(record)
        return answer is not None and bool(answer) is wanted

    if table:  # a row that is not wanted is deleted
        return lambda batches: [each if holds(each) else each._replace(value=None) for each in batches[0]]
    return lambda batches: [each for each in batches[0] if holds(each)]


def _arm(node: Arm) -> Step:
    shape = node.parents[0].shape
    earlier = [predicate_of(each, shape) for each in node.earlier]
    test = None if node.predicate is None else predicate_of(node.predicate, shape)
    return lambda batches: [
        each for each in batches[0] if not any(one(each) for one in earlier) and (test is None or test(each))
    ]


def _map(node: Map) -> Step:
    shape = node.parents[0].shape
    key = None if node.key is None else mapper_of(node.key, shape, node.name)
    value = None if node.value is None else mapper_of(node.value, shape, node.name)
    table = node.shape.kind is Kind.TABLE

    def change(record: Record) -> Record:
        if table and record.value is None:
            return record
        return Record(
            record.key if key is None else key(record),
            record.value if value is None else value(record),
            record.time,
            record.window if key is None else None,
        )

    return lambda batches: [change(each) for each in batches[0]]


def _apply(node: Apply) -> Step:
    shape = node.parents[0].shape
    untyped = node.function if node.flow in (Flow.PEEK, Flow.FOR_EACH) else _untyped(node)
    call = of_record(untyped, shape.model, node.name)
    value = conform(node.shape.value, f"the value that {node.function.name} returned to {node.name}")
    key = conform(node.shape.key, f"the key that {node.function.name} returned to {node.name}")

    def pair(record: Record, given: Any) -> Record:
        new_key, new_value = given
        return Record(key(new_key), value(new_value), record.time)

    def flow(record: Record) -> Iterable[Record]:
        given = call(record)
        match node.flow:
            case Flow.MAP:
                return (pair(record, given),)
            case Flow.FLAT_MAP:
                return [pair(record, each) for each in given]
            case Flow.FLAT_MAP_VALUES:
                return [record._replace(value=value(each)) for each in given]
            case _:
                return (record,)

    return lambda batches: [made for record in batches[0] for made in flow(record)]


def _untyped(node: Apply) -> Any:
    return replace(node.function, type=None)


def _view(node: Node) -> Step:
    if node.shape.kind is Kind.TABLE and isinstance(node, View):
        return lambda batches: [each for each in batches[0] if each.key is not None]
    return lambda batches: batches[0]


def _global_join(node: GlobalJoin) -> Step:
    rows: dict[Any, Any] = {}
    find = mapper_of(node.on, node.parents[0].shape, node.name)
    join = joiner_of(node)
    left = node.how is JoinKind.LEFT

    def step(batches: Sequence[Batch]) -> Batch:
        for record in batches[1]:
            if record.value is None:
                rows.pop(frozen(record.key), None)
            else:
                rows[frozen(record.key)] = record.value
        results = []
        for record in batches[0]:
            if record.value is None:
                continue
            key = find(record)
            row = None if key is None else rows.get(frozen(key))
            if row is not None or left:
                results.append(record._replace(value=join(record.key, record.value, row, record.time)))
        return results

    return step
