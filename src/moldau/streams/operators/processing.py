"""Runs a processor of the user for one key: its stores, its timers and what it forwards."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from moldau.streams.operators.calls import model_reader
from moldau.streams.operators.records import Event, Record, millis_of, moment
from moldau.streams.operators.values import WrongValue, conform
from moldau.streams.topology.nodes import Process
from moldau.streams.topology.processors import MAX_TIMERS, stores_of


class Processing:
    """The state is (entries of each store, times of timers)."""

    def __init__(self, node: Process) -> None:
        self.grace_ms = node.grace_ms
        self.late = 0  # a processor sees every record
        self._processor = node.processor
        self._stores = stores_of(node.processor)
        self._read = model_reader(node.parents[0].shape.model)
        self._value = conform(node.shape.value, f"what {node.processor.__name__} forwarded in {node.name}")
        self._key = conform(node.shape.key, f"the key that {node.processor.__name__} forwarded in {node.name}")

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        call = _Call(self, key, state)
        for _, record in events:
            call.at(record.time)
            call.processor.process(self._read(record.value), call)
        return call.state(), call.results

    def close(self, key: Any, state: Any, watermark: int) -> tuple[Any, list[Record]]:
        call = _Call(self, key, state)
        while call.timers and min(call.timers) <= watermark:
            time = min(call.timers)
            call.timers.discard(time)
            call.at(time)
            call.processor.on_timer(moment(time), call)
        return call.state(), call.results

    def deadline(self, state: Any) -> int | None:
        return min(state[1], default=None)


class _Call:
    """The context of a processor while it has the records of one key."""

    def __init__(self, owner: Processing, key: Any, state: Any) -> None:
        self._owner = owner
        entries, timers = ({}, ()) if state is None else state
        self._entries: dict[str, dict[Any, Any]] = {name: dict(entries.get(name, {})) for name in owner._stores}
        self.timers: set[int] = set(timers)
        self.processor = owner._processor()
        self.results: list[Record] = []
        self.key = key
        self.time = moment(0)

    def at(self, time: int) -> None:
        self.time = moment(time)
        for name, store in self._owner._stores.items():
            setattr(self.processor, name, store.bound(self._entries[name], time))

    def forward(self, value: Any, *, key: Any = None) -> None:
        given = self.key if key is None else self._owner._key(key)
        self.results.append(Record(given, self._owner._value(value), millis_of(self.time)))

    def timer(self, at: datetime) -> None:
        if len(self.timers) >= MAX_TIMERS:
            raise WrongValue(
                f"{self._owner._processor.__name__} has {MAX_TIMERS} timers for key {self.key!r}, the most it may"
            )
        self.timers.add(millis_of(at))

    def cancel(self, at: datetime) -> None:
        self.timers.discard(millis_of(at))

    def state(self) -> Any:
        entries = {name: kept for name, kept in self._entries.items() if kept}
        return (entries, tuple(sorted(self.timers))) if entries or self.timers else None
