"""A result that comes later, without a task of its own. Knows no event loop."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Later(Generic[T]):
    """Resolved once: later results are dropped. A result that comes before `then` is kept for it."""

    __slots__ = ("_listener", "_result", "done")

    _result: T

    def __init__(self) -> None:
        self.done = False
        self._listener: Callable[[T], None] | None = None

    @property
    def result(self) -> T:
        """The result; only if `done`."""
        return self._result

    def resolve(self, result: T) -> None:
        if self.done:
            return
        self.done = True
        self._result = result
        listener, self._listener = self._listener, None
        if listener is not None:
            listener(result)

    def then(self, listener: Callable[[T], None]) -> None:
        """Call the listener with the result: now if it is there, else when it comes. There is one listener."""
        if self.done:
            listener(self._result)
        else:
            self._listener = listener

    def forget(self) -> None:
        """Drop the listener."""
        self._listener = None


NowOrLater: TypeAlias = T | Later[T]


def gather(parts: Sequence[NowOrLater[T]], combine: Callable[[list[T]], NowOrLater[U]]) -> NowOrLater[U]:
    """`combine` of all parts, at once if none of them is pending; `combine` itself may answer later."""
    results: list[NowOrLater[T]] = list(parts)
    pending = [(index, part) for index, part in enumerate(parts) if isinstance(part, Later)]
    missing = len(pending)
    combined: Later[U] = Later()

    def complete() -> NowOrLater[U]:
        return combine([part.result if isinstance(part, Later) else part for part in results])

    def arrived(index: int, result: T) -> None:
        nonlocal missing
        results[index] = result
        missing -= 1
        if not missing:
            outcome = complete()
            if isinstance(outcome, Later):
                outcome.then(combined.resolve)
            else:
                combined.resolve(outcome)

    if not pending:
        return complete()
    for index, part in pending:
        part.then(partial(arrived, index))
    return combined.result if combined.done else combined


def chain(part: NowOrLater[T], then: Callable[[T], NowOrLater[U]]) -> NowOrLater[U]:
    """`then` of one part, which may be pending."""
    return gather([part], lambda results: then(results[0])) if isinstance(part, Later) else then(part)
