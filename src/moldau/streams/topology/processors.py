"""The processor API: a class of the user that sees the records of one key, with stores and timers.

class Silence(Processor):
    last = Value()

    def process(self, value, context):
        self.last.set(value)
        context.timer(context.time + minutes(5))

    def on_timer(self, time, context):
        context.forward(f"silent since {self.last.get()}")
"""

from collections.abc import Iterator, MutableMapping
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from moldau.streams.topology.refusals import TopologyRefused
from moldau.streams.topology.windows import Millis, millis

MAX_TIMERS: Final = 1000  # of one key


class Context(Protocol):
    """What a processor can do besides reading its stores."""

    key: Any
    time: datetime  # of the record, or of the timer

    def forward(self, value: Any, *, key: Any = None) -> None:
        """Give a record to what follows; its key is the one of the processor, unless another is given."""

    def timer(self, at: datetime) -> None:
        """Call `on_timer` once the time of records has passed this, less the grace. One time has one timer."""

    def cancel(self, at: datetime) -> None:
        """Forget a timer."""


class Store:
    """A store of a processor, one for each key. `ttl`: what was written longer ago, by the time of records, is gone."""

    def __init__(self, *, ttl: timedelta | None = None) -> None:
        self.ttl_ms: Millis | None = None if ttl is None else millis(ttl, "the ttl of a store", least=1)
        self._entries: MutableMapping[Any, tuple[Any, Millis]] = {}
        self._now: Millis = 0

    def bound(self, entries: MutableMapping[Any, tuple[Any, Millis]], now: Millis) -> "Store":
        """The store of one key, at a time. Entries are values with the time at which they were written."""
        store = type(self)()
        store.ttl_ms, store._entries, store._now = self.ttl_ms, entries, now
        for name in [name for name, (_, written) in entries.items() if self.ttl_ms and written + self.ttl_ms <= now]:
            del entries[name]
        return store

    def _put(self, name: Any, value: Any) -> None:
        self._entries[name] = (value, self._now)

    def clear(self) -> None:
        self._entries.clear()


class Value(Store):
    """One value."""

    def get(self, default: Any = None) -> Any:
        return self._entries.get(None, (default,))[0]

    def set(self, value: Any) -> None:
        self._put(None, value)


class Values(Store):
    """A list of values, in the order in which they were added."""

    def add(self, value: Any) -> None:
        self._put(max(self._entries, default=-1) + 1, value)

    def __iter__(self) -> Iterator[Any]:
        return iter([value for value, _ in self._entries.values()])

    def __len__(self) -> int:
        return len(self._entries)


class Mapped(Store):
    """Values by a key of their own."""

    def get(self, name: Any, default: Any = None) -> Any:
        return self._entries.get(name, (default,))[0]

    def put(self, name: Any, value: Any) -> None:
        self._put(name, value)

    def remove(self, name: Any) -> None:
        self._entries.pop(name, None)

    def items(self) -> list[tuple[Any, Any]]:
        return [(name, value) for name, (value, _) in self._entries.items()]

    def __len__(self) -> int:
        return len(self._entries)


class Processor:
    """Base of processors. Stores are attributes of the class; other attributes are forgotten from batch to batch."""

    def process(self, value: Any, context: Context) -> None:
        """A record has come."""
        raise TypeError(f"{type(self).__name__} has no process(value, context)")

    def on_timer(self, time: datetime, context: Context) -> None:
        """A timer is due."""


def stores_of(processor: type[Processor]) -> dict[str, Store]:
    """The stores of a processor, by name."""
    found = {
        name: each
        for kind in reversed(processor.__mro__)
        for name, each in vars(kind).items()
        if isinstance(each, Store)
    }
    return dict(sorted(found.items()))


def check_processor(processor: object) -> type[Processor]:
    if not isinstance(processor, type) or not issubclass(processor, Processor):
        raise TopologyRefused(f"process takes a class derived from Processor, not {processor!r}")
    if processor.process is Processor.process:
        raise TopologyRefused(f"{processor.__name__} has no process(self, value, context)")
    return processor
